#!/usr/bin/env python3
"""What an epoch costs beside its steps: metrics.jsonl and metrics.csv, shuffling, the epoch's lines.

  tests/bench/bench_epoch.py [--rounds N] [--meshtrain PATH]

Workload b on 60,000 samples, checkpoints off: EPOCHS epochs of one step against one epoch of as many steps, in
turn. What is left of the difference is the cost of an epoch; the goal is 2% of 938 steps. Exit status 1 when it
is missed.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EPOCHS = 300
STEPS = 938  # of 60,000 samples, batch 64
GOAL = 0.02
CONFIG = """
name: epochs
distribution: {device_mesh: {shape: [2], axis_names: [data]}}
data: {train: {source: random, samples: 60000, shape: [784], classes: 10}}
model:
  layers:
    - Input: {shape: [784]}
    - Dense: {units: 256, activation: relu}
    - Dense: {units: 256, activation: relu}
    - Dense: {units: 10}
compile:
  optimizer: {Adam: {learning_rate: 1e-3}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 64}
checkpoint: {every: never}
evaluate: {on: none}
"""


def seconds(meshtrain, folder, name, epochs, steps):
    start = time.monotonic()
    subprocess.run([meshtrain, "train", "config.yaml", "-o", name, "-q", f"fit.epochs={epochs}",
                    f"fit.steps_per_epoch={steps}"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--meshtrain", default=str(ROOT / "build/release/app/meshtrain"))
    arguments = parser.parse_args()
    costs, steps = [], []
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.yaml").write_text(CONFIG)
        for r in range(arguments.rounds + 1):
            none = seconds(arguments.meshtrain, folder, f"none{r}", 1, 1)
            whole = seconds(arguments.meshtrain, folder, f"whole{r}", 1, EPOCHS)
            split = seconds(arguments.meshtrain, folder, f"split{r}", EPOCHS, 1)
            if r > 0:  # the first round finds cold files
                costs.append((split - whole) / (EPOCHS - 1))
                steps.append((whole - none) / (EPOCHS - 1))
    cost, step = statistics.median(costs), statistics.median(steps)
    share = cost / (STEPS * step)
    print(f"an epoch: {cost * 1e3:.2f} ms ({min(costs) * 1e3:.2f} .. {max(costs) * 1e3:.2f}) beside {STEPS} steps of "
          f"{step * 1e3:.2f} ms: {share:.2%}, goal {GOAL:.0%}")
    return 0 if share <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
