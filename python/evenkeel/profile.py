"""python3 -m evenkeel.profile: measures a training model on this machine's GPU (CUDA, ROCm) or CPU, and writes its profile."""

import argparse
import csv
import json
import os
import pkgutil
import re
import statistics
import sys
import time
from argparse import ArgumentTypeError

import torch

HELP = """
MODULE:FUNCTION names a function of yours without arguments. It returns the model, on the device to measure, and a function
that makes n samples and returns a function that computes their loss:

  import torch, transformers                            # my_model.py

  def make():
      model = transformers.AutoModelForCausalLM.from_pretrained("gpt2").cuda()
      def samples(n):
          ids = torch.randint(50257, (n, 512), device="cuda")
          return lambda: model(input_ids=ids, labels=ids).loss
      return model, samples

For a plain model samples ends with: return lambda: cross_entropy(model(x), y). What the job does, do here too: autocast,
activation checkpointing, the same lengths. The peak memory counts AdamW's state, or that of an optimizer returned as a third value.

  python3 -m evenkeel.profile my_model:make --out my_model.csv
  evenkeel profiles check my_model.csv
"""
WARM, LEAST, MOST = 2, 5, 200  # passes of a size that warm up; that count, at least and at most


def numbers(text):
    """The whole numbers of a flag, sorted."""
    try:
        all = sorted({int(n) for n in text.split(",")})
    except ValueError:
        all = [0]
    if all[0] < 1:
        raise ArgumentTypeError("%r; want whole numbers of at least 1, as 1,2,4" % text)
    return all


def write(path, columns, rows):
    """Replaces a CSV file."""
    with open(path + ".part", "w", newline="", encoding="utf-8") as f:
        csv.writer(f).writerows([columns, *rows])
    os.replace(path + ".part", path)


def measure(model, samples, optimizer, n, each):
    """Median seconds of forward and backward of n samples, and the peak bytes; None on a CPU."""
    device = next(model.parameters()).device
    cuda, times, loss = device.type == "cuda", [], samples(n)
    wait = (lambda: torch.cuda.synchronize(device)) if cuda else (lambda: None)
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    while len(times) < WARM + LEAST or sum(times[WARM:]) < each and len(times) < WARM + MOST:
        wait()
        begun = time.perf_counter()
        value = loss()
        if not isinstance(value, torch.Tensor):
            raise ArgumentTypeError("the loss of %d samples is of type %s; the function that makes samples must return a function that returns a tensor" % (n, type(value).__name__))
        value.backward()
        wait()
        times.append(time.perf_counter() - begun)
        if len(times) == 1:
            optimizer.step()  # from here on its state is in memory
        optimizer.zero_grad(set_to_none=False)  # gradients stay in memory from one micro-step to the next
    return statistics.median(times[WARM:]), torch.cuda.max_memory_allocated(device) if cuda else None


def load(spec):
    """The model, the function that makes samples, and the optimizer."""
    try:
        make = pkgutil.resolve_name(spec)
    except (ValueError, AttributeError, ModuleNotFoundError) as e:
        raise ArgumentTypeError("%s: %s; give MODULE:FUNCTION, with the module in the current folder or on PYTHONPATH" % (spec, e)) from e
    made = make() if callable(make) else None
    if not (isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], torch.nn.Module) and callable(made[1])):
        raise ArgumentTypeError("%s must return a model, a function that makes samples and, if it likes, an optimizer; --help shows one" % spec)
    trained = [p for p in made[0].train().parameters() if p.requires_grad]
    if not trained or trained[0].device.type not in ("cpu", "cuda"):
        raise ArgumentTypeError("the model of %s has no parameters to train on a CPU or a CUDA device" % spec)
    return made[0], made[1], made[2] if len(made) > 2 else torch.optim.AdamW(trained)


def run(args):
    """Measures, writes the profile and returns the exit status."""
    if not args.out.endswith(".csv") or not os.access(os.path.dirname(args.out) or ".", os.W_OK):
        raise ArgumentTypeError("--out %s: give a name that ends in .csv, in a folder that you may write to" % args.out)
    model, samples, optimizer = load(args.make)
    device = next(model.parameters()).device
    known = re.sub("[^A-Za-z0-9._-]+", "-", torch.cuda.get_device_name(device)) if device.type == "cuda" else "cpu"
    name, workload = args.device or known, args.workload or args.make.partition(":")[0].rpartition(".")[2]
    for flag, text in (("--device", name), ("--workload", workload)):
        if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
            raise ArgumentTypeError("%s %r: a name is 1 to 64 letters, digits and, not first, - . _" % (flag, text))
    table, rows, ended = sys.stderr if args.json else sys.stdout, [], None
    print("%s on %s\n\nmicro-batch    seconds  samples/s  peak memory" % (workload, name), file=table)
    try:
        for n in args.batches or [1 << k for k in range(args.most.bit_length())]:
            seconds, peak = measure(model, samples, optimizer, n, args.each)
            rows.append((name, workload, n, "%.9g" % seconds, peak))
            print("%11d %10.4g %10.4g  %11s" % (n, seconds, n / seconds, "not known" if peak is None else "%.2f GiB" % (peak / 2**30)), file=table, flush=True)
    except (KeyboardInterrupt, RuntimeError) as e:  # torch.OutOfMemoryError, and what the CPU's allocator and cuBLAS raise
        ended = "interrupted" if isinstance(e, KeyboardInterrupt) else "out of memory"
        if isinstance(e, RuntimeError) and not re.search("out of memory|not enough memory|ALLOC_FAILED", str(e)):
            raise
        print("%11d %s" % (n, ended), file=table)
    status = 130 if ended == "interrupted" else 0 if rows else 1
    if not rows:
        return status
    write(args.out, ("device", "workload", "micro_batch", "seconds", "peak_bytes"), rows)
    # What the CUDA context and other processes leave, without a part for fragmentation.
    memory = int(0.95 * (torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device))) if device.type == "cuda" else None
    if args.json:
        points = [{"micro_batch": r[2], "seconds": float(r[3]), "peak_bytes": r[4]} for r in rows]
        print(json.dumps({"device": name, "workload": workload, "memory_bytes": memory, "ended": ended, "points": points}))
    else:
        print("\nWritten to %s; evenkeel profiles check %s judges it. A cluster file has it as\n\n  workload: %s\n  nodes:\n    - {device: %s, count: 1%s}" % (
            args.out, args.out, workload, name, ", memory: %dMiB" % (memory >> 20) if memory else ""))
    return status


def main():
    parser = argparse.ArgumentParser(prog="python3 -m evenkeel.profile", description=__doc__.split(": ", 1)[1], epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("make", metavar="MODULE:FUNCTION", help="function that makes the model")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--batches", type=numbers, metavar="N,...", help="samples of a micro-batch; default 1, 2, 4, ... until memory runs out")
    sizes.add_argument("--most", type=lambda t: numbers(t)[-1], default=256, metavar="N", help="largest of 1, 2, 4, ... to try; default 256")
    parser.add_argument("--each", type=float, default=2, metavar="SECONDS", help="time for each micro-batch, at least %d passes after %d that warm up; default 2" % (LEAST, WARM))
    parser.add_argument("--device", metavar="NAME", help="name of the device in the profile; default torch's name for it, or cpu")
    parser.add_argument("--workload", metavar="NAME", help="name of the workload; default the module's")
    parser.add_argument("--out", metavar="FILE", required=True, help="profile to write (.csv)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    try:
        return run(parser.parse_args())
    except ArgumentTypeError as e:
        sys.stderr.write("evenkeel.profile: %s\n" % e)
        return 2


if __name__ == "__main__":
    sys.exit(main())
