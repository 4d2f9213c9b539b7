"""What the times of single steps show that public logs print: how often a step is slow, and whether the next slow one can be foreseen.

    git clone https://github.com/KellerJordan/modded-nanogpt /tmp/logs
    python experiments/tuner/steptimes.py /tmp/logs/records/track_1_short
"""

import pathlib
import re
import sys

import numpy

WARM, LEAST = 20, 700  # steps that are left out, and that a run must have
WINDOW = 25  # steps to either side, whose median is what a step usually takes
SLOW = 0.1  # over the usual time

LINE = re.compile(r"step:(\d+)/\d+ (?:train_loss\S* )?train_time:(\d+)ms")


def times(log):
    """Seconds of single steps."""
    ended = {int(step): int(ms) for step, ms in LINE.findall(log)}
    each = [(ended[k] - ended[k - 1]) / 1e3 for k in sorted(ended) if k - 1 in ended]
    return numpy.array(each[WARM:])


def slow(seconds):
    """Which steps are slow, and the standard deviation of all others over what is usual."""
    usual = numpy.array([numpy.median(seconds[max(0, k - WINDOW) : k + WINDOW + 1]) for k in range(len(seconds))])
    over = seconds / usual - 1
    return numpy.flatnonzero(over > SLOW), over[over <= SLOW].std()


def foretold(at):
    """How many slow steps come as far after the one before, to one step, as that came after its own, and how many could."""
    gaps = numpy.diff(at)
    return int((abs(numpy.diff(gaps)) <= 1).sum()), max(len(gaps) - 1, 0)


def main(folder):
    table = {}
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.suffix not in (".txt", ".log"):
            continue
        seconds = times(path.read_text(errors="replace"))
        if len(seconds) >= LEAST and seconds.min() > 0:
            at, deviation = slow(seconds)
            year = path.relative_to(folder).parts[0][:4]
            table.setdefault(year, []).append((len(seconds), numpy.median(seconds), deviation, len(at), *foretold(at)))
    print("| year | runs | steps | median step, s | deviation of the others | slow steps | foretold by the gap before |\n|---|---|---|---|---|---|---|")
    for year, runs in table.items():
        steps, median, deviation, n, hits, of = numpy.array(runs).T
        print(f"| {year} | {len(runs)} | {steps.sum():.0f} | {numpy.median(median):.3f} | {numpy.median(deviation):.1%} | {n.sum() / steps.sum():.2%} | {hits.sum():.0f} of {of.sum():.0f} |")


if __name__ == "__main__":
    main(sys.argv[1])
