#!/usr/bin/env python3
"""Compares meshtrain's training step on a GPU with PyTorch's and JAX's, interleaved, in one run (README.md).

  tests/bench/gpu_bench.py --meshtrain PROGRAM [--budget SECONDS] [--only a16,c64,first] [--save NAME]
  tests/bench/gpu_bench.py --meshtrain PROGRAM --dry-run    on the CPU, tiny: tries the programs, judges nothing

--save NAME writes NAME.md and NAME.json. Exit status 1 when a goal is missed or a figure could not be had.
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import gpu_workloads as gw
from gpu_sides import Meshtrain, Missing, Peer, seconds_to_line

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = {"torch": "gpu_torch.py", "jax": "gpu_jax.py"}
# Modes that share a process, in the order in which they compile: what takes too long takes with it what comes behind
# it, so that each mode of PyTorch with a goal has a process of its own.
GROUPS = {"torch": [("eager",), ("compile_ro",), ("compile_graph", "compile")], "jax": [("keras", "scan", "jit")]}
# What a figure may fail with: a side that answers nothing, or something else.
FAULTS = (Missing, ValueError, KeyError, TypeError, OSError)
NAMES = {"meshtrain": "meshtrain", "torch eager": "PyTorch eager", "torch compile": "PyTorch compile",
         "torch compile_ro": "compile, reduce-overhead", "torch compile_graph": "compile, step in one CUDA graph",
         "jax keras": "JAX as Keras calls it", "jax jit": "JAX jit", "jax scan": "JAX scan of 32"}
# To accept, target, stretch. Times the speed of the fastest of these:
RATIO_GOALS = [(("torch compile_ro", "torch compile_graph"), (1.2, 2.0, 4.0)), (("jax keras",), (5.0, 10.0, 20.0)),
               (("jax scan",), (0.8, 1.2, 2.0))]
FIRST_STEP_GOALS = (2.0, 1.0, 0.6)
MATMUL_GOALS = (0.6,)
TURN_SECONDS = 30  # a turn that takes longer is given up
CHECK_SECONDS = 60  # the same of our losses, whose kernels are compiled first
FEWEST_ROUNDS = 4  # a median of fewer is no figure
PREPARING = 0.4  # of the time, at most, for peers to compile
RESERVE = 5.0  # seconds of the time that nothing is measured in: the figures are written
LOSS_TOLERANCE = 0.01  # of the largest of 32 losses, without dropout and in full float32
TRAINS_TOLERANCE = 0.35  # of the mean of the last ones with dropout, whose bits differ


class Clock:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.tiny = arguments.dry_run
        self.device = "cpu" if self.tiny else "cuda:0"
        self.clock = Clock(arguments.budget)
        self.workloads = gw.workloads(self.tiny)
        self.meshtrain = Meshtrain(arguments.meshtrain, "cpu:1" if self.tiny else "gpu:0", folder, self.tiny)
        self.folder = folder
        self.peers = {}  # (workload, side): Peer
        self.modes = {}  # (workload, side): microseconds of each round
        self.missing = []  # [what, why]
        self.absent = []  # peers that this machine does not have
        self.checks = {}  # workload: {side: largest relative difference of a loss}

    def python_of(self, peer):
        return getattr(self.arguments, f"{peer}_python")

    def has(self, peer):
        python = self.python_of(peer)
        if python == sys.executable:
            return importlib.util.find_spec(peer) is not None
        return subprocess.run([python, "-c", f"import importlib.util as u; exit(u.find_spec('{peer}') is None)"],
                              check=False).returncode == 0

    def note(self, what, error):
        self.missing.append([what, str(error)])
        print(f"missing: {what}: {error}", file=sys.stderr, flush=True)

    def prepare_peer(self, name, peer, group, until):
        """Starts a peer, compiles its modes; {mode: losses}. Runs beside other preparations, until a Clock."""
        process, found = None, {}
        try:
            process = Peer(self.python_of(peer), SCRIPTS[peer], name, self.device, self.tiny)
            there = process.ask("modes", until.left())
            modes = [m for m in group if m in there]
            if not self.workloads[name].bf16 and group == GROUPS[peer][0]:
                found["check"] = process.ask("check", until.left())["losses"]
        except FAULTS as error:
            self.note(f"{name} {peer}", error)
            modes = []
        if process is not None and not modes:
            process.close()
        for mode in modes:
            self.peers[name, f"{peer} {mode}"] = process
            try:
                found[mode] = process.ask(f"prepare {mode}", until.left())["losses"]
            except FAULTS as error:
                self.note(f"{name} {NAMES[f'{peer} {mode}']}", error)
        return found

    def prepare(self, names):
        """Which sides can be timed: self.modes; whether all of them compute the same: self.checks."""
        peers = [p for p in SCRIPTS if self.has(p)]
        self.absent = [p for p in SCRIPTS if p not in peers]
        for peer in self.absent:
            print(f"absent: {self.python_of(peer)} has no {peer}", file=sys.stderr, flush=True)
        for name in names:
            self.meshtrain.write_data(self.workloads[name])
        until = Clock(PREPARING * self.arguments.budget)
        with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 2)) as pool:
            jobs = {(name, peer): [pool.submit(self.prepare_peer, name, peer, group, until) for group in GROUPS[peer]]
                    for name in names for peer in peers}
            found = {key: {m: l for job in made for m, l in job.result().items()} for key, made in jobs.items()}
        for name in names:
            w = self.workloads[name]
            self.modes[name, "meshtrain"] = []
            ours = []
            if not w.bf16:
                try:
                    ours = self.meshtrain.check_losses(w, min(CHECK_SECONDS, self.clock.left()))
                except FAULTS as error:
                    self.note(f"{name} losses", error)
            for peer in peers:
                try:
                    self.compare_losses(name, peer, ours, found[name, peer])
                except FAULTS as error:
                    self.note(f"{name} {peer} losses", error)

    def compare_losses(self, name, peer, ours, found):
        """Takes the modes that train as the others do; the rest is not timed."""
        exact = found.pop("check", None)
        if ours and exact:
            gaps = [abs(a - b) / max(ours) for a, b in zip(ours, exact, strict=True)]
            worst = max(gaps, key=lambda gap: (gap != gap, gap))
            self.checks.setdefault(name, {})[peer] = worst
            if not worst <= LOSS_TOLERANCE:  # NaN too
                self.note(f"{name} {peer}", f"its losses differ from meshtrain's by {worst:.2g} of the largest")
                return
        for mode, losses in found.items():
            tail, first = statistics.mean(losses[-8:]), next(iter(found.values()))
            wanted = statistics.mean(first[-8:])
            if not abs(tail - wanted) <= TRAINS_TOLERANCE * wanted:
                self.note(f"{name} {NAMES[f'{peer} {mode}']}", f"trains to a loss of {tail:.3g}, not {wanted:.3g}")
            else:
                self.modes[name, f"{peer} {mode}"] = []

    def measure(self, name, side, steps):
        w = self.workloads[name]
        if side == "meshtrain":
            return self.meshtrain.us(w, min(TURN_SECONDS, self.clock.left()))
        command = f"run {side.split(' ')[1]} {steps}"
        return self.peers[name, side].ask(command, min(TURN_SECONDS, self.clock.left()))["us"]

    def time_steps(self):
        """Rounds in which every side takes its turn, until they are done or no more fits into the time."""
        gone, steps, longest = set(), {}, 0.0

        def turn(key, count):
            try:
                return self.measure(*key, count)
            except FAULTS as error:
                self.note(" ".join(key), error)
                gone.add(key)
                return None

        for key in self.modes:
            if key[1] != "meshtrain":  # which says itself how many steps it makes
                us = turn(key, 64 if self.tiny else 320)
                steps[key] = us and max(64, int(self.arguments.seconds * 1e6 / us))
        for r in range(self.arguments.rounds):
            # A whole round or none, so that all have as many; the first ones must be tried.
            if self.clock.left() < RESERVE + (longest if r >= FEWEST_ROUNDS else 0):
                break
            began = time.monotonic()
            for key in list(self.modes)[:: -1 if r % 2 else 1]:
                us = None if key in gone or self.clock.left() < RESERVE else turn(key, steps.get(key))
                if us is not None:
                    self.modes[key].append(us)
            longest = max(longest, time.monotonic() - began)
        for key, times in self.modes.items():
            if key not in gone and len(times) < min(FEWEST_ROUNDS, self.arguments.rounds):
                self.note(" ".join(key), f"{len(times)} rounds in the {self.arguments.budget:.0f} s of --budget")

    def first_steps(self):
        """Seconds from process start to the first step, the first time with an empty cache of compiled kernels."""
        name = "a64"
        w = self.workloads[name]
        self.meshtrain.write_data(w)
        times = {}
        cache = self.folder / "cache"
        for r in range(4):
            try:
                side = "meshtrain, cold" if r == 0 else "meshtrain"
                times.setdefault(side, []).append(self.meshtrain.first_step(w, cache))
            except FAULTS as error:
                self.note("first step meshtrain", error)
                break
            for peer, script in SCRIPTS.items():
                if r not in (1, 2) or not self.has(peer):  # they take long, and have no goal
                    continue
                program = str(pathlib.Path(__file__).parent / script)
                words = [self.python_of(peer), program, name, "--device", self.device]
                command = ["sh", "-c", 'echo first | "$@"', "sh", *words] + (["--tiny"] if self.tiny else [])
                try:
                    times.setdefault(peer, []).append(seconds_to_line(command, '"loss"', TURN_SECONDS))
                except FAULTS as error:
                    self.note(f"first step {peer}", error)
        return {side: statistics.median(t) for side, t in times.items() if t}

    def matmul_rate(self):
        for (_, side), process in self.peers.items():
            if side == "torch eager":
                try:
                    return process.ask("matmul", min(TURN_SECONDS, self.clock.left()))["tflops"]
                except FAULTS as error:
                    self.note("matmul rate", error)
        return None

    def run(self, names, first, record):
        """Everything, into `record` and self.modes; what fails on the way leaves what there is by then."""
        try:
            if first:  # nothing else has the card then
                record["first_step_s"] = self.first_steps()
            if not self.tiny:
                record["context_s"] = context_seconds()
            self.prepare(names)
            record["matmul_tflops"] = self.matmul_rate()
            self.time_steps()
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            self.note("the rest", f"{type(error).__name__}: {error}")
        for process in set(self.peers.values()):
            process.close()


def context_seconds():
    """Creating a CUDA context alone, in a process of its own."""
    program = ("import ctypes, time; s = time.perf_counter(); c = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_void_p();"
               "assert c.cuInit(0) == 0 and c.cuDevicePrimaryCtxRetain(ctypes.byref(p), 0) == 0;"
               "print(time.perf_counter() - s)")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def goals_of(record, workloads):
    """[what, figure, goals, how many of them are reached or None where the figure is missing]."""
    goals = []

    def add(what, figure, wanted, less_is_better=False):
        reached = None if figure is None else sum(figure <= g if less_is_better else figure >= g for g in wanted)
        goals.append([what, figure, [("<= " if less_is_better else ">= ") + f"{g:g}" for g in wanted], reached])

    for name, sides in record["medians"].items():
        w, ours = workloads[name], sides.get("meshtrain")
        if w.goals_us:
            add(f"{name}, us a step", ours, w.goals_us, less_is_better=True)
            for peers, wanted in RATIO_GOALS:
                theirs = min((sides[p] for p in peers if p in sides), default=None)
                add(f"{name}, times {' or '.join(NAMES[p] for p in peers)}", theirs / ours if theirs and ours else None,
                    wanted)
        if w.bf16:
            rate = record["matmul_tflops"]
            add(f"{name}, part of the measured matmul rate", w.flops / ours / 1e6 / rate if ours and rate else None,
                MATMUL_GOALS)
    if record["first_step_s"] is not None:
        for what, side in (("with cached kernels", "meshtrain"), ("cold", "meshtrain, cold")):
            add(f"first step {what}, s after process start", record["first_step_s"].get(side), FIRST_STEP_GOALS,
                less_is_better=True)
    return goals


def table(rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0])] + rows[1:])


def number(value, unit=""):
    return "missing" if value is None else f"{value:.3g}{unit}" if value < 1000 else f"{value:.0f}{unit}"


def markdown(record, workloads):
    sides = [s for s in NAMES if any(s in m for m in record["medians"].values())]
    had = [len(times) for sides in record["rounds_us"].values() for times in sides.values()] or [0]
    rounds = f"{min(had)}" if min(had) == max(had) else f"{min(had)} to {max(had)}"
    out = [f"{record['machine']}. Medians of {rounds} interleaved rounds, microseconds a step; smallest and "
           "largest round in brackets. float32 products in TF32 on every side. meshtrain gathers its rows from the "
           "data set on the device, shuffled, and keeps metrics; peers read ready batches.", ""]
    rows = [["workload", *[NAMES[s] for s in sides]]]
    for name, medians in record["medians"].items():
        cells = []
        for side in sides:
            times = record["rounds_us"][name].get(side)
            cells.append(f"{number(medians[side])} ({number(min(times))} .. {number(max(times))})"
                         if times else "missing")
        rows.append([f"{name}: {workloads[name].what}", *cells])
    out += [table(rows), ""]
    if record["first_step_s"]:
        rows = [["first step after process start", "s"]]
        rows += [[side, number(seconds)] for side, seconds in record["first_step_s"].items()]
        rows += [["creating a CUDA context, a part of each", number(record["context_s"])]]
        out += [table(rows), ""]
    rows = [["goal", "figure", "to accept", "target", "stretch", "reached"]]
    for what, figure, wanted, reached in record["goals"]:
        verdict = "not judged" if record["dry_run"] else "not measured" if reached is None else (
            ["MISSED", "accepted", "target", "stretch"][reached])
        rows.append([what, number(figure), *wanted, *[""] * (3 - len(wanted)), verdict])
    out += [table(rows), ""]
    out += [f"bf16 product of 8192 x 8192 x 8192 on this card: {number(record['matmul_tflops'], ' TFLOP/s')}", ""]
    out += [f"Losses of {gw.CHECK_STEPS} steps without dropout, full float32, largest difference from meshtrain's "
            "as a part of the largest loss: "
            + "; ".join(f"{n} " + ", ".join(f"{p} {v:.1g}" for p, v in c.items()) for n, c in record["checks"].items()), ""]
    out += [f"Not installed here, so not compared with: {peer}" for peer in record["absent"]]
    out += [f"Missing: {what}: {why}" for what, why in record["missing"]]
    return "\n".join(out).rstrip() + "\n"


def machine_of(dry_run):
    if dry_run:
        return f"Dry run on {os.cpu_count()} CPUs: no figure here means anything"
    words = shutil.which("nvidia-smi") and subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True,
        check=False).stdout.splitlines()
    return f"{words[0]}" if words else "unknown GPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meshtrain", type=pathlib.Path, default=ROOT / "build/release/app/meshtrain")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--jax-python", default=sys.executable)
    parser.add_argument("--budget", type=float, default=240, help="seconds for everything")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.15, help="length of one turn of a peer")
    parser.add_argument("--only", default="b64,c64,a64,wide,a16,a512,first", help="workloads with one of these in their "
                        "names, and the first step")
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--dry-run", action="store_true", help="tiny, on the CPU; judges no goal")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before its time"))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, pathlib.Path(folder))
        chosen = []
        for word in arguments.only.split(","):
            found = [name for name in [*bench.workloads, "first"] if word in name]
            if not found:
                parser.error(f"no workload has {word!r} in its name ({', '.join(bench.workloads)}, first)")
            chosen += [name for name in found if name not in chosen]
        names = [name for name in chosen if name != "first"]
        record = {"machine": machine_of(arguments.dry_run), "date": time.strftime("%Y-%m-%d"),
                  "dry_run": arguments.dry_run, "first_step_s": None, "context_s": None, "matmul_tflops": None}
        bench.run(names, "first" in chosen, record)
    record["rounds_us"] = {n: {s: t for (m, s), t in bench.modes.items() if m == n and t} for n in names}
    record["medians"] = {n: {s: statistics.median(t) for s, t in sides.items()}
                         for n, sides in record["rounds_us"].items()}
    record["checks"], record["missing"], record["absent"] = bench.checks, bench.missing, bench.absent
    record["goals"] = goals_of(record, bench.workloads)
    text = markdown(record, bench.workloads)
    print(text, end="")
    if arguments.save:
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.with_suffix(".md").write_text(text)
        arguments.save.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    if arguments.dry_run:
        return 1 if bench.missing else 0
    return 0 if all(reached for *_, reached in record["goals"]) and not bench.missing else 1


if __name__ == "__main__":
    sys.exit(main())
