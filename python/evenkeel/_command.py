"""The console script evenkeel: the program that the wheel carries."""

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(__file__), "_bin", "evenkeel")
    if not os.path.exists(program):
        sys.exit("evenkeel: this installation has no program, only the Python packages; install the wheel of this machine, or build the program with go build ./cmd/evenkeel")
    os.execv(program, ["evenkeel", *sys.argv[1:]])
