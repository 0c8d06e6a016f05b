#!/usr/bin/env python3
"""Small GPTs, recurrent layers, a ResNet and attention beside PyTorch and Keras on JAX, interleaved, in one run (see README.md).

  tests/bench/models.py [--only nano,char,gpt2,lstm,gru,resnet50,tiny,attention] [--peers PYTHON] [--rounds N] [--save FILE.json]

Each side first gets its best setting: one device or two, one or two threads, PyTorch eager and compiled. Then all
sides take turns. What counts is the ratio of the medians. Beside each stands the part of the machine's product rate.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench import IDLE_SECONDS, ROOT, cpu_name
from model_workloads import ATTENTION, IMAGES, MODELS, RECURRENT, WORKLOADS

HERE = pathlib.Path(__file__).resolve().parent
BENCH = ROOT / "build/release/tests/bench/bench_model"
PRODUCT = 1536  # rows and columns of the product that measures the machine


class Side:
    """A process that answers "run STEPS" with "US x"."""

    def __init__(self, command, threads=2):
        self.name = " ".join(map(str, command[1:]))
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True,
                                        env=os.environ | {"OMP_NUM_THREADS": str(threads)})

    def run(self, steps):
        """Microseconds a step; None when the process has ended."""
        try:
            self.process.stdin.write(f"run {steps}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        answer = self.process.stdout.readline().split()
        return float(answer[1]) if len(answer) == 2 and answer[0] == "US" else None

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def our_commands(bench, name, folder):
    """Those of all settings of ours: two devices that share the batch, or one with two threads."""
    if name in ATTENTION:
        size = ATTENTION[name]
        return [[bench, "attention", size.batch, size.heads, size.context, size.head_size]]
    if name in RECURRENT | IMAGES:
        size = WORKLOADS[name]
        file = pathlib.Path(folder, f"{name}.yaml")
        file.write_text(size.yaml())
        return [[bench, "config", file, size.batch, size.classes, devices, *size.shape()] for devices in (2, 1)]
    size = MODELS[name]
    return [[bench, "gpt", size.depth, size.width, size.heads, size.context, size.batch, size.classes, int(size.bias),
             size.gelu, devices] for devices in (2, 1)]


def peer_settings(python, name, frameworks):
    """(framework, command, threads) of all ways to run the peers."""
    for framework in frameworks:
        for threads in (1, 2):
            command = [python, HERE / "model_peers.py", framework, name, "--threads", threads]
            if framework == "torch":
                yield framework, command, threads
                yield framework, [*command, "--compile"], threads
                if name in IMAGES:
                    yield framework, [*command, "--channels-last"], threads
            elif threads == 2:  # XLA takes all cores
                yield framework, command, threads


def best_of(settings, steps):
    """{key: (command, threads)} of the fastest of each key that runs; `settings` are (key, command, threads)."""
    best = {}
    for key, command, threads in settings:
        side = Side(command, threads)
        took = side.run(max(2, steps // 4))
        side.close()
        print(f"  {side.name}: {'failed' if took is None else f'{took / 1e3:.2f} ms'}", file=sys.stderr)
        if took is not None and (key not in best or took < best[key][0]):
            best[key] = (took, command, threads)
    return {key: (command, threads) for key, (_, command, threads) in best.items()}


def measure(bench, python, name, frameworks, rounds, folder):
    """Microseconds of all sides, in turn, and the machine's GFLOP/s."""
    steps = WORKLOADS[name].steps
    ours = [("meshtrain", command, 2) for command in our_commands(bench, name, folder)]
    best = best_of([*ours, *peer_settings(python, name, frameworks)], steps)
    sides = {key: Side(command, threads) for key, (command, threads) in best.items()}
    sides["product"] = Side([bench, "product", PRODUCT])
    times = {key: [] for key in sides}
    for round_number in range(rounds):
        for key in (list(sides) if round_number % 2 else list(sides)[::-1]):
            time.sleep(IDLE_SECONDS)
            times[key].append(sides[key].run(3 if key == "product" else steps))
    for side in sides.values():
        side.close()
    return times, {key: sides[key].name.split("/")[-1] for key in best}


def report(name, times, settings):
    size = WORKLOADS[name]
    ours = statistics.median(times["meshtrain"])
    peak = 2 * PRODUCT ** 3 / statistics.median(times["product"]) / 1e3
    rate = size.product_flops() / ours / 1e3
    print(f"{name}: {ours / 1e3:.2f} ms, {rate:.0f} GFLOP/s = {rate / peak:.0%} of {peak:.0f}   "
          f"{settings['meshtrain']}")
    for framework, setting in settings.items():
        if framework == "meshtrain":
            continue
        theirs = statistics.median(times[framework])
        ratios = [t / o for t, o in zip(times[framework], times["meshtrain"])]
        goal = size.goal_torch if framework == "torch" else getattr(size, "goal_keras", 0)
        print(f"  {framework}: {theirs / 1e3:.2f} ms, ratio {theirs / ours:.2f} ({min(ratios):.2f} .. "
              f"{max(ratios):.2f}), goal {goal}   {setting}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="nano,attention,lstm,gru,resnet50,tiny,char,gpt2")
    parser.add_argument("--peers", default=str(ROOT / "build/peers/bin/python"), help="a Python with the peers")
    parser.add_argument("--frameworks", default="torch,keras")
    parser.add_argument("--bench", type=pathlib.Path, default=BENCH, help="bench_model")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--save", type=pathlib.Path)
    arguments = parser.parse_args()
    print(f"{cpu_name()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}, {arguments.rounds} rounds")
    record = {"cpu": cpu_name(), "load": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d"), "workloads": {}}
    for name in arguments.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            times, settings = measure(arguments.bench, arguments.peers, name, arguments.frameworks.split(","),
                                      arguments.rounds, folder)
        report(name, times, settings)
        record["workloads"][name] = {"times_us": times, "settings": settings}
        sys.stdout.flush()
    if arguments.save:
        arguments.save.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
