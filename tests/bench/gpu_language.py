#!/usr/bin/env python3
"""GPT-2 124M on one GPU beside PyTorch, in turn: milliseconds of a step, tokens a second, part of the card's rate.

  tests/bench/gpu_language.py --meshtrain PROGRAM [--batch 8] [--context 1024] [--float32] [--compile] [--rounds 3]

Both sides train configs/gpt2_124m.yaml's model: tied embeddings, AdamW, gradients clipped to norm 1, in mixed
bfloat16 (PyTorch: autocast and F.scaled_dot_product_attention). meshtrain's figure is the median epoch after the
first, with its metrics and with rows gathered on the device; PyTorch has its tokens there. `--compile` adds
torch.compile, which takes a minute before anything is measured.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from model_workloads import MODELS
from models import HERE, ROOT, Side

STEPS = 20  # of a turn
EPOCHS = 3
PEAK = 989e12  # of an H100 or H200 in bfloat16, by NVIDIA's datasheet


def our_milliseconds(program, configs, device, arguments, folder):
    """Of a step: the median epoch but the first, whose kernels are compiled."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        settings = [] if arguments.float32 else ["dtype_policy=mixed_bfloat16"]
        done = subprocess.run(
            [program, "train", configs / "gpt2_124m.yaml", "--devices", device, "--mesh", "1x1", "-q", "-o", f"{run}/run",
             "--epochs", str(EPOCHS + 1), "--limit-steps", str(STEPS), "checkpoint.every=never",
             f"fit.batch_size={arguments.batch}", f"vars.context={arguments.context}", *settings],
            capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"meshtrain: exit status {done.returncode}: {done.stderr.strip()}")
        events = [json.loads(line) for line in pathlib.Path(run, "run/metrics.jsonl").read_text().splitlines()]
        return statistics.median([e["ms_per_step"] for e in events if e["event"] == "epoch"][1:])


def peers(arguments):
    """{name: Side} of PyTorch's ways, each ready to run."""
    command = [arguments.python, HERE / "model_peers.py", "torch", "gpt2", "--device", "cuda", "--batch",
               arguments.batch, "--context", arguments.context] + ([] if arguments.float32 else ["--bf16"])
    sides = {"PyTorch eager": Side(command, 8)}
    if arguments.compile:
        sides["PyTorch compile"] = Side([*command, "--compile"], 8)
    return sides


def measure(arguments, sides, device="gpu:0"):
    times = {name: [] for name in ["meshtrain", *sides]}
    configs = arguments.configs
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            times["meshtrain"].append(our_milliseconds(arguments.meshtrain, configs, device, arguments, folder))
            for name, side in sides.items():
                microseconds = side.run(STEPS)
                if microseconds is not None:
                    times[name].append(microseconds / 1e3)
    return times


def report(arguments, times):
    size = MODELS["gpt2"]._replace(batch=arguments.batch, context=arguments.context)
    what = "float32 (TF32)" if arguments.float32 else "mixed bfloat16"
    print(f"GPT-2 124M, batch {arguments.batch} x {arguments.context}, {what}; medians of {arguments.rounds} rounds\n")
    print("| | ms a step | smallest .. largest | tokens/s | MFU | times its speed |\n|---|---|---|---|---|---|")
    ours = statistics.median(times["meshtrain"])
    for name, all_times in times.items():
        if not all_times:
            print(f"| {name} | failed | | | | |")
            continue
        ms = statistics.median(all_times)
        tokens = arguments.batch * arguments.context / ms * 1e3
        mfu = "" if arguments.float32 else f"{size.product_flops() / ms * 1e3 / PEAK:.1%}"
        print(f"| {name} | {ms:.2f} | {min(all_times):.2f} .. {max(all_times):.2f} | {tokens:,.0f} | {mfu} | "
              f"{ms / ours:.2f} |")
    sys.stdout.flush()


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshtrain", type=pathlib.Path, default=ROOT / "build/release/app/meshtrain")
    parser.add_argument("--configs", type=pathlib.Path, default=ROOT / "configs")
    parser.add_argument("--python", default=sys.executable, help="the one with PyTorch")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    return parser.parse_args()


def main():
    arguments = options()
    sides = peers(arguments)
    report(arguments, measure(arguments, sides))
    for side in sides.values():
        side.close()


if __name__ == "__main__":
    main()
