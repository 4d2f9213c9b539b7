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
    return '{"cases": [\n' + ",\n".join(json.dumps(c) for c in cases()) + "\n]}\n"


if __name__ == "__main__":
    print(text(), end="")
