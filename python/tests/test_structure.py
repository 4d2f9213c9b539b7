"""Batches and outputs of many kinds: cut by the rule, or refused by name."""

import collections
import dataclasses
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]

import numpy as np
import torch

from evenkeel.tuner import Usage, structure

X = torch.arange(12).reshape(6, 2)
Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass
class Record:
    x: torch.Tensor
    names: list
    weight: float = 1.0


class Encoding(collections.UserDict):
    """As Hugging Face's BatchEncoding: a mapping that is no dict, and knows something beside its items."""

    def __init__(self, data, kind=None):
        super().__init__(data)
        self.kind = kind


class TestCut(unittest.TestCase):
    KINDS = (
        X,
        [X, X[:, 0]],
        (X, {"mask": X[:, 1], "names": list("abcdef")}),
        Pair(X, X),
        {"x": X, "scale": torch.tensor(3.0), "k": 7, "none": None},
        Record(X, list("abcdef"), 0.5),
        Encoding({"ids": X}, kind="fast"),
        ([torch.zeros(n) for n in range(1, 7)], X),  # an item of its own length for each sample
        tuple(torch.zeros(7, n, n) for n in range(1, 7)),
        [{"boxes": torch.zeros(n, 4)} for n in range(1, 7)],
        tuple({"label": torch.tensor(n)} for n in range(1, 7)),
        ((*range(6),), 0.5, X),
    )

    def test_cut_and_joined(self):
        for whole in self.KINDS:
            for at in range(1, 6):
                a, b = structure.cut(whole, 6, 0, at), structure.cut(whole, 6, at, 6)
                self.assertIs(type(a), type(whole))
                self.assertTrue(same(structure.join([a, b], [at, 6 - at]), whole), (whole, at))
        self.assertEqual(structure.cut(self.KINDS[2], 6, 2, 4)[1]["names"], ["c", "d"])
        self.assertEqual(structure.cut(self.KINDS[5], 6, 2, 4).weight, 0.5)
        encoding = structure.cut(self.KINDS[6], 6, 2, 4)
        self.assertEqual((encoding.kind, len(encoding["ids"]), len(self.KINDS[6]["ids"])), ("fast", 2, 6))
        self.assertTrue(np.array_equal(structure.cut(np.arange(6), 6, 2, 4), [2, 3]))

    def test_a_whole_batch_is_handed_out_as_it_is(self):
        for odd in (object(), torch.zeros(24, 6), "text"):
            self.assertIs(structure.cut(odd, 6, 0, 6), odd)

    def test_refused(self):
        for odd, says in (
            (torch.zeros(24, 6), r"the batch has the shape \[24, 6\], and the sampler drew 6 samples"),
            ((torch.zeros(24, 6), torch.zeros(6)), r"the batch\[0\] has the shape"),
            ({"x": X, "image": object()}, r"the batch\['image'\] is a object"),
            ([list("abcdef")[:3], X], r"the batch\[0\]\[0\] is a str"),
            (torch.nn.utils.rnn.pack_sequence([torch.zeros(n) for n in range(6, 0, -1)]), "first dimension is not the samples"),
            ([torch.zeros(6, 9, 9) for _ in range(6)], "they may be fields, or a sample each"),
            (zipped(6, lambda i: (torch.zeros(6, 9, 9), i)), r"the batch\[0\] has 6 parts for 6 samples"),
            (zipped(6, lambda i: (torch.zeros(3, 9, 9), {"boxes": torch.zeros(6, 4)})), r"the batch\[1\] has 6 parts"),
            ({}, "it is not known how to cut it"),
        ):
            with self.assertRaisesRegex(Usage, says):
                structure.cut(odd, 6, 0, 3)

    def test_as_many_fields_as_samples(self):
        three = (tuple("abc"), ({"k": torch.tensor(1)},) * 3, (7, 8, 9))
        self.assertEqual(structure.cut(three, 3, 1, 3), (("b", "c"), three[1][1:], (8, 9)))
        with self.assertRaisesRegex(Usage, r"the batch\[0\] has the shape \[9, 2\]"):  # nodes of all graphs, and where each begins
            structure.cut((torch.zeros(9, 2), torch.tensor([0, 4])), 2, 0, 1)
        boxes = zipped(3, lambda i: (torch.zeros(3, 9), {"boxes": torch.zeros(1 + i, 4)}, i))  # as many channels, too
        with self.assertRaisesRegex(Usage, r"the batch\[0\] has 3 parts"):
            structure.cut(boxes, 3, 0, 1)
        self.assertEqual([len(x) for x in structure.cut((torch.zeros(2, 4), torch.zeros(2)), 2, 1, 2)], [1, 1])

    def test_ambiguous(self):
        for batch, is_ in ((torch.zeros(6, 6), True), ((X, {"y": torch.zeros(6, 2, 6)}), True), ((X, [torch.zeros(6), 3]), False)):
            self.assertEqual(structure.ambiguous(batch, 6), is_)

    def test_shapes(self):
        with self.assertRaisesRegex(ValueError, "different shapes"):
            structure.join([torch.zeros(2, 3), torch.zeros(2, 4)], [2, 2])
        with self.assertRaisesRegex(ValueError, "fields, or an item"):
            structure.join([[torch.zeros(3, 4, 4)] * 3] * 2, [3, 3])


def zipped(samples, of):
    """torchvision's collate_fn of detection."""
    return tuple(zip(*map(of, range(samples))))


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, collections.abc.Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if dataclasses.is_dataclass(a):
        return same(vars(a), vars(b))
    return type(a) is type(b) and (all(map(same, a, b)) if isinstance(a, (tuple, list)) else a == b)


if __name__ == "__main__":
    unittest.main()
