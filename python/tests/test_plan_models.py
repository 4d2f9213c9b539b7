"""Models as evenkeel plan estimate reads them have the parameters that transformers gives them."""

import csv
import json
import os
import subprocess
import tempfile
import unittest

import torch

try:
    import transformers
except ImportError as e:
    raise unittest.SkipTest(f"{e}: .ci/python installs it") from e

EVENKEEL = os.environ.get("EVENKEEL")
SIZES = {"vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 160, "max_position_embeddings": 128}
GPT = {"vocab_size": 500, "n_embd": 96, "n_layer": 3, "n_head": 6, "n_positions": 128}
MODELS = {
    "llama": {**SIZES, "num_key_value_heads": 2}, "mistral": {**SIZES, "num_key_value_heads": 3}, "qwen2": {**SIZES, "num_key_value_heads": 2}, "gemma": {**SIZES, "head_dim": 16, "num_key_value_heads": 2},
    "mixtral": {**SIZES, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}, "qwen3_moe": {**SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 16, "num_key_value_heads": 2},
    "phi3": {**SIZES, "pad_token_id": 0}, "granite": SIZES, "gpt2": GPT, "gpt_neox": SIZES, "starcoder2": {**SIZES, "num_key_value_heads": 2},
}


@unittest.skipUnless(EVENKEEL, "EVENKEEL is not the path of evenkeel")
class Models(unittest.TestCase):
    def test_parameters(self):
        with tempfile.TemporaryDirectory() as folder:
            cluster, path = os.path.join(folder, "cluster.yaml"), os.path.join(folder, "config.json")
            with open(cluster, "w") as f:
                f.write("nodes: [{device: h200}]\n")
            for kind, sizes in MODELS.items():
                with self.subTest(kind):
                    config = transformers.AutoConfig.for_model(kind, **sizes)
                    with torch.device("meta"):
                        want = sum(p.numel() for p in transformers.AutoModelForCausalLM.from_config(config).parameters())
                    config.to_json_file(path, use_diff=True)
                    with open(path) as f:
                        given = json.load(f)
                    with open(path, "w") as f:
                        json.dump({"model_type": kind, **given}, f)
                    p = subprocess.run([EVENKEEL, "plan", "estimate", "--model", path, "--cluster", cluster], capture_output=True, text=True, timeout=60)
                    self.assertEqual(p.returncode, 0, p.stderr)
                    layers = {}
                    for r in csv.DictReader(p.stdout.splitlines()):
                        first, _, last = r["layer"].partition("-")
                        layers[r["layer"]] = (int(last or first) - int(first) + 1) * float(r["parameters"]) - float(r.get("tied_parameters") or 0)
                    self.assertAlmostEqual(sum(layers.values()) / want, 1, delta=0.005)


if __name__ == "__main__":
    unittest.main()
