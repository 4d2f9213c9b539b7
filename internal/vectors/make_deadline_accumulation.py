"""Writes internal/vectors/deadline-accumulation.json: rounds of the rank's side of the round rule, for clients in any language. The sizes come
from the rule's text, by trying every size; neither evenkeel.tuner.deadline nor the Go code is used.

    python3 internal/vectors/make_deadline_accumulation.py > internal/vectors/deadline-accumulation.json
"""

import json
import random


def cost(node, size):
    points = node.get("points")
    if not points:
        return float(size)
    if len(points) == 1 and points[0][0] == size:
        return points[0][1]
    for k, ((a, s), (b, t)) in enumerate(zip(points, points[1:])):
        if a <= size <= b or k == 0 and size < a:
            return s + (size - a) * (t - s) / (b - a)
    raise ValueError("a size that was not measured")


def taken(node, most):
    """All micro-batches up to most."""
    return [b for b in range(1, min(most, node["limit"]) + 1) if (b in node["shapes"] if node.get("shapes") else b >= node.get("least", 1))]


def play(name, node, order, rng, paces, stall=None):
    """A round in which each micro-step takes cost x pace seconds, and before step stall[0] nothing happens for stall[1].
    None where a decision is too close to call: another language may round to the other side."""
    steps, samples, spent, done, elapsed, last = [], 0, 0.0, 0.0, 0.0, False
    share, deadline, whole = order["share"], order.get("deadline", 0), order.get("whole", False)
    while True:
        if stall and len(steps) == stall[0]:
            elapsed += stall[1]
        size = 0
        if share > 0 and not last and deadline == 0:
            size = max(taken(node, share - samples), default=0)
        elif share > 0 and not last:
            pace = spent / done if done else order["pace"]
            fits = (deadline - elapsed) * (1 - order.get("reserve", 0)) / pace
            full = max(taken(node, node["limit"]))
            if whole:
                full = min(full, share)
            if rng and any(abs(cost(node, b) - fits) < 1e-6 * abs(fits) for b in taken(node, full)):
                return None
            if cost(node, full) <= fits:
                size = full
            else:
                last = True
                if not whole:
                    size = max((b for b in taken(node, full) if cost(node, b) <= fits), default=0)
                if size == 0 and samples == 0:
                    size = full if whole else min(taken(node, node["limit"]))
        step = {"elapsed": elapsed, "size": size}
        steps.append(step)
        if size == 0:
            return {"name": name, "node": node, "order": order, "steps": steps, "samples": samples, "micro_steps": len(steps) - 1}
        step["seconds"] = cost(node, size) * paces(len(steps) - 1)
        elapsed += step["seconds"]
        spent += step["seconds"]
        done += cost(node, size)
        samples += size


def packed(node, costs, bound, first=0):
    """Places of the samples that go into a bound, one after the other; the first ones in any case."""
    places = []
    for k in range(len(costs)):
        if len(places) < first or sum(costs[p] for p in places) + costs[k] <= bound:
            places.append(k)
    return places


def play_costs(name, node, order, costs, look, paces):
    """A round whose samples do not cost the same: look of them are looked at. None where a decision is too close to call."""
    steps, front, elapsed, spent, done, work, samples, last = [], list(costs), 0.0, 0.0, 0.0, 0.0, 0, False
    deadline, whole, full, least = order.get("deadline", 0), order.get("whole", False), max(taken(node, node["limit"])), min(taken(node, node["limit"]))
    while True:
        window, places = front[:look], []
        total = lambda p: sum(window[k] for k in p)
        left = float("inf") if deadline else order["share"] - work
        bound = min(full, order["share"]) if deadline and whole else full
        go = order["share"] > 0 and not last and window and (samples == 0 or min(window) / 2 < left)
        if go:
            long = samples > 0 and bound < window[0] < 2 * left
            places = packed(node, window, min(bound, left), min(least, len(window)) if samples == 0 else int(long))
            if left <= bound:
                rest = left - total(places)
                more = [c for k, c in enumerate(window) if k not in places]
                if more and min(more) / 2 < rest and total(places) + min(more) <= bound:
                    places = sorted(places + [next(k for k, c in enumerate(window) if k not in places and c == min(more))])
                if any(abs(c / 2 - rest) < 1e-6 for c in more):
                    return None
            if deadline:
                fits = (deadline - elapsed) * (1 - order.get("reserve", 0)) / (spent / done if done else order["pace"])
                if any(abs(cost(node, total(places[:k])) - fits) < 1e-6 for k in range(1, len(places) + 1)):
                    return None
                if cost(node, total(places)) > fits:
                    last = True
                    if whole:
                        places = places if samples == 0 else []
                    else:
                        places = []
                        for k, c in enumerate(window):
                            if total(places) + c <= full and cost(node, total(places) + c) <= fits:
                                places.append(k)
            allowed = taken(node, len(window)) if node.get("shapes") else range(node.get("least", 1), len(window) + 1)
            cut = lambda p: p[:max((n for n in allowed if n <= len(p)), default=0)]
            places = cut(places)
            if not places and samples == 0:
                places = cut(list(range(min(least, len(window)))))
        step = {"elapsed": elapsed, "costs": window, "places": places}
        steps.append(step)
        if not places:
            return {"name": name, "node": node, "order": order, "steps": steps, "samples": samples, "micro_steps": len(steps) - 1, "work": work}
        step["cost"] = total(places)
        step["seconds"] = cost(node, step["cost"]) * paces(len(steps) - 1)
        elapsed += step["seconds"]
        spent += step["seconds"]
        done += cost(node, step["cost"])
        work += step["cost"]
        samples += len(places)
        front = [c for k, c in enumerate(front) if k not in places]


def cost_cases():
    """Samples that do not cost the same."""
    rng, kept = random.Random(22), 0
    while kept < 60:
        node = {"limit": rng.randint(2, 12)}
        if rng.random() < 0.15:
            node["shapes"] = sorted(rng.sample(range(1, node["limit"] + 1), 2))
        elif rng.random() < 0.2:
            node["least"] = rng.randint(1, 2)
        if rng.random() < 0.5:  # an overhead, the same slope everywhere; far beyond the longest sample
            node["points"] = [[1, 0.3], [201, 20.3]]
        order = {"share": node["limit"] * rng.randint(1, 5), "pace": round(rng.uniform(0.5, 2), 4)}
        if node.get("shapes"):
            order["share"] = max(node["shapes"]) * rng.randint(1, 5)
        if rng.random() < 0.6:
            order["deadline"] = round(rng.uniform(0.3, 5) * cost(node, node["limit"]), 4)
            order["reserve"] = rng.choice([0, 0.02, 0.2])
            order["whole"] = rng.random() < 0.2
        costs = [round(rng.lognormvariate(-0.3, 0.8), 5) + 1e-7 for _ in range(150)]
        if rng.random() < 0.1:
            costs = costs[:rng.randint(1, 12)]
        true = rng.uniform(0.4, 2.5)
        paces = [true * rng.uniform(0.8, 1.3) for _ in range(400)]
        case = play_costs(f"costs {kept}", node, order, costs, rng.randint(5, 30), lambda k: paces[k])
        if case and len(case["steps"]) < 12:
            kept += 1
            yield case


def cases():
    four = {"limit": 4}
    twenty = {"share": 20, "deadline": 20.0, "pace": 1.0}
    yield play("as believed", four, twenty, None, lambda k: 1)
    yield play("half as fast", four, twenty, None, lambda k: 2)
    yield play("twice as fast: beyond the share", four, twenty, None, lambda k: 0.5)
    yield play("so slow that one step is too late", four, twenty, None, lambda k: 30)
    yield play("the belief too slow: the least is done, and tells the pace", four, dict(twenty, pace=30.0), None, lambda k: 1)
    yield play("whole steps", four, dict(twenty, whole=True), None, lambda k: 1.25)
    yield play("whole steps of a share below a full one", four, dict(twenty, whole=True, share=3), None, lambda k: 4)
    yield play("whole: one step although it is too late", four, dict(twenty, whole=True, pace=30.0), None, lambda k: 30)
    yield play("a share, no deadline", four, {"share": 22, "pace": 1.0}, None, lambda k: 5)
    yield play("no share", four, {"share": 0, "deadline": 20.0, "pace": 1.0}, None, lambda k: 1)
    yield play("a reserve", four, dict(twenty, reserve=0.5), None, lambda k: 1)
    yield play("a list of shapes", {"limit": 9, "shapes": [1, 2, 4, 8, 16]}, twenty, None, lambda k: 1)
    yield play("a share of shapes", {"limit": 9, "shapes": [1, 2, 4, 8, 16]}, {"share": 20, "pace": 1.0}, None, lambda k: 1)
    yield play("what is left is below the least", {"limit": 8, "least": 3}, twenty, None, lambda k: 1.125)
    yield play("nothing left after a stall", four, twenty, None, lambda k: 1, (2, 100.0))
    rng = random.Random(21)
    kept = 0
    while kept < 60:
        node = {"limit": rng.randint(1, 24)}
        if rng.random() < 0.3:
            node["shapes"] = sorted(rng.sample(range(1, node["limit"] + 1), rng.randint(1, min(5, node["limit"]))))
        elif rng.random() < 0.3:
            node["least"] = rng.randint(1, node["limit"])
        if rng.random() < 0.6:  # a curve: an overhead, rising with bends
            at, seconds, node["points"] = 1, rng.uniform(0.1, 0.5), []
            while not node["points"] or node["points"][-1][0] < node["limit"]:
                node["points"].append([at, round(seconds, 6)])
                step = rng.randint(1, 9)
                at, seconds = at + step, seconds + step * rng.uniform(0.02, 0.2)
        sizes = taken(node, node["limit"])
        share = max(sizes) * rng.randint(0, 6) + rng.choice(sizes)
        if rng.random() < 0.2:
            share = rng.choice(sizes)
        order = {"share": share, "pace": round(rng.uniform(0.5, 2), 4)}
        if rng.random() < 0.9:
            order["deadline"] = round(rng.uniform(0.2, 6) * cost(node, max(sizes)), 4)
            order["reserve"] = rng.choice([0, 0.02, 0.2])
            order["whole"] = rng.random() < 0.25
        true = rng.uniform(0.4, 2.5)
        paces = [true * rng.uniform(0.8, 1.3) for _ in range(400)]
        stall = (rng.randint(0, 3), round(rng.uniform(0, 3), 3)) if rng.random() < 0.3 else None
        case = play(f"drawn {kept}", node, order, rng, lambda k: paces[k], stall)
        if case and len(case["steps"]) < 40:
            kept += 1
            yield case


def text():
    return '{"cases": [\n' + ",\n".join(json.dumps(c) for c in cases()) + "\n], \"costs\": [\n" + ",\n".join(json.dumps(c) for c in cost_cases()) + "\n]}\n"


if __name__ == "__main__":
    print(text(), end="")
