"""Runs of meshtrain on the hosts of hosts.py, and what is expected of them."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
import traceback

import hosts

PROGRAMS = "meshtrain|mpirun|orted|prterun"
LIMIT = 120        # seconds that nothing here may take
GONE = 15          # seconds after which nothing of a run may be left

# An MLP with dropout whose every step leaves a mark, small enough for many steps a second.
MODEL = """version: 1
name: cluster
distribution:
  type: ModelParallel
  reductions: fixed
  device_mesh: {shape: [2, 4], axis_names: [data, model], devices: "cpu:8"}
  layout_map:
    up/kernel: [null, model]
    down/kernel: [model, null]
data:
  train: {source: random, samples: 64, shape: [16], labels: [12], seed: 3}
model:
  layers:
    - Input: {shape: [16]}
    - Dense: {name: up, units: 48, activation: relu}
    - Dropout: 0.3
    - Dense: {name: down, units: 12}
compile:
  optimizer: {Adam: {learning_rate: 1e-2}}
  loss: {MeanSquaredError: {}}
fit: {batch_size: 16, epochs: 4}
run: {log_steps: true}
checkpoint: {every: 3 steps, keep: 3}
"""


class Failed(AssertionError):
    pass


def check(condition, message):
    if not condition:
        raise Failed(message)


class Run:
    """One launcher and its processes, on a host."""

    def __init__(self, bench, host, words, environment=None):
        self.bench = bench
        number = bench.next_number()
        self.out_path = os.path.join(bench.folder, f"out{number}")
        self.err_path = os.path.join(bench.folder, f"err{number}")
        env = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")}
        env |= bench.environment | (environment or {})
        with open(self.out_path, "w") as out, open(self.err_path, "w") as err:
            self.process = subprocess.Popen(
                bench.net.words(host, words) if host else words,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=bench.folder, env=env)

    def wait(self, seconds=LIMIT):
        """The exit code."""
        begin = time.monotonic()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            hosts.end_all(PROGRAMS)
            self.process.kill()
            self.process.wait()
            raise Failed(f"still running after {seconds} s\n{self.err()}") from None
        self.seconds = time.monotonic() - begin
        return code if code >= 0 else 128 - code

    def err(self):
        with open(self.err_path, errors="replace") as file:
            return file.read()

    def out(self):
        with open(self.out_path, errors="replace") as file:
            return file.read()

    def expect(self, codes, seconds=LIMIT):
        code = self.wait(seconds)
        codes = codes if isinstance(codes, tuple) else (codes,)
        check(code in codes, f"exit code {code}, expected {codes}\n{self.out()[-2000:]}\n"
                             f"{self.err()[-6000:]}")
        return self

    def says(self, pattern):
        check(re.search(pattern, self.err()), f"no /{pattern}/ in\n{self.err()[-6000:]}")

    def pid_of(self, rank):
        for pid, _, _ in hosts.processes("meshtrain"):
            env = hosts.environ_of(pid)
            if rank == int(env.get("OMPI_COMM_WORLD_RANK", env.get("PMIX_RANK", env.get("RANK", -1)))):
                return pid
        raise Failed(f"there is no rank {rank}")


class Bench:
    """A folder, hosts and the program under test."""

    def __init__(self, net, program, recorder, emulator, folder):
        self.net, self.folder, self.program = net, folder, program
        self.recorder, self.emulator = recorder, emulator
        self.configs = os.path.join(os.path.dirname(__file__), "..", "..", "configs")
        self.number = 0
        self.environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_plm_rsh_agent": net.agent, "PMIX_MCA_gds": "hash",
                            "MESHTRAIN_HEARTBEAT_TIMEOUT": "2", "MESHTRAIN_COLLECTIVE_TIMEOUT": "4",
                            "MESHTRAIN_JOIN_TIMEOUT": "20", "OMP_NUM_THREADS": "1"}
        self.write("model.yaml", MODEL)

    def next_number(self):
        self.number += 1
        return self.number

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return name

    def remove(self, name):
        shutil.rmtree(self.path(name), ignore_errors=True)

    # --- starting -------------------------------------------------------------------------------
    def alone(self, words, **options):
        return Run(self, "h0", [self.program, *words], **options)

    def places(self, processes):
        """`processes` over the hosts as evenly as goes: "h0:2,h1:2,h2:2"."""
        names = self.net.names[:processes]
        counts = [processes // len(names) + (i < processes % len(names)) for i in range(len(names))]
        return ",".join(f"{name}:{count}" for name, count in zip(names, counts))

    def mpirun(self, processes, words, wrapper=None, **options):
        exports = [word for name in sorted(self.environment | options.get("environment", {}))
                   if name.startswith(("MESHTRAIN_", "OMP_")) for word in ("-x", name)]
        return Run(self, "h0", ["mpirun", "--host", self.places(processes), "-n", str(processes),
                                "--bind-to", "none", *exports, *(["sh", wrapper] if wrapper else []),
                                self.program, *words], **options)

    def launch(self, processes, words, options=(), wrapper=None, **more):
        if wrapper:  # mpirun gets the program through it
            more["environment"] = {"PATH": f"{self.wrapped_mpirun(wrapper)}:{os.environ['PATH']}"}
        if "--remote-agent" not in options:
            options = ["--remote-agent", self.net.agent, *options]
        return Run(self, "h0", [self.program, "launch", "--hosts", self.places(processes), *options,
                                *words], **more)

    def wrapped_mpirun(self, wrapper):
        """A folder with an mpirun that puts `sh wrapper` before the program."""
        folder = self.path("bin")
        os.makedirs(folder, exist_ok=True)
        self.write("bin/mpirun", f"""#!/usr/bin/env python3
import os, sys
words = sys.argv[1:]
at = words.index({self.program!r})
os.execv({shutil.which("mpirun")!r},
         ["mpirun", *words[:at], "sh", {self.path(wrapper)!r}, *words[at:]])
""")
        os.chmod(os.path.join(folder, "mpirun"), 0o755)
        return folder

    # --- what came out --------------------------------------------------------------------------
    def weights(self, run):
        with open(self.path(run + "/weights.safetensors"), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def losses(self, run):
        """What was logged, without times."""
        events = []
        with open(self.path(run + "/metrics.jsonl")) as file:
            for line in file:
                event = json.loads(line)
                if event["event"] == "step":
                    events.append((event["epoch"], event["step"], event["loss"]))
                elif event["event"] in ("epoch", "evaluate"):
                    events.append((event.get("epoch"), sorted(event["logs"].items())))
        return events

    def steps(self, run):
        try:
            with open(self.path(run + "/metrics.jsonl")) as file:
                return sum('"event":"step"' in line for line in file)
        except OSError:
            return 0

    def checkpoints(self, run):
        try:
            return sorted(int(name) for name in os.listdir(self.path(run + "/checkpoints"))
                          if name.isdigit())
        except OSError:
            return []

    def same(self, run, other):
        check(self.losses(run) == self.losses(other),
              f"{run} and {other} logged other numbers\n{first_difference(self.losses(run), self.losses(other))}")
        check(self.weights(run) == self.weights(other), f"{run} and {other} have other weights")

    def wait_for_steps(self, process, run, count):
        def there():
            if process.process.poll() is not None:
                raise Failed(f"ended early\n{process.out()[-2000:]}{process.err()[-6000:]}")
            return self.steps(run) >= count and self.checkpoints(run)
        hosts.wait_until(there, LIMIT, f"{count} steps of {run}")

    def nothing_left(self, seconds=GONE):
        try:
            hosts.wait_until(lambda: not hosts.processes(PROGRAMS), seconds, "every process gone")
        except AssertionError:
            left = hosts.processes(PROGRAMS)
            hosts.end_all(PROGRAMS)
            raise Failed(f"left after {seconds} s: {left}") from None


def run_cases(cases, bench, *more):
    """How many failed."""
    failures = 0
    for case in cases:
        begin = time.monotonic()
        try:
            case(bench, *more)
            result = "passed"
        except Exception as error:  # the other cases still say something
            failures += 1
            result = "FAILED"
            print(error if isinstance(error, AssertionError) else traceback.format_exc())
            hosts.end_all(PROGRAMS + "|srun")
        print(f"{result} {time.monotonic() - begin:5.1f} s  {case.__name__.replace('_', ' ')}",
              flush=True)
    return failures


def first_difference(a, b):
    for x, y in zip(a, b):
        if x != y:
            return f"{x}\n{y}"
    return f"{len(a)} and {len(b)} entries"


