#!/usr/bin/env python3
"""What two changed lines gain in Hugging Face's Trainer: seconds of real training runs on three gloo ranks whose devices are emulated.

    python experiments/bucket/trainer.py --lengths azure_llm_conv_tokens.csv

A forward pass of B samples padded to L tokens sleeps (.04 s + 3.2e-5 B L + 4e-9 B L^2) over the rank's speed, so that ranks neither share a processor nor differ but
as told. Everything else is the Trainer's own: sampler, collation, backward, all-reduce. Steps of 48 random samples of the file, 4 x 4 a rank, two epochs of 480.
train_runtime of each way to sample, at each set of speeds, in turn."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
WAYS = "random", "group_by_length", "batch_rebalance", "tuned"
SPEEDS = [1, 1, 1], [1, 1, .5]


def train(way, speed, path, samples):
    import datasets
    import torch
    import transformers
    from evenkeel.trainers.huggingface import tuned
    torch.set_num_threads(1)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16)

        def forward(self, input_ids, labels, num_items_in_batch=None):
            n, length = input_ids.shape
            time.sleep((.04 + n * length * (3.2e-5 + 4e-9 * length)) / speed)
            loss = torch.nn.functional.cross_entropy(self.head(self.embed(input_ids)).flatten(0, 1), labels.flatten(), reduction="sum")
            return {"loss": loss / (num_items_in_batch or (labels != -100).sum())}

    def collate(rows):
        pad = lambda fill: torch.nn.utils.rnn.pad_sequence([torch.tensor(r["input_ids"]) for r in rows], batch_first=True, padding_value=fill)
        return {"input_ids": pad(0), "labels": pad(-100)}

    with open(path) as f:
        lengths = random.Random(1).sample([int(line.split(",")[0]) for line in f if line[:1].isdigit()], samples)
    data = datasets.Dataset.from_list([{"input_ids": [k % 16 for k in range(n)], "length": n} for n in lengths])
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder, per_device_train_batch_size=4, gradient_accumulation_steps=4, num_train_epochs=2, use_cpu=True, report_to=[], save_strategy="no", logging_strategy="no",
            disable_tqdm=True, dataloader_pin_memory=False, ddp_find_unused_parameters=False, train_sampling_strategy="random" if way == "tuned" else way, length_column_name="length")
        base = tuned(transformers.Trainer, lengths="length") if way == "tuned" else transformers.Trainer
        out = base(model=Model(), args=args, train_dataset=data, data_collator=collate).train()
    if os.environ["RANK"] == "0":
        print(out.metrics["train_runtime"], out.global_step)
    torch.distributed.destroy_process_group()  # else a thread of it may end the process by an abort


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--lengths", required=True)
    args.add_argument("--samples", type=int, default=480)
    args.add_argument("--way", choices=WAYS, nargs="+", default=WAYS)
    args.add_argument("--speed", type=float, help="that of one rank: the script starts its ranks so")
    args = args.parse_args()
    if args.speed:
        return train(args.way[0], args.speed, args.lengths, args.samples)
    print("speeds |", " | ".join(args.way))
    for k, speeds in enumerate(SPEEDS):
        cells = []
        for way in args.way:
            env = {**os.environ, "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29650 + 10 * k + WAYS.index(way)), "OMP_NUM_THREADS": "1"}
            ranks = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--lengths", args.lengths, "--samples", str(args.samples), "--way", way, "--speed", str(v)], stdout=subprocess.PIPE,
                                      env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}, text=True) for r, v in enumerate(speeds)]
            told = [p.communicate()[0] for p in ranks]
            if any(p.returncode for p in ranks):
                raise SystemExit(f"{way}: a rank failed")
            cells.append("{} s, {} steps".format(*told[0].split()[-2:]))
        print(*speeds, "|", " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
