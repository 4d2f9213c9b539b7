"""The golden vectors of docs/reference/forward-protocol.md, frame by frame, and each part of the way by itself."""

import copy
import dataclasses
import hashlib
import json
import os
import struct
import sys
import unittest

import torch

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))

from evenkeel import forward  # noqa: E402
from evenkeel.forward import header, philox, record, replica, step  # noqa: E402


def golden():
    with open(os.path.join(ROOT, "internal", "vectors", "forward-golden.json"), encoding="utf-8") as f:
        return json.load(f)


def made(run):
    """Parts that begin with what a golden run's header says."""
    h = header.parse(run["header"].encode())
    parts = []
    for i, t in enumerate(h.tensors):
        p = forward.Part(t.name, torch.zeros(t.shape))
        if h.initial == "file":  # entries of more bits than float32 has
            p.initial = lambda e=run["initial"][i], s=t.shift: torch.tensor(e).double() * 2.0 ** (s - 24)
        parts.append(p)
    return run["header"].encode(), parts


class Golden(unittest.TestCase):
    def test_philox(self):
        for v in golden()["parts"]["philox"]:
            got = philox.words(torch.tensor(v["counter"][0]), *v["counter"][1:], v["key"])
            self.assertEqual(got.tolist(), v["words"])
        # Random123's own vector of pi's digits.
        got = philox.words(torch.tensor(0x243F6A88), 0x85A308D3, 0x13198A2E, 0x03707344, 0x299F31D0A4093822)
        self.assertEqual([hex(x) for x in got.tolist()], ["0xd16cfe09", "0x94fdcceb", "0x5001e420", "0x24126ea1"])

    def test_examples(self):
        for v in golden()["parts"]["examples"]:
            r = replica.Replica.__new__(replica.Replica)
            r.config = forward.Config(processors=2 * len(v["sizes"]), key=v["key"], examples=v["sizes"], estimator="each" if v["shared"] else "pairs")
            r.header = header.Header(b"", r.config, [], "file", v["count"], "")
            r.step, r._examples = v["step"], {}
            for rank in (2 * v["pair"], 2 * v["pair"] + 1):
                self.assertEqual(torch.cat(r.batch(rank)).tolist(), v["examples"], v)

    def test_rates(self):
        for v in golden()["parts"]["rates"]:
            c = forward.Config(learning_rate=v["rate"], schedule=v["schedule"], steps=v["steps"])
            self.assertEqual([struct.pack(">d", step.rate(c, j)).hex() for j in range(v["steps"])], v["rates"])

    def runs(self):
        for run in golden()["runs"]:
            with self.subTest(run["name"]):
                raw, parts = made(run)
                yield run, lambda: replica.Replica(raw, parts)

    def follow(self, r, run, after=1):
        """Gives a replica the messages after a position, and compares its blocks and weights at the end."""
        blocks = run["blocks"][: r.step // 64]
        for i, m in enumerate(run["messages"]):
            kind, *_, rank = m["subject"].split(".")
            if i + 2 == run.get("fails"):
                self.assertRaises(OverflowError, r.put, int(rank), bytes.fromhex(m["data"]), i + 2)
                break
            if i + 2 > after and kind == "frame":
                out = r.put(int(rank), bytes.fromhex(m["data"]), i + 2)
                if isinstance(out, bytes):
                    blocks.append(out.hex())
        self.assertEqual(blocks, run["blocks"])
        self.assertTrue(r.over() or "fails" in run)
        self.assertEqual(r.hash(), run["weights"])

    def test_runs(self):
        for run, begin in self.runs():
            r = begin()
            for rank, want in enumerate(run["trials"]):
                r.weights.attempt(r.trial(rank))
                digest = hashlib.sha256(b"".join(r.weights.of(i).numpy().tobytes() for i in range(len(r.weights.tensors))))
                self.assertEqual(digest.hexdigest(), want)
            self.follow(r, run)
            for i, e in enumerate(run["entries"]):
                self.assertEqual(r.weights.of(i)[:8].tolist(), e)

    def test_runs_from_their_blocks_and_on_from_each(self):
        for run, begin in self.runs():
            r = begin()
            for k, b in enumerate(run["blocks"]):
                block = r.apply(bytes.fromhex(b))
                self.assertEqual(block.weights, r.weights.hash())
                if k == len(run["blocks"]) - 2:
                    joined = copy.copy(r)
                    joined.weights, joined.rounds, joined.running = copy.deepcopy((r.weights, r.rounds, r.running))
                    self.follow(joined, run, block.position)
            if run["blocks"]:
                self.assertEqual(r.hash(), run["weights"])

    def test_a_changed_byte_of_a_block_is_refused(self):
        run = golden()["runs"][0]
        raw, _ = made(run)
        good = bytes.fromhex(run["blocks"][0])
        config = header.parse(raw).config
        for at in range(0, len(good), 7):
            bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
            with self.assertRaises(forward.Refused):
                record.read(bad, record.start(raw)[-16:], 0, config)
            with self.assertRaises(forward.Refused):
                record.read_start(record.start(raw)[:at] + b"?" + record.start(raw)[at + 1 :])

    def test_a_block_that_no_rank_can_have_made_is_refused(self):
        run = golden()["runs"][1]
        raw, _ = made(run)
        config, before = header.parse(raw).config, record.start(raw)[-16:]
        good = record.read(bytes.fromhex(run["blocks"][0]), before, 0, config)

        def read(**fields):
            return record.read(record.write(dataclasses.replace(good, **fields), before), before, 0, config)

        def refused(says, **fields):
            with self.assertRaisesRegex(forward.Refused, says):
                read(**fields)

        def steps(**fields):
            return [*good.steps[:5], dataclasses.replace(good.steps[5], **fields), *good.steps[6:]]

        most = 1 << 25
        good.steps = steps(pairs=15, increments=[most, -most], late=[(3, 5, most), (2, 1, -most)])
        self.assertEqual(read(prompt=15, last=True).steps, good.steps)
        refused("it names pairs", prompt=16)
        refused("it names pairs", last=2)
        refused("63 steps", steps=good.steps[:63])
        refused("65 steps", steps=good.steps + good.steps[:1])
        refused("its number is 1", number=1)
        refused("5 late pairs", steps=steps(late=[(0, 1, 0)] * 5))
        for bad in ({"pairs": 16}, {"increments": [most + 1, 0]}, {"increments": [0, -most - 1]}, {"late": [(4, 1, 0)]}, {"late": [(0, 0, 0)]}, {"late": [(0, 6, 0)]}, {"late": [(0, 1, most + 1)]}):
            refused("step 5 is invalid", steps=steps(**bad))
        end = record.write(good, before)[-record._TAIL.size : -16]
        for body, says in ((b"\x80" * 10 + b"\0", "too long"), (b"\x80", "within a number"), (b"\0", "within a step")):
            block = struct.pack("<II", 0, len(body)) + body + end
            with self.assertRaisesRegex(forward.Refused, says):
                record.read(block + record.chain(before, block), before, 0, config)
            self.assertIsNone(record.length(block))
        with self.assertRaisesRegex(forward.Refused, "at most 1048576"):
            record.length(struct.pack("<II", 0, (1 << 20) + 1))
        self.assertIsNone(record.length(struct.pack("<II", 0, 1 << 20)))


if __name__ == "__main__":
    unittest.main()
