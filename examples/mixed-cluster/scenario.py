"""What happens to a cluster: its hosts, and events at seconds of the job. A scenario is a JSON file, or drawn at random by a seed.

    python scenario.py 7 > seven.json          # draw one, to look at it or to change it

    {"seconds": 240, "paces": [1, 2, 4], "delay": 0.0002, "bandwidth": 125e6,
     "events": [{"what": "co-tenant", "host": 0, "at": 30, "until": 50, "by": 2.5}]}

paces       seconds of each host's device for one of the quickest's
delay       seconds of one way between hosts
bandwidth   bytes a second that each host sends
what        co-tenant     the device is `by` times slower
            slow loader   the loader takes `by` seconds for each sample
            slow link     the host sends `by` times slower
            frozen        the host's processes stand still
            killed        the host's training process is killed, at once; torchrun starts all ranks again
            host lost     every process of the host is killed; at `until` the host is back
            power lost    every process of all hosts is killed; at `until` they are back
            service       Evenkeel's service is killed; at `until` it is back
            disk full     the file system of the checkpoints has no room
"""

import json
import random
import sys

SECONDS = 1 / 12000  # of a token on a device of pace 1
KINDS = {"co-tenant": 2.5, "slow loader": 0.04, "slow link": 100.0, "frozen": 1.0, "killed": 1.0, "host lost": 1.0, "power lost": 1.0, "service": 1.0, "disk full": 1.0}  # and their usual `by`


def seconds_of(samples, length):
    """What a device of pace 1 takes for a micro-step: so much for each token, padding too, and for its attention."""
    return SECONDS * samples * length * (1 + length / 1024)


class Scenario:
    def __init__(self, seconds, paces, events, delay=0.0002, bandwidth=125e6):
        self.seconds, self.paces, self.delay, self.bandwidth = float(seconds), [float(p) for p in paces], delay, bandwidth
        if not self.paces or min(self.paces) < 1:
            raise ValueError(f"paces {paces}: the quickest is 1, others are above")
        self.events = []
        for i, e in enumerate(events):
            if set(e) - {"what", "host", "at", "until", "by"} or e.get("what") not in KINDS:
                raise ValueError(f"event {i + 1}, {e}: what, host, at, until and by; what is one of {', '.join(KINDS)}")
            e = {"host": 0, "until": e["at"], "by": KINDS[e["what"]], **e}
            if not 0 <= e["at"] <= e["until"] <= self.seconds or not 0 <= e["host"] < len(self.paces) or e["by"] <= 0:
                raise ValueError(f"event {i + 1}, {e}: it must lie within the {self.seconds:g} seconds, its host among the {len(self.paces)}")
            if e["what"] == "host lost" and e["host"] == 0:
                raise ValueError(f"event {i + 1}: host 0 has torchrun's meeting place, without which no job goes on; 'power lost' is for that")
            self.events.append(e)

    def scaled(self, seconds):
        """The same in another time."""
        events = [{**e, "at": e["at"] * seconds / self.seconds, "until": e["until"] * seconds / self.seconds} for e in self.events]
        return Scenario(seconds, self.paces, events, self.delay, self.bandwidth)

    def bound(self, lengths, start):
        """Tokens a second if every device that is there trained all the time, without padding or exchange, and loaders worked beside it. Nothing is trained
        for `start` seconds after a process was killed, and after a host went or came, as torchrun starts all ranks again."""
        starts = [at for e in self.events if e["what"] in ("killed", "host lost", "power lost") for at in {e["at"], e["until"]}]
        each, tokens, total = sum(seconds_of(1, n) for n in lengths) / len(lengths), sum(n - 1 for n in lengths) / len(lengths), 0.0
        for host, pace in enumerate(self.paces):
            own = [e for e in self.events if e["host"] == host or e["what"] == "power lost"]
            times = sorted({0.0, self.seconds, *(e[at] for e in own for at in ("at", "until")), *starts, *(min(at + start, self.seconds) for at in starts)})
            for begin, end in zip(times, times[1:]):
                now = {e["what"]: e["by"] for e in own if e["at"] <= begin < e["until"]}
                if not now.keys() & {"frozen", "host lost", "power lost"} and not any(at <= begin < at + start for at in starts):
                    total += (end - begin) / max(each * pace * now.get("co-tenant", 1), now.get("slow loader", 0))
        return total * tokens / self.seconds


def read(path):
    with open(path) as f:
        try:
            return Scenario(**json.load(f))
        except (ValueError, TypeError, KeyError) as e:
            raise SystemExit(f"{path}: {e}") from e


def draw(seed, seconds=120):
    """Two to four hosts of up to five paces, and about an event in each eighth of the time. Hosts are lost for at least 15 seconds, which is what it takes to
    notice and to start again."""
    r = random.Random(seed)
    paces = [1.0] + [round(r.uniform(1, 5), 1) for _ in range(r.randint(1, 3))]
    events, at = [], 0.08 * seconds
    while at < 0.9 * seconds:
        what = r.choices(["co-tenant", "slow loader", "slow link", "frozen", "killed", "host lost"], [5, 2, 2, 1, 1, 1])[0]
        lasts = {"frozen": r.uniform(2, 5), "killed": 0, "host lost": r.uniform(15, 25)}.get(what, seconds * r.uniform(0.03, 0.15))
        by = {"co-tenant": r.uniform(1.5, 4), "slow loader": r.uniform(0.02, 0.08), "slow link": r.uniform(20, 200)}.get(what, 1)
        host = r.randrange(what == "host lost", len(paces))
        events.append({"what": what, "host": host, "at": round(at, 1), "until": round(min(at + lasts, 0.97 * seconds), 1), "by": round(by, 3)})
        at = events[-1]["until"] + seconds * r.uniform(0.02, 0.12)
    return Scenario(seconds, paces, events)


if __name__ == "__main__":
    print(json.dumps(vars(draw(int(sys.argv[1]))), indent=1))
