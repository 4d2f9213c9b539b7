"""docs/guides/trainers-huggingface.md as it is written: TRL's own script with the page's diff, started by the page's command under the real service, on a small
model. One rank is four times as slow as the other."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, HERE)

import pages

try:
    import tokenizers
    import transformers
    import trl.scripts.sft
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e

SLOW = """import os, sys, time, runpy
import transformers

inner = transformers.GPT2Model.forward

def forward(self, *args, **kwargs):
    ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
    time.sleep([.004, .016][int(os.environ["RANK"])] * len(ids))
    return inner(self, *args, **kwargs)

transformers.GPT2Model.forward = forward
sys.argv = ["sft.py", *sys.argv[1:]]
runpy.run_path("sft.py", run_name="__main__")
"""


class TestScript(unittest.TestCase):
    def test_page(self):
        page, script, changed = pages.example("trainers-huggingface.md", trl.scripts.sft.__file__)
        command = re.search(r"^evenkeel serve -- (torchrun (?:.*\\\n)*.*)$", page, re.M).group(1).replace("\\\n", " ")
        self.assertLessEqual(changed, 4)
        with tempfile.TemporaryDirectory() as folder:
            words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(60)}, unk_token="w0"))
            words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
            transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w0").save_pretrained(f"{folder}/model")
            transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=60, n_positions=64, n_embd=16, n_layer=1, n_head=2)).save_pretrained(f"{folder}/model")
            os.mkdir(f"{folder}/data")
            with open(f"{folder}/data/train.jsonl", "w") as f:
                f.writelines(json.dumps({"text": " ".join(f"w{(i + k) % 60}" for k in range(30))}) + "\n" for i in range(640))
            for name, text in {"sft.py": script, "slow.py": SLOW}.items():
                with open(os.path.join(folder, name), "w") as f:
                    f.write(text)
            run = shlex.split(command.replace("Qwen/Qwen2-0.5B", f"{folder}/model").replace("trl-lib/Capybara", f"{folder}/data").replace("sft.py", "slow.py"))
            run = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", *run[1:], "--use_cpu", "--bf16", "False", "--num_train_epochs", "1", "--max_length", "32", "--report_to", "none"]
            environment = {k: v for k, v in os.environ.items() if not k.startswith("EVENKEEL_")}
            environment.update(PYTHONPATH=os.path.join(ROOT, "python"), OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", HF_HOME=folder)
            done = subprocess.run([os.environ["EVENKEEL"], "serve", "--", *run], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
            said = done.stdout + done.stderr
            self.assertEqual(done.returncode, 0, said)
            self.assertTrue(os.path.exists(f"{folder}/tuned/adapter_model.safetensors"), said)
            self.assertGreater(float(re.search(r"^Gained: ([\d.]+) times", said, re.M).group(1)), 1.2, said)


if __name__ == "__main__":
    unittest.main()
