"""The commands run and profile; --help describes each."""

import argparse
import sys

from . import profile, run
from .layout import PlanError
from .processes import RankError


def main():
    parser = argparse.ArgumentParser(prog="python3 -m evenkeel.plan", description="Runs and measures plans of evenkeel plan on processes of PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in (("run", run), ("profile", profile)):
        c = commands.add_parser(name, help=module.__doc__.split(": ", 1)[1].strip().rstrip("."), description=module.__doc__.split(": ", 1)[1])
        module.arguments(c)
        c.set_defaults(main=module.main)
    args = parser.parse_args()
    try:
        return args.main(args)
    except (PlanError, ValueError, OSError) as e:
        sys.stderr.write("evenkeel.plan: %s\n" % e)
        return 2
    except RankError as e:
        sys.stderr.write("evenkeel.plan: %s\n" % e)
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("evenkeel.plan: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
