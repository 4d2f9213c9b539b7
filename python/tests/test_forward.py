"""Forward-only training of torch models in one process: formulas by hand, what may be trained, and input that does not fit."""

import json
import math
import os
import sys
import tempfile
import unittest

import peft
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from evenkeel import forward  # noqa: E402
from evenkeel.forward import philox, rounds, step, weights  # noqa: E402


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(10, 30), torch.nn.Tanh(), torch.nn.Linear(30, 3)).to(dtype).eval()


torch.manual_seed(1)
X = torch.randn(300, 10)
Y = (X[:, :3] + 0.3 * torch.randn(300, 3)).argmax(1)


def entropy(m):
    dtype = next(p.dtype for n, p in m.named_parameters() if "lora" not in n)
    return lambda batch: F.cross_entropy(m(X[batch].to(dtype)).float(), Y[batch])


def config(**fields):
    return forward.Config(**{"processors": 4, "steps": 130, "key": 3, "learning_rate": 0.02, **fields})


def adapted(m, targets, rank=2, alpha=4, **fields):
    """The model with PEFT's adapters, ready to train."""
    torch.manual_seed(2)
    return peft.get_peft_model(m, peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, **fields)).eval()


def train(parts, loss, log=None, at_once=1, **fields):
    raw = forward.prepare(config(**fields), len(X), parts)
    return forward.train(raw, parts, loss, log, at_once=at_once), raw


def taken(pair, plus, minus, age=0):
    return step.Taken(pair, age, plus, minus)


class Formulas(unittest.TestCase):
    """Numbers worked out with pencil and paper, from the page."""

    def plain(self, **fields):
        fields = {"processors": 4, "directions": 2, "steps": 10, "epsilon": 0.5, "learning_rate": 0.25, "schedule": "constant", "examples": [1, 3], "clip": 0.0, "guard": False, "estimator": "pairs", **fields}
        return forward.Config(key=0, **fields)

    def test_what_is_chosen_where_nothing_is_said(self):
        for fields, estimator, directions in (({}, "each", 8), ({"examples": [3, 3, 3, 3]}, "each", 8), ({"examples": [3, 3, 3, 4]}, "pairs", 4), ({"directions": 2}, "pairs", 2), ({"estimator": "pairs"}, "pairs", 4), ({"examples": 20}, "each", 8)):
            c = forward.Config(processors=8, **fields).complete(4096)  # 4096^(1/4) = 8
            self.assertEqual((c.estimator, c.directions, c.learning_rate), (estimator, directions, math.sqrt(directions) / 64 * min(1, c.examples[0] / 8) ** 0.75), fields)

    def test_half_difference_weighted_by_examples(self):
        # D = ((3 - 1) + (2 - 1)) / 4 = 3/4; V = 9/16, x = 1; S = 1 * 1; W = sqrt(4 * 1); f = 0.25 / 2 = 1/8; -1/8 in units of 2^-24
        s = step.increments(self.plain(), step.Running(), 0, [taken(0, (3.0, 2.0), (1.0, 1.0))])
        self.assertEqual((s.pairs, s.increments, s.late), (1, [-1 << 21, 0], []))
        self.assertEqual(s.loss, 7 / 4)
        # with the second pair W = 4, f = 1/16: D = 1 and -1, x = 1 and -1, S = 1 and 3 * -1, -S f = -1/16 and 3/16
        s = step.increments(self.plain(), step.Running(), 0, [taken(0, (3.0, 3.0), (1.0, 1.0)), taken(1, (0.0, 0.0), (2.0, 2.0))])
        self.assertEqual((s.pairs, s.increments), (3, [-1 << 20, 3 << 20]))

    def test_one_direction_takes_the_sum_of_its_pairs(self):
        s = step.increments(self.plain(directions=1), step.Running(), 0, [taken(0, (3.0, 3.0), (1.0, 1.0)), taken(1, (0.0, 0.0), (2.0, 2.0))])
        self.assertEqual(s.increments, [2 << 20])

    def test_running_mean_square(self):
        c, r = self.plain(), step.Running()
        step.increments(c, r, 0, [taken(0, (4.0, 4.0), (0.0, 0.0)), taken(1, (0.0, 0.0), (2.0, 2.0))])
        self.assertEqual(r.square, (4 + 1) / 2)  # D = 2 and -1
        s = step.increments(c, r, 1, [taken(0, (4.0, 4.0), (0.0, 0.0))])
        self.assertEqual(r.square, 2.5 + (4 - 2.5) / 2)
        self.assertEqual(s.increments[0], round(-(2 / math.sqrt(3.25)) / 8 * 2**24))
        r.square = 1.0
        step.increments(c, r, 100, [taken(0, (4.0, 4.0), (0.0, 0.0))])
        self.assertEqual(r.square, 1 + 3 / 32)

    def test_a_spike_is_left_out(self):
        for estimator, directions in (("pairs", 2), ("each", 4)):
            c = self.plain(estimator=estimator, directions=directions, examples=[2, 2], clip=3.0)
            for value in (60.0, 1e6, 1e30):
                r = step.Running(square=0.25)
                pair = taken(0, (2.0, 2.0), (1.0, 1.0))
                s = step.increments(c, r, 40, [pair, taken(1, (1.0, value), (1.0, 1.0))])
                self.assertEqual((s.pairs, s.left_out, s.loss), (1, (1,), 1.5))
                self.assertEqual(r.square, 0.25 + ((2 / 4 + 4 / 4) / 4 - 1 / 4) / 32)  # a half of a spike counts as 2/4
                only = step.increments(c, r, 41, [taken(1, (1.0, value), (1.0, 1.0))])  # the scale follows if it is so in every step
                self.assertEqual((only.pairs, only.left_out, only.loss, any(only.increments)), (0, (1,), None, False))
                # in the first step nothing tells a spike, but the second does
                r = step.Running()
                step.increments(c, r, 0, [pair, taken(1, (1.0, value), (1.0, 1.0))])
                step.increments(c, r, 1, [pair, taken(1, (1.0, 1.0), (2.0, 2.0))])
                self.assertEqual(r.square, 0.25 * 17 / 2)

    def test_flat_losses_do_not_divide_by_zero(self):
        s = step.increments(self.plain(), step.Running(), 0, [taken(0, (1.0, 1.0), (1.0, 1.0))])
        self.assertEqual(s.increments, [0, 0])
        # A difference of 2^-22 (squared 6e-14) is divided by sqrt(1e-13), not by itself; pair 0 alone has weight 1 of sqrt(1 x 4).
        c = self.plain(examples=[1, 3])
        s = step.increments(c, step.Running(), 0, [taken(0, (2.0**-22, 2.0**-22), (-(2.0**-22), -(2.0**-22)))])
        self.assertEqual(s.increments[0], -round(2.0**-22 / math.sqrt(1e-13) * 0.25 / 2 * 2**24))

    def test_clip_and_bound(self):
        s = step.increments(self.plain(clip=0.5), step.Running(), 0, [taken(0, (9.0, 9.0), (0.0, 0.0))])
        self.assertEqual(s.increments[0], -(1 << 20))
        far = [taken(0, (1e30, 1e30), (0.0, 0.0))]
        self.assertEqual(step.increments(self.plain(learning_rate=100.0), step.Running(), 0, far).increments[0], -(1 << 23))

    def test_late_pairs_go_by_themselves(self):
        k = 1 << 20
        s = step.increments(self.plain(), step.Running(square=1.0), 5, [taken(0, (3.0, 3.0), (1.0, 1.0), age=2), taken(1, (0.0, 0.0), (2.0, 2.0))])
        self.assertEqual(sorted(step.amounts(self.plain(), s, 5)), [(0, 3, -k // 2), (0, 3, -k // 2), (1, 5, 3 * k)])
        self.assertEqual((s.pairs, s.increments, s.late), (2, [0, 3 * k], [(0, 2, -k // 2)]))

    def test_a_direction_for_each_rank(self):
        c = self.plain(estimator="each", directions=4, examples=[2, 2])
        self.assertEqual([c.direction(r) for r in range(4)], [0, 1, 2, 3])
        r = step.Running()
        # L = 1, 2, 3, 6; mean 3; D = -2, -1, 0, 3; V = 14/4; W = 8; f = 1/32; S = 2 x
        s = step.increments(c, r, 0, [taken(0, (1.0, 1.0), (1.0, 3.0)), taken(1, (3.0, 3.0), (5.0, 7.0))])
        self.assertEqual(r.square, 3.5)
        root = math.sqrt(3.5)
        self.assertEqual(s.increments, [round(-2 * (d / root) / 32 * 2**24) for d in (-2, -1, 0, 3)])
        self.assertEqual((s.pairs, s.late, s.loss), (3, [], 3.0))
        # A late pair goes by its own half difference, one increment for both its directions, and does not feed the mean.
        r = step.Running(square=4.0)
        s = step.increments(c, r, 40, [taken(0, (1.0, 1.0), (3.0, 3.0), age=2), taken(1, (3.0, 3.0), (5.0, 5.0))])
        self.assertEqual(r.square, 4 + (1 - 4) / 32)
        k = round(2 * (1 / math.sqrt(r.square)) / 32 * 2**24)
        self.assertEqual((s.pairs, s.late, s.increments), (2, [(0, 2, k)], [0, 0, k, -k]))
        self.assertEqual(step.amounts(c, s, 40), [(2, 40, k), (3, 40, -k), (0, 38, k), (1, 38, -k)])
        r = step.Running(square=4.0)
        step.increments(c, r, 40, [taken(0, (1.0, 1.0), (3.0, 3.0), age=2)])
        self.assertEqual(r.square, 4 + (1 - 4) / 32)
        far = step.increments(self.plain(estimator="each", directions=4, examples=[2, 2], learning_rate=100.0), step.Running(), 0, [taken(0, (1e30, 1e30), (0.0, 0.0))])
        self.assertEqual(far.increments, [-(1 << 23), 1 << 23, 0, 0])

    def test_guard_halves_after_a_block_clearly_worse(self):
        r = step.Running()
        self.assertEqual(step.guard(r, [1.0, 3.0], True), 2.0)
        self.assertEqual((r.best, r.best_error, r.scale), (2.0, 0.5, 1.0))
        step.guard(r, [4.5, 4.5], True)  # 2.5 above
        self.assertEqual((r.best, r.scale), (2.0, 1.0))
        step.guard(r, [5.0, 5.0], True)  # 3 above, 4 sqrt(0.5) = 2.83
        self.assertEqual((r.best, r.best_error, r.scale), (5.0, 0.0, 0.5))
        step.guard(r, [4.0, 4.0], True)
        self.assertEqual((r.best, r.scale), (4.0, 0.5))
        step.guard(r, [4.0, 6.0], True)  # 1 above, 4 sqrt(0.5)
        self.assertEqual((r.best, r.scale), (4.0, 0.5))

    def test_schedules(self):
        for u, want in ((0, 1.0), (0.25, 0.5 * (1 + math.sqrt(0.5))), (0.5, 0.5), (0.75, 0.5 * (1 - math.sqrt(0.5)))):
            self.assertAlmostEqual(step.rate(self.plain(schedule="cosine", steps=100), int(100 * u)), 0.25 * want, 15)


class Rounds(unittest.TestCase):
    def put(self, r, step_, rank, losses=(1.0, 2.0), kind=rounds.LOSSES, sender=None):
        return r.put(rank if sender is None else sender, step_, rank, kind, losses)

    def begun(self, processors=4):
        r = rounds.Rounds(processors, 1000)
        r.begin(0)
        return r

    def test_a_step_waits_for_all_prompt_pairs(self):
        r = self.begun()
        self.assertEqual([self.put(r, 0, k) for k in (0, 3, 2)], [None] * 3)
        self.assertEqual([t.pair for t in self.put(r, 0, 1)], [0, 1])

    def test_go_on_needs_a_whole_pair_and_this_step(self):
        r = self.begun()
        self.assertIs(self.put(r, 0, 0, kind=rounds.GO_ON), False)
        self.put(r, 0, 0), self.put(r, 0, 1)
        self.assertIs(self.put(r, 1, 2, kind=rounds.GO_ON), False)
        self.assertEqual([t.pair for t in self.put(r, 0, 2, kind=rounds.GO_ON)], [0])
        self.assertEqual(r.prompt, [True, False])

    def test_a_slow_pair_counts_with_its_age_and_is_not_waited_for(self):
        r = self.begun()
        self.put(r, 0, 0), self.put(r, 0, 1)
        self.put(r, 0, 0, kind=rounds.GO_ON)
        for s in (1, 2):
            r.begin(s)
            self.assertIsNone(self.put(r, s, 0))
            if s == 2:
                self.assertIsNone(self.put(r, 0, 2))
                self.assertIsNone(self.put(r, 0, 3))  # pair 0 is prompt, and not yet whole
            took = self.put(r, s, 1)
        self.assertEqual([(t.pair, t.age) for t in took], [(0, 0), (1, 2)])
        self.assertEqual(r.prompt, [True, False])
        r.begin(3)
        self.assertEqual(r.due(2), 3)

    def test_an_age_of_one_is_prompt_again(self):
        r = self.begun()
        self.put(r, 0, 0), self.put(r, 0, 1), self.put(r, 0, 0, kind=rounds.GO_ON)
        r.begin(1)
        self.put(r, 0, 2), self.put(r, 1, 0), self.put(r, 0, 3)
        took = self.put(r, 1, 1)
        self.assertEqual(([(t.pair, t.age) for t in took], r.prompt), ([(0, 0), (1, 1)], [True, True]))

    def test_a_block_begins_anew(self):
        r = self.begun()
        self.put(r, 0, 2)
        r.begin(64)
        self.assertEqual((r.due(2), r.due(3)), (64, 64))
        self.assertIs(self.put(r, 0, 3), False)

    def test_who_asks_to_stop_is_heard_on_his_own_subject(self):
        r = self.begun()
        self.assertIs(self.put(r, 0, 1, sender=0, kind=rounds.STOP), False)
        self.assertFalse(r.stop)
        for _ in range(2):
            self.assertIsNone(self.put(r, 700, 1, kind=rounds.STOP))
            self.assertTrue(r.stop)
        self.assertEqual([self.put(r, 0, k) for k in (0, 3, 2)], [None] * 3)
        r.begin(1)
        self.assertTrue(r.stop)

    def test_what_does_not_count(self):
        r = self.begun()
        self.put(r, 0, 0)
        self.assertIs(self.put(r, 0, 0), False, "twice")
        self.assertIs(self.put(r, 0, 1, sender=0), False, "on another's subject")
        self.assertIs(self.put(r, 0, 4), False, "no such rank")
        self.assertIs(self.put(r, 1, 1), False, "another step")
        for bad in (b"", b"\0" * 15, b"\0" * 17, rounds.frame(0, 1, 4), rounds.frame(0, 1, 0), rounds.frame(0, 1, 2, (1.0, 0.0)), rounds.frame(0, 1, 3, (0.0, 1.0))):
            self.assertIsNone(rounds.read_frame(bad))
        self.assertEqual(rounds.read_frame(rounds.frame(5, 1, 1, (1e300, -1e300)))[3], (math.inf, -math.inf))


def sign(key, d, step, tensor, entry, ring):
    """A direction's entry, from the page."""

    def word(i, tensor, d):
        return philox.words(torch.tensor(i // 4), tensor, d, step, key).tolist()[i % 4]

    def s(i, tensor, d):
        return 1 - 2 * (word(i // 32, tensor, d) >> i % 32 & 1)

    row = entry // 128
    begin = word(row // 2, tensor, 1) >> 16 * (row % 2) & 0xFFFF
    return s(entry, tensor, 0) * s((begin + entry % 128) % ring, 2**32 - 1, d)


class Directions(unittest.TestCase):
    def test_signs_are_the_bits_of_the_block(self):
        words = philox.words(torch.tensor([0, 2]), torch.tensor([3, 1]), 6, 7, 9 << 32 | 5)
        for row, z in enumerate(philox.signs(words).tolist()):
            self.assertEqual(z, [1 - 2 * (int(words[i // 32, row]) >> i % 32 & 1) for i in range(128)])

    def test_tiles_of_a_large_tensor_are_the_small_ones(self):
        p = [forward.Part("a", torch.randn(700)), forward.Part("b", 300 * torch.randn(300))]
        t = weights.describe(p)
        self.assertNotEqual(t[0].shift, t[1].shift)
        one, two = (weights.Weights(p, t, 3, 2) for _ in range(2))
        one.start("file"), two.start("file")
        moves = [(0, 5, 123456), (1, 5, -99), (1, 2, 7777)]
        one.move(moves)
        drawn, rows = weights._DRAWN, weights._ROWS
        weights._DRAWN, weights._ROWS = 3, 3
        try:
            two.move(moves)
        finally:
            weights._DRAWN, weights._ROWS = drawn, rows
        self.assertEqual(one.hash(), two.hash())
        for i, name in enumerate("ab"):  # entry by entry
            s = t[i].shift
            for e in (0, 127, 128, 299):
                want = round(float(p[i].parameter[e]) * 2**24)
                want = want if s == 0 else (want + (1 << (s - 1))) >> s
                for d, j, n in moves:
                    want += sign(3, d, j, i, e, 1024) * (n if s == 0 else (n + (1 << (s - 1))) >> s)
                self.assertEqual(int(one.of(i)[e]), want)

    def test_a_tensor_of_large_values(self):
        values = torch.tensor([1000.0, 2.0**-18, 2.0**-19, -(2.0**-18), 0.3])
        p = forward.Part("a", values.clone())
        t = weights.describe([p])
        self.assertEqual(t[0].shift, 6)  # 2^(6 + 6) is the first power of two above 4000
        w = weights.Weights([p], t, 3, 1)
        w.start("file")
        # in units of 2^-18, halves up: 2^-18 is one, 2^-19 a half
        self.assertEqual(w.of(0).tolist(), [1000 << 18, 1, 1, -1, round(0.3 * 2**18)])
        w.move([(0, 0, 96)])  # 96 / 64 = 1.5 is two of these units
        self.assertEqual((w.of(0) - torch.tensor([1000 << 18, 1, 1, -1, round(0.3 * 2**18)])).tolist(), [2 * sign(3, 0, 0, 0, e, 128) for e in range(5)])
        w.write()
        self.assertEqual(p.parameter.tolist(), (w.of(0).double() / 2**18).float().tolist())
        ((_, value),) = w.values()
        self.assertTrue(torch.equal(value, p.parameter))


class Training(unittest.TestCase):
    def test_learns_and_the_log_gives_the_same_weights(self):
        for fields in ({}, {"directions": 1, "examples": [8, 16]}, {"estimator": "pairs"}):
            m = model()
            before = float(entropy(m)(torch.arange(300)))
            with tempfile.TemporaryDirectory() as d:
                path = os.path.join(d, "run.log")
                r, _ = train(forward.trained(m), entropy(m), path, **fields)
                self.assertLess(float(entropy(m)(torch.arange(300))), 0.9 * before)
                again = model()
                self.assertEqual(forward.replay(path, forward.trained(again)).hash(), r.hash())
                for a, b in zip(m.parameters(), again.parameters()):
                    self.assertTrue(torch.equal(a, b))
                os.truncate(path, os.path.getsize(path) - 1)  # good up to the block before
                self.assertEqual(forward.replay(path, forward.trained(model())).step, 128)

    def test_stops_when_validation_has_not_fallen(self):
        def run(after, log=None, **fields):
            m = model()
            raw = forward.prepare(forward.Config(processors=2, key=3, **fields), 300, forward.trained(m))
            return forward.train(raw, forward.trained(m), entropy(m), log, after)

        given = iter([5.0, 3.0, 4.0, float("nan"), 3.0, 3.5, 1.0])
        v = forward.Validation(lambda: next(given), stop_after=192)
        self.assertIsNone(v.best)
        whole, blocks = model(), []
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "run.log")
            r = run(v, path, steps=1000)
            self.assertEqual((r.step, v.best), (384, (128, 3.0)))  # 128 + 192, and the block after that
            self.assertEqual([s for s, _ in v.losses], [64, 128, 192, 256, 320, 384])
            run(lambda r: blocks.append(r.hash()), steps=1000)
            self.assertEqual(r.hash(), blocks[5])  # as after as many steps of the whole run
            again = forward.replay(path, forward.trained(model()))
            self.assertEqual((again.step, again.over(), again.hash()), (384, True, r.hash()))
            self.assertEqual(forward.replay(path, forward.trained(whole), steps=128).hash(), blocks[1])
            for steps, says in ((100, "multiple of 64"), (448, "ends after step 384")):
                with self.assertRaisesRegex(forward.Refused, says):
                    forward.replay(path, forward.trained(model()), steps=steps)
        r = run(forward.Validation(lambda: 1.0), steps=130)  # without a limit it only looks
        self.assertEqual(r.step, 130)
        r = run(forward.Validation(lambda: float("nan"), stop_after=64), steps=1000)
        self.assertEqual(r.step, 128)

    def test_a_trial_leaves_no_trace(self):
        m = model()
        _, raw = train(forward.trained(m), entropy(m), steps=1)
        m = model()
        r = forward.Replica(raw, forward.trained(m))
        was = r.hash()
        r.losses([3, 1, 2], entropy(m))
        self.assertEqual(r.hash(), was)
        r.losses([0], entropy(m))
        r.weights.write()
        for a, b in zip(m.parameters(), model().parameters()):
            self.assertLessEqual(float((a - b).abs().max()), 2**-25)

    def test_adapters(self):
        m = adapted(model(), ["2"])
        parts = forward.trained(m)
        self.assertEqual([(p.name, p.shape) for p in parts], [(f"base_model.model.2.lora_{k}.default.weight", s) for k, s in (("A", [2, 30]), ("B", [3, 2]))])
        before = float(entropy(m)(torch.arange(300)))
        r, _ = train(parts, entropy(m), learning_rate=0.03)
        after = float(entropy(m)(torch.arange(300)))
        self.assertLess(after, 0.9 * before)
        plain = model()
        plain[2].weight.data += 4 / 2 * parts[1].parameter.detach() @ parts[0].parameter.detach()
        self.assertAlmostEqual(float(entropy(plain)(torch.arange(300))), after, 5)
        with tempfile.TemporaryDirectory() as d:  # out, and in again to go on
            m.save_pretrained(d)
            again = peft.PeftModel.from_pretrained(model(), d, is_trainable=True).eval()
            self.assertEqual(float(entropy(again)(torch.arange(300))), after)
            more, _ = train(forward.trained(again), entropy(again), learning_rate=0.03, key=4)
            self.assertLess(float(entropy(again)(torch.arange(300))), after)

    def test_ranks_and_alphas_by_name(self):
        m = torch.nn.Sequential(model(), torch.nn.Linear(3, 3)).eval()
        plain = {n: p.detach().clone() for n, p in m.named_parameters()}
        m = adapted(m, r"0\.0|0\.2|1", rank_pattern={"0.2": 5}, alpha_pattern={"1": 64})
        parts = forward.trained(m)
        self.assertEqual([p.shape[0] for p in parts[::2]], [2, 5, 2])
        train(parts, entropy(m), steps=64)
        base = torch.nn.Sequential(model(), torch.nn.Linear(3, 3)).eval()
        base.load_state_dict(plain)
        with tempfile.TemporaryDirectory() as d:
            m.save_pretrained(d)
            self.assertTrue(torch.equal(peft.PeftModel.from_pretrained(base, d).eval()(X), m(X)))

    def test_attention_of_torch(self):
        # In evaluation mode torch has a fast path that reads the weights of linear1 and passes an adapter by.
        torch.manual_seed(3)
        layer, x = torch.nn.TransformerEncoderLayer(10, 2, 16, batch_first=True), X[:, None] * torch.ones(1, 2, 1)
        for targets in (["linear1", "linear2"], ["self_attn"]):
            m = adapted(torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(10, 3)).eval(), targets)
            for p in forward.trained(m):
                p.parameter.data.normal_()

            def loss(batch):
                return F.cross_entropy(m(x[batch]).mean(1), Y[batch])

            r = forward.Replica(forward.prepare(config(), 300, forward.trained(m)), forward.trained(m))
            if targets == ["self_attn"]:  # PEFT adds these to the frozen weights in every pass, and takes them back inexactly
                with self.assertRaisesRegex(forward.Refused, "does not train have changed"):
                    r.losses([0], loss)
                continue
            one, together = [r.losses([k], loss)[0] for k in range(4)], r.losses([0, 1, 2, 3], loss)
            self.assertEqual(len({a for a, _ in one}), 4, "trials change nothing")
            self.assertTrue(torch.allclose(torch.tensor(one), torch.tensor(together), atol=1e-5))

    def test_one_pass_for_all_ranks_and_both_inputs(self):
        m = adapted(model(), ["0", "2"])
        for fields in ({}, {"estimator": "pairs", "examples": [3, 5]}):
            r = forward.Replica(forward.prepare(config(**fields), 300, forward.trained(m)), forward.trained(m))
            calls = []

            def single(batch):
                calls.append(len(batch))
                return F.cross_entropy(m(X[batch]), Y[batch], reduction="none")

            want = [r.losses([k], entropy(m))[0] for k in range(4)]
            r._means = False
            one = [r.losses([k], single)[0] for k in range(4)]
            self.assertEqual(len(calls), 4)
            r._means = False
            calls.clear()
            together = r.losses([0, 1, 2, 3], single)
            self.assertEqual(len(calls), 1 if not fields else 2)
            self.assertTrue(torch.allclose(torch.tensor([want, want]), torch.tensor([one, together]), atol=1e-6))
            ends, begun = [], {n: t.clone() for n, t in m.state_dict().items()}
            for k in (1, 4):
                m.load_state_dict(begun)
                ends.append(train(forward.trained(m), single, at_once=k, steps=3, **fields)[0].weights.entries)
            m.load_state_dict(begun)
            self.assertLess(float((ends[0] - ends[1]).abs().max()), 2**24 / 500)

    def test_adapters_over_a_base_in_bfloat16(self):
        m = adapted(model(torch.bfloat16), ["0", "2"])
        parts = forward.trained(m)
        r, _ = train(parts, entropy(m), steps=64)
        self.assertEqual({p.parameter.dtype for p in parts}, {torch.float32})
        self.assertTrue(r.over())

    def test_differences_over_bfloat16(self):
        m = model(torch.bfloat16)
        before = float(entropy(m)(torch.arange(300)))
        r, _ = train(forward.trained(m), entropy(m))
        self.assertLess(float(entropy(m)(torch.arange(300))), 0.9 * before)
        for i, (p, base) in enumerate(zip(m.parameters(), model(torch.bfloat16).parameters())):
            delta = (r.weights.of(i).float() / 2**24).reshape(p.shape)
            self.assertTrue(torch.equal(p, (base.float() + delta).bfloat16()))

    def test_an_objective_without_a_gradient(self):
        m = model()

        def wrong(batch):
            return (m(X[batch]).argmax(1) != Y[batch]).float().mean()

        before = float(wrong(torch.arange(300)))
        with self.assertLogs("evenkeel.forward") as log:
            train(forward.trained(m), wrong, steps=64)
        self.assertRegex(log.output[0], r"^WARNING.*% of the pairs of trials changed no loss.*Config.epsilon above 0.001")
        m = model()
        with self.assertNoLogs("evenkeel.forward"):
            train(forward.trained(m), entropy(m), steps=64)
        m = model()
        raw = forward.prepare(config(steps=400, examples=32, processors=8), len(X), forward.trained(m), wrong)  # chooses
        self.assertEqual(json.loads(raw)["config"]["epsilon"], 0.032)  # four steps are 4 x 0.02 / sqrt(8) = 0.028
        for p, q in zip(m.parameters(), model().parameters()):
            self.assertTrue(torch.allclose(p, q, atol=1e-6))
        forward.train(raw, forward.trained(m), wrong)
        self.assertLess(float(wrong(torch.arange(300))), before - 0.2)
        for counts, rate, examples, want in ((False, 0.02, 8, 0.001), (True, 0.02, 128, 0.064), (True, 1e-4, 8, 0.016), (True, 1e-4, 128, 0.004)):
            m = model()
            raw = forward.prepare(config(learning_rate=rate, examples=examples), len(X), forward.trained(m), wrong if counts else entropy(m))
            self.assertEqual(json.loads(raw)["config"]["epsilon"], want, (rate, examples))


class BadInput(unittest.TestCase):
    def refused(self, text, f, *args, **kw):
        with self.assertRaises(forward.Refused) as e:
            f(*args, **kw)
        self.assertIn(text, str(e.exception))

    def header(self, parts, **fields):
        return forward.prepare(config(**fields), len(X), parts)

    def test_a_loss_that_is_no_number_drops_its_pair(self):
        for bad in (math.nan, math.inf, -math.inf):
            m = model()
            raw = self.header(forward.trained(m), steps=1)
            r = forward.Replica(raw, forward.trained(m))
            for k in range(4):
                r.put(k, rounds.frame(0, k, rounds.LOSSES, (1.0 + k, bad if k == 1 else 1.0)))
            self.assertEqual((r.left_out, r.over()), ({0: 1}, True))
            # the same as if the pair had not been there
            other = forward.Replica(raw, forward.trained(model()))
            for k in (2, 3):
                other.put(k, rounds.frame(0, k, rounds.LOSSES, (1.0 + k, 1.0)))
            other.put(2, rounds.frame(0, 2, rounds.GO_ON))
            self.assertEqual(r.hash(), other.hash())

    def test_only_losses_that_are_no_numbers_change_nothing(self):
        r = forward.Replica(self.header(forward.trained(model()), steps=1), forward.trained(model()))
        was = r.hash()
        for k in range(4):
            r.put(k, rounds.frame(0, k, rounds.LOSSES, (math.nan, 1.0)))
        self.assertEqual((r.hash(), r.left_out, r.over()), (was, {0: 1, 1: 1}, True))

    def test_another_model_names_its_first_tensor(self):
        raw = self.header(forward.trained(model()))
        m = model()
        m[2].weight.data[1, 1] += 2**-20
        self.refused("tensor 2 '2.weight': hash", forward.Replica, raw, forward.trained(m))
        self.refused("tensor 0 '0.weight': shape [30, 10] in the run, [31, 10] here", forward.Replica, raw, forward.trained(torch.nn.Sequential(torch.nn.Linear(10, 31), torch.nn.Tanh(), torch.nn.Linear(31, 3)).eval()))
        self.refused("'2.bias': name '2.bias' in the run, None here", forward.Replica, raw, forward.trained(model())[:3])

    def test_a_base_that_differs_in_one_bit(self):
        m = adapted(model(), ["2"])
        raw = self.header(forward.trained(m))
        m.base_model.model[2].base_layer.weight.data.view(torch.int32)[0, 0] ^= 1
        self.refused("the frozen part differs", forward.Replica, raw, forward.trained(m))
        self.refused("none here", forward.Replica, raw, [forward.Part(p.key, p.parameter) for p in forward.trained(m)])
        half = forward.trained(adapted(model(torch.bfloat16), ["2"]))
        for p, q in zip(half, forward.trained(m)):
            p.parameter.data.copy_(q.parameter)
        self.refused("same dtype", forward.Replica, raw, half)

    def test_a_base_that_changes_during_the_run(self):
        m = adapted(model(), ["2"])
        wrong = entropy(m)

        def loss(batch):
            m.base_model.model[0].bias.data += 2**-20
            return wrong(batch)

        self.refused("have changed since it began", train, forward.trained(m), loss, steps=1)

    def test_headers(self):
        good = json.loads(self.header(forward.trained(model()), estimator="pairs"))

        def changed(**fields):
            return json.dumps({**good, **fields}).encode()

        parts = forward.trained(model())
        self.refused("version 3", forward.Replica, changed(version=3), parts)
        self.refused("config: fields ['more']", forward.Replica, changed(config={**good["config"], "more": 1}), parts)
        self.refused("data.count", forward.Replica, changed(data={"count": 0}), parts)
        self.refused("header:", forward.Replica, b"{", parts)
        self.refused("tensors: none", forward.Replica, changed(tensors=[]), parts)
        for field, value in (("processors", 3), ("directions", 5), ("key", -1), ("steps", 0), ("epsilon", 0), ("learning_rate", 0), ("schedule", ""), ("examples", [1]), ("clip", -1), ("guard", None)):  # fmt: skip
            self.refused(f"config.{field}", forward.Replica, changed(config={**good["config"], field: value}), parts)
        forward.Replica(changed(unknown=1), parts)
        self.refused("config: fields ['estimator']", forward.Replica, changed(config={k: v for k, v in good["config"].items() if k != "estimator"}), parts)
        each = {**good["config"], "estimator": "each", "directions": 4}
        forward.Replica(changed(config=each), parts)
        for field, value in (("estimator", "one"), ("directions", 2), ("examples", [8, 9])):
            self.refused(f"config.{field}", forward.Replica, changed(config={**each, field: value}), parts)

    def test_damaged_logs(self):
        m = model()
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "run.log")
            train(forward.trained(m), entropy(m), path)
            with open(path, "rb") as f:
                data = f.read()
            for at in list(range(0, 40, 5)) + list(range(1000, len(data), 211)):
                with open(path, "wb") as f:
                    f.write(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
                try:
                    r = forward.replay(path, forward.trained(model()))
                    self.assertLess(r.step, 130, at)  # a length that reaches beyond the end: good up to there
                except forward.Refused as e:
                    self.assertIn(path, str(e))

    def test_weights_that_leave_their_range(self):
        m = model()
        raw = self.header(forward.trained(m), steps=16, learning_rate=100, clip=0, schedule="constant")
        r = forward.Replica(raw, forward.trained(m))
        r.weights.of(1)[3] = (1 << 30) + 1
        with self.assertRaisesRegex(OverflowError, "'0.bias'.*lower the learning rate"):
            for j in range(16):
                for k in range(4):
                    r.put(k, rounds.frame(j, k, rounds.LOSSES, (1.0, 1.0)))

    def test_what_is_wrong_is_named(self):
        for field, value in (("examples", None), ("examples", "8"), ("examples", [[8]]), ("processors", "4"), ("processors", None), ("directions", 1.5), ("learning_rate", -1)):
            self.refused(f"config.{field}: {value!r}" if field != "examples" else "config.examples", config(**{field: value}).complete, 100)
        for value, says in ((None, "None"), (torch.zeros(3), "a tensor of shape [3]"), ("x", "'x'")):
            self.refused(f"loss(batch) returned {says}", train, forward.trained(model()), lambda batch, value=value: value, steps=1)

    def test_a_model_that_its_weights_do_not_determine(self):
        class Counts(torch.nn.BatchNorm1d):
            def forward(self, x):
                self.running_mean += 0.1  # as in training mode
                return super().forward(x)

        for layer in (torch.nn.Dropout(0.1), torch.nn.BatchNorm1d(30)):
            m = model()
            m[1] = layer
            self.refused(f"1 ({type(layer).__name__}) is in training mode", forward.trained, m)
            forward.trained(m, training=True)
            forward.trained(m.eval())
        m.train()
        m[1] = Counts(30).eval()
        train(forward.trained(m, training=True), entropy(m), steps=1)
        self.refused("buffer '1.running_mean' of the model changes", train, forward.trained(m.eval()), entropy(m), steps=1)

    def test_names(self):
        self.refused("no parameter of the model requires gradients", forward.trained, model().requires_grad_(False))
        self.refused("letters, digits", forward.create, "nats://127.0.0.1:1", "a.b", b"")
        self.refused("is not nats://", forward.join, "http://127.0.0.1:1", "a", 0, None, [])


if __name__ == "__main__":
    unittest.main()
