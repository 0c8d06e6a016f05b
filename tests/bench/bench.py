#!/usr/bin/env python3
"""Compares meshtrain's training step with PyTorch's, interleaved, in one run (see README.md).

  tests/bench/bench.py [--rounds N] [--seconds S] [--only a16,b64] [--torch PYTHON ...] [--save FILE.json]

PyTorch first gets its best setting for each workload. Then both sides take turns, --rounds times;
what counts is the ratio of the medians. Exit status 1 when a goal is missed.
"""
import argparse
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MESHTRAIN = ROOT / "build/release/app/meshtrain"
BENCH_STEP = ROOT / "build/release/tests/bench/bench_step"
# Pythons that may have a PyTorch: Debian's python3-torch, and scripts/python_peers.sh's newest one.
DEBIAN_PYTHON = "/usr/bin/python3"
PYTHONS = [DEBIAN_PYTHON, str(ROOT / "build/peers/bin/python")]

# Floor: microseconds a step at the measured peak of two cores (README.md). Goal: times PyTorch's speed.
WORKLOADS = {
    "a16": {"floor_us": 39, "goal": 3.0},
    "a64": {"floor_us": 100, "goal": 3.0},
    "a512": {"floor_us": 660, "goal": 2.0},
    "b64": {"floor_us": 198, "goal": 1.8},
    "c64": {"floor_us": 2000, "goal": 1.4},
}
FIRST_STEP_GOAL_MS = 100
FIRST_STEP_GOAL_RATIO = 5
VALIDATE_GOAL_MS = 20
# Debian's PyTorch takes whatever libblas.so.3 it finds; the reference BLAS is ten times slower.
BLAS_FOLDERS = {"openmp": "/usr/lib/x86_64-linux-gnu/openblas-openmp",
                "pthread": "/usr/lib/x86_64-linux-gnu/openblas-pthread"}
MODES = ("plain", "foreach", "fused", "compile", "compile_fused")  # of torch_mlp.py
IDLE_SECONDS = 0.05  # idle OpenMP threads of the other side stop spinning


class Side:
    """A process that answers "run WORKLOAD STEPS" with "US x"."""

    def __init__(self, command, environment=None):
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | (environment or {}))

    def run(self, workload, steps):
        self.process.stdin.write(f"run {workload} {steps}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 2 or answer[0] != "US":
            raise SystemExit(f"{' '.join(self.command)} answered {answer} to 'run {workload} {steps}'")
        return float(answer[1])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Setting(typing.NamedTuple):
    """One way to run PyTorch's side."""
    python: str
    version: str
    blas: str  # a name in BLAS_FOLDERS; "" where PyTorch brings its own
    threads: int
    blas_threads: int
    mode: str  # of torch_mlp.py
    channels_last: bool

    def side(self):
        command = [self.python, str(HERE / "torch_mlp.py"), "--threads", str(self.threads), "--mode", self.mode]
        environment = {"OMP_NUM_THREADS": str(self.threads)}
        if self.blas:
            environment |= {"OPENBLAS_NUM_THREADS": str(self.blas_threads), "LD_LIBRARY_PATH": BLAS_FOLDERS[self.blas]}
        return Side(command + (["--channels-last"] if self.channels_last else []), environment)

    def fits(self, workload):
        """Fused optimizers came to the CPU with 2.4, Adam's but not RMSprop's (workloads a)."""
        if self.channels_last and workload[0] != "c" or "fused" in self.mode and workload[0] == "a":
            return False
        return self.mode in ("plain", "foreach") or tuple(map(int, self.version.split(".")[:2])) >= (2, 4)

    def __str__(self):
        blas = f", {self.blas} OpenBLAS {self.blas_threads}" if self.blas else ""
        return (f"{self.version}, {self.threads} threads{blas}, {self.mode}"
                f"{', channels last' if self.channels_last else ''}")


def torch_version(python):
    """Of that Python's PyTorch; "" when there is none."""
    if not pathlib.Path(python).exists():
        return ""
    asked = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    return asked.stdout.strip()


def torch_settings(pythons):
    """All settings of all PyTorchs that are there."""
    settings = []
    for python in pythons:
        version = torch_version(python)
        if not version:
            continue
        blas = [""]
        if python == DEBIAN_PYTHON:
            blas = [name for name, folder in BLAS_FOLDERS.items() if pathlib.Path(folder).is_dir()]
            if not blas:
                raise SystemExit("PyTorch needs OpenBLAS: apt-get install libopenblas0-openmp libopenblas0-pthread")
        settings += [Setting(python, version, build, threads, blas_threads, mode, channels_last)
                     for build, threads, blas_threads, mode, channels_last in itertools.product(
                         blas, (1, 2), (1, 2), MODES, (False, True))
                     if build or blas_threads == threads]
    if not settings:
        raise SystemExit(f"no PyTorch in {', '.join(pythons)}; see {HERE / 'README.md'}")
    return settings


def find_best_torch(workloads, pythons):
    """{workload: setting} with the least time: all settings briefly, then the best five longer."""
    settings = torch_settings(pythons)
    times = {w: {} for w in workloads}

    def times(candidates, steps):
        """{workload: {setting: microseconds}} of the settings that `candidates` has for each workload."""
        found = {w: {} for w in workloads}
        for setting in settings:
            if chosen := [w for w in workloads if setting in candidates[w]]:
                side = setting.side()
                for w in chosen:
                    found[w][setting] = side.run(w, steps)
                side.close()
        return found

    first = times({w: [s for s in settings if s.fits(w)] for w in workloads}, 20)
    second = times({w: sorted(t, key=t.get)[:5] for w, t in first.items()}, 200)
    return {w: min(t, key=t.get) for w, t in second.items()}


def compare_steps(workloads, pythons, rounds, seconds):
    """{workload: {"torch_us": [...], "meshtrain_us": [...], "torch_setting": text}}"""
    best = find_best_torch(workloads, pythons)
    torch_sides = {setting: setting.side() for setting in set(best.values())}
    ours = Side([str(BENCH_STEP)])
    result = {}
    for w in workloads:
        sides = {"torch_us": torch_sides[best[w]], "meshtrain_us": ours}
        steps = {}
        for name, side in sides.items():  # as many steps as fill `seconds`, in whole chunks of ten
            steps[name] = max(20, int(seconds * 1e6 / side.run(w, 100)) // 10 * 10)
        result[w] = {"torch_setting": str(best[w]), "torch_us": [], "meshtrain_us": []}
        for r in range(rounds):
            for name in (list(sides) if r % 2 else list(sides)[::-1]):
                time.sleep(IDLE_SECONDS)
                result[w][name].append(sides[name].run(w, steps[name]))
    for side in [*torch_sides.values(), ours]:
        side.close()
    return result


def print_steps(result):
    print(f"{'':6} {'torch us':>10} {'ours us':>10} {'ratio':>6} {'goal':>5}  {'rounds: min..max':18} "
          f"{'x floor':>7}  torch at")
    ok = True
    for w, r in result.items():
        torch_us, ours_us = (statistics.median(r[k]) for k in ("torch_us", "meshtrain_us"))
        ratios = [t / o for t, o in zip(r["torch_us"], r["meshtrain_us"])]
        r["ratio"], goal = torch_us / ours_us, WORKLOADS[w]["goal"]
        met = r["ratio"] >= goal
        ok &= met
        print(f"{w:6} {torch_us:10.1f} {ours_us:10.1f} {r['ratio']:6.2f} {goal:5.1f}  "
              f"{f'{min(ratios):.2f}..{max(ratios):.2f}':18} {ours_us / WORKLOADS[w]['floor_us']:7.2f}  "
              f"{r['torch_setting']}{'' if met else '   MISSED'}")
    return ok


def seconds_to_line(command, marker, given=None):
    """Seconds from starting `command` until it prints a line with `marker` (None: until its end)."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    process.stdin.write(given or "")
    process.stdin.close()
    elapsed = None
    for line in process.stdout:
        if marker is not None and marker in line and elapsed is None:
            elapsed = time.perf_counter() - start
    process.wait()
    if marker is None:
        elapsed = time.perf_counter() - start
    if process.returncode != 0 or elapsed is None:
        raise SystemExit(f"exit status {process.returncode}, no '{marker}' from: {' '.join(command)}")
    return elapsed


def compare_start(pythons, rounds):
    """The first PyTorch that is there stands for all: importing it is what takes long."""
    config = str(ROOT / "configs/quickstart.yaml")
    python = next(filter(torch_version, pythons))
    torch_command = [python, str(HERE / "torch_mlp.py"), "--threads", "2"]
    times = {"torch_ms": [], "meshtrain_ms": [], "validate_ms": []}
    with tempfile.TemporaryDirectory() as folder:
        for r in range(rounds):
            train = [str(MESHTRAIN), "train", config, "--limit-steps", "1", "--epochs", "1", "--log-format",
                     "json", "run.log_steps=true", "-o", f"{folder}/{r}"]
            times["torch_ms"].append(1e3 * seconds_to_line(torch_command, "LOSS", "first a64\n"))
            times["meshtrain_ms"].append(1e3 * seconds_to_line(train, '"step"'))
            times["validate_ms"].append(1e3 * seconds_to_line([str(MESHTRAIN), "validate", config], None))
    return times


def print_start(times):
    torch_ms, ours_ms, validate_ms = (statistics.median(t) for t in times.values())
    ratio = torch_ms / ours_ms
    print(f"\nfirst step from process start: torch {torch_ms:.0f} ms, ours {ours_ms:.1f} ms "
          f"({min(times['meshtrain_ms']):.1f}..{max(times['meshtrain_ms']):.1f}), ratio {ratio:.1f} "
          f"(goals {FIRST_STEP_GOAL_MS} ms, ratio {FIRST_STEP_GOAL_RATIO})")
    print(f"validate: {validate_ms:.1f} ms (goal {VALIDATE_GOAL_MS} ms)")
    return ours_ms <= FIRST_STEP_GOAL_MS and ratio >= FIRST_STEP_GOAL_RATIO and validate_ms <= VALIDATE_GOAL_MS


def cpu_name():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12, help="turns of each side (at least 10 to be believed)")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one turn")
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, or 'start'")
    parser.add_argument("--torch", nargs="+", default=PYTHONS, metavar="PYTHON", help="Pythons with PyTorch")
    parser.add_argument("--save", type=pathlib.Path, help="write every figure to this JSON file")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    workloads = [w for w in chosen if w in WORKLOADS]
    for needed in ([BENCH_STEP] if workloads else []) + [MESHTRAIN]:
        if not needed.is_file():
            raise SystemExit(f"{needed} is not built; see {HERE / 'README.md'}")

    print(f"{cpu_name()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}, {arguments.rounds} rounds")
    record = {"cpu": cpu_name(), "cpus": os.cpu_count(), "load": os.getloadavg()[0],
              "date": time.strftime("%Y-%m-%d"), "rounds": arguments.rounds}
    ok = True
    if workloads:
        record["steps"] = compare_steps(workloads, arguments.torch, arguments.rounds, arguments.seconds)
        ok &= print_steps(record["steps"])
    if "start" in chosen or len(workloads) == len(WORKLOADS):
        record["start"] = compare_start(arguments.torch, arguments.rounds)
        ok &= print_start(record["start"])
    if arguments.save:
        arguments.save.parent.mkdir(parents=True, exist_ok=True)
        arguments.save.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
