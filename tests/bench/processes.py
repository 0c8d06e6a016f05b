#!/usr/bin/env python3
"""A training step in two processes on one machine, beside one process and beside PyTorch's DDP.

Sides, each a real run, taking turns for --rounds rounds; medians of their rounds and ratios:

  one      meshtrain, one process, two virtual devices on two threads
  fixed    meshtrain under mpirun, two processes of one device, reductions: fixed (the bits of `one`)
  fast     the same with reductions: fast (MPI's own all-reduce)
  ddp      PyTorch DistributedDataParallel over gloo, two processes of one thread, with and without the
           multi-tensor optimizer: the faster counts

meshtrain's figure is ms_per_step of the median epoch after the first: gathering shuffled rows and
keeping metrics is in it; PyTorch reads ready batches.
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SAMPLES = 12800
EPOCHS = 4
WORKLOADS = {"b64": ("mirrored_mlp", 64), "b512": ("mirrored_mlp", 512), "c64": ("jax_guide_convnet", 64)}


def meshtrain_us(program, folder, workload, processes, reductions):
    name, batch = WORKLOADS[workload]
    run = tempfile.mkdtemp(dir=folder)
    words = [program, "train", os.path.join(ROOT, "configs", name + ".yaml"), "-q", "--mesh", "2", "--devices", "cpu:2", "--batch-size", str(batch),
             "--epochs", str(EPOCHS), f"data.train={{source: digits, samples: {SAMPLES}}}", "evaluate.on=none",
             "checkpoint.every=1000000 steps", "-o", os.path.join(run, "run"), f"distribution.reductions={reductions}"]
    if "validation:" in open(os.path.join(ROOT, "configs", name + ".yaml")).read():
        words.append("~data.validation")
    if processes > 1:
        words = ["mpirun", "-np", str(processes), "--oversubscribe", *words]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    with open(os.path.join(run, "run", "metrics.jsonl")) as file:
        epochs = [event for event in map(json.loads, file) if event["event"] == "epoch"]
    return statistics.median(event["ms_per_step"] for event in epochs[1:]) * 1000


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def torch_us(python, workload, foreach):
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE="2", OMP_NUM_THREADS="1",
                       GLOO_SOCKET_IFNAME="lo")
    words = [python, os.path.abspath(__file__), "--ddp", workload] + (["--foreach"] if foreach else [])
    ranks = [subprocess.Popen(words, env=dict(environment, RANK=str(rank)), stdout=subprocess.PIPE, text=True) for rank in range(2)]
    texts = [rank.communicate(timeout=600)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("PyTorch's side failed")
    return float(texts[0].split()[1])


def ddp_rank(workload, foreach):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    import torch_mlp
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    _, batch = WORKLOADS[workload]
    side = torch_mlp.Workload(f"{workload[0]}{batch // 2}", "foreach" if foreach else "plain")
    side.model = DistributedDataParallel(side.model)
    side.median_us(2 * torch_mlp.CHUNKS)
    print(f"US {side.median_us(EPOCHS * SAMPLES // batch):.2f}", flush=True)
    torch.distributed.destroy_process_group()


def compare(arguments):
    sides = {"one": lambda folder, w: meshtrain_us(arguments.meshtrain, folder, w, 1, "auto"),
             "fixed": lambda folder, w: meshtrain_us(arguments.meshtrain, folder, w, 2, "fixed"),
             "fast": lambda folder, w: meshtrain_us(arguments.meshtrain, folder, w, 2, "fast")}
    if arguments.python:
        sides["ddp"] = lambda folder, w: torch_us(arguments.python, w, False)
        sides["ddp foreach"] = lambda folder, w: torch_us(arguments.python, w, True)
    result = {}
    for workload in arguments.workloads:
        times = {side: [] for side in sides}
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as folder:
                for side, run in sides.items():
                    times[side].append(run(folder, workload))
        medians = {side: statistics.median(values) for side, values in times.items()}
        result[workload] = times
        line = ", ".join(f"{side} {us:.0f} us" for side, us in medians.items())
        ratios = [f"one/fixed {medians['one'] / medians['fixed']:.2f}", f"fast/fixed {medians['fast'] / medians['fixed']:.2f}"]
        if arguments.python:
            best = min("ddp", "ddp foreach", key=medians.get)
            rounds = sorted(a / b for a, b in zip(times[best], times["fixed"]))
            ratios.append(f"ddp/fixed {medians[best] / medians['fixed']:.2f} ({rounds[0]:.2f} .. {rounds[-1]:.2f})")
        print(f"{workload}: {line}; {', '.join(ratios)}", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshtrain", default=os.path.join(ROOT, "build/release/app/meshtrain"))
    parser.add_argument("--python", help="a Python that has PyTorch; without it meshtrain's sides only")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--save", help="JSON of every round")
    parser.add_argument("--ddp", choices=list(WORKLOADS), help="one rank of PyTorch's side, started by this program")
    parser.add_argument("--foreach", action="store_true", help="with --ddp: the multi-tensor optimizer")
    arguments = parser.parse_args()
    if arguments.ddp:
        return ddp_rank(arguments.ddp, arguments.foreach)
    result = compare(arguments)
    if arguments.save:
        with open(arguments.save, "w") as file:
            json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
