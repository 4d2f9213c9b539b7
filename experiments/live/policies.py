"""Rules that decide in the process of rank 0, over the same hook, sampler and all-reduce as what the service decides."""

import evenkeel.client
import evenkeel.registration
from evenkeel import deadline, order
from evenkeel.client import Plan


def install(a, log, clock):
    """Notes every report in log; puts a rule in the client's place, unless the service decides."""
    if a.policy == "none":
        return
    if a.policy == "served":

        class Noting(evenkeel.client.Client):
            def offer(self, report, ran):
                note(log, clock, report, ran)
                self.counts["offered"] += ran.number > 0 and ran.era == self._era
                super().offer(report, ran)

        evenkeel.registration.client.Client = Noting
        return
    rule = RULES[a.policy]

    class Local:
        """Decides as soon as a report is offered."""

        def __init__(self, connection, job, registration):
            self.rule = rule(a)
            self.newest, self.timed = self.rule.first, self.rule.first.deadline > 0

        def start(self):
            pass

        def wait(self, _):
            return self.newest

        def offer(self, report, ran):
            note(log, clock, report, ran)
            self.newest = self.rule.decide(report, ran)

        def close(self):
            pass

    evenkeel.registration.client.Client = Local


def note(log, clock, report, ran):
    done = [r["samples"] if r else 0 for r in report["ranks"]]
    log.append({"at": clock(), "wait": report["wait_seconds"], "samples": done, "seconds": [r["seconds"] if r else 0.0 for r in report["ranks"]], "shares": ran.shares,
                "deadline": ran.deadline, "plan": ran.number, "total": sum(done) + (log[-1]["total"] if log else 0)})  # fmt: skip


class Static:
    """The same sizes all the time."""

    def __init__(self, a):
        self.first = Plan(1, a.shares, micro(a, a.shares))

    def decide(self, report, ran):
        return self.first


def micro(a, shares):
    return [-(-s // a.steps) if s else 1 for s in shares]


class Uniform(Static):
    def __init__(self, a):
        ranks = len(a.paces)
        a.shares = [a.batch // ranks] * ranks
        super().__init__(a)


class Proportional:
    """Shares by the newest measured speeds."""

    def __init__(self, a):
        self.a = a
        self.first = Uniform(a).first

    def decide(self, report, ran):
        if any(r is None for r in report["ranks"]) or sum(r["samples"] for r in report["ranks"]) < self.a.batch:
            return ran
        speeds = [r["samples"] / r["seconds"] for r in report["ranks"]]
        shares = order.split(self.a.batch, [max(1, round(1e6 * s)) for s in speeds])
        shares = [max(1, s) for s in shares]
        return Plan(ran.number + 1, shares, micro(self.a, shares))


class Timed:
    """Deadline rounds with sizes that are right in the mean. The deadline moves so that the samples of a round meet the batch."""

    whole, reserve = False, 0.02

    def __init__(self, a):
        self.a = a
        m = micro(a, a.shares)
        self.step = [(a.alpha + a.beta * k) * p for k, p in zip(m, a.paces)]
        self.auto = deadline.Deadline({"deadline": {"seconds": max(s * (share / k) for s, share, k in zip(self.step, a.shares, m)), "auto": True}})
        self.first = self.plan(1, self.auto.seconds)

    def plan(self, number, seconds):
        return Plan(number, self.a.shares, micro(self.a, self.a.shares), seconds, self.reserve, self.whole, 0.0, [seconds] * len(self.step), self.step, [1] * len(self.step))

    def decide(self, report, ran):
        self.auto.observe(sum(r["samples"] for r in report["ranks"] if r), self.a.batch)
        return self.plan(ran.number + 1, self.auto.seconds)


class Expected(Timed):
    """hivemind's rule: whole micro-steps until all together are expected to have the batch, by moving averages of their rates (0.1 there). Deviations: the time
    is foreseen when the round opens, and moved so that the rounds' mean is the batch."""

    whole, GAIN = True, 0.1

    def __init__(self, a):
        super().__init__(a)
        self.rates = [k / s for k, s in zip(micro(a, a.shares), self.step)]
        self.auto = deadline.Deadline({"deadline": {"seconds": 1.0, "auto": True}})  # a factor

    def decide(self, report, ran):
        for k, r in enumerate(report["ranks"]):
            if r and r["seconds"] > 0:
                self.rates[k] += self.GAIN * (r["samples"] / r["seconds"] - self.rates[k])
        self.auto.observe(sum(r["samples"] for r in report["ranks"] if r), self.a.batch)
        return self.plan(ran.number + 1, self.auto.seconds * self.a.batch / sum(self.rates))


RULES = {"uniform": Uniform, "static": Static, "proportional": Proportional, "timed": Timed, "expected": Expected}


def split(a_alpha, beta, paces, batch):
    """Shares that end together on devices that take (alpha + beta b) times a pace."""
    low, high = 0.0, 1e6
    for _ in range(200):
        t = (low + high) / 2
        if sum(max(0.0, (t / p - a_alpha) / beta) for p in paces) < batch:
            low = t
        else:
            high = t
    wanted = [max(0.0, (high / p - a_alpha) / beta) for p in paces]
    return order.split(batch, [max(1, round(1e6 * w)) for w in wanted])
