"""The sides of the GPU benchmark: peers as processes that stay, meshtrain as one process a measurement."""
import concurrent.futures
import json
import os
import pathlib
import signal
import statistics
import subprocess
import threading
import time

import gpu_workloads as gw

HERE = pathlib.Path(__file__).resolve().parent


class Missing(Exception):
    """A figure that could not be had, and why."""


def answer_in(line):
    """None where it is something that a library printed."""
    if not line.startswith(("{", "[")):
        return None
    try:
        return json.loads(line)
    except ValueError:
        return None


class Peer:
    """A process that answers each command with one line of JSON (gpu_torch.py, gpu_jax.py)."""

    def __init__(self, python, script, workload, device, tiny):
        command = [python, str(HERE / script), workload, "--device", device] + (["--tiny"] if tiny else [])
        self.lines = concurrent.futures.ThreadPoolExecutor(1)
        self.broken = None
        self.errors = []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True,
                                        env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "2"})
        self.reader = concurrent.futures.ThreadPoolExecutor(1)
        self.reader.submit(lambda: self.errors.extend(self.process.stderr))

    def ask(self, command, timeout):
        if self.broken:
            raise Missing(self.broken)
        end = time.monotonic() + max(1.0, timeout)
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            answer = None
            while answer is None:
                line = self.lines.submit(self.process.stdout.readline).result(max(0.0, end - time.monotonic()))
                if not line:
                    raise BrokenPipeError
                answer = answer_in(line)
        except concurrent.futures.TimeoutError:
            self.broken = f"'{command}' took longer than {timeout:.0f} s"
            self.kill()
            raise Missing(self.broken) from None
        except BrokenPipeError:
            time.sleep(0.1)  # the other thread reads what it said last
            self.broken = f"ended: {self.errors[-1].strip()}" if self.errors else "ended without a word"
            raise Missing(self.broken) from None
        if isinstance(answer, dict) and "error" in answer:
            raise Missing(answer["error"])
        return answer

    def kill(self):
        """With the processes that it compiles in, which would keep its pipes open."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def close(self):
        self.kill()  # it has nothing to lose, and takes its time to end by itself
        self.process.wait()
        self.lines.shutdown(wait=False)
        self.reader.shutdown(wait=False)


def seconds_to_line(command, marker, timeout, environment=None):
    """Seconds from starting `command` until it prints a line with `marker`; it must end within `timeout`."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=os.environ | (environment or {}), start_new_session=True)
    alarm = threading.Timer(timeout, os.killpg, (process.pid, signal.SIGKILL))
    alarm.start()
    elapsed, line = None, ""
    for line in process.stdout:
        if marker in line and elapsed is None:
            elapsed = time.perf_counter() - start
    words = process.stderr.read().strip().splitlines() or [line.strip()]
    code = process.wait()
    alarm.cancel()
    if code != 0 or elapsed is None:
        took = time.perf_counter() - start
        raise Missing(f"not done in {timeout:.0f} s" if took >= timeout else
                      f"exit status {code}: {words[0]}")
    return elapsed


class Meshtrain:
    """`meshtrain train` on one device, its figures from metrics.jsonl."""

    def __init__(self, program, device, folder, tiny):
        self.program, self.device, self.folder, self.tiny = str(program), device, folder, tiny
        self.runs = 0

    def write_data(self, w):
        """Random rows for timing, which all workloads of this shape share, and the peers' batches for the check."""
        import numpy as np
        rows = self.folder / f"{w.samples}x{'x'.join(map(str, w.shape))}.npz"
        if not rows.exists():
            rng = np.random.default_rng(3)
            labels = rng.integers(0, gw.CLASSES, w.samples).astype(np.int32)
            np.savez(rows, x=rng.random((w.samples, *w.shape), dtype=np.float32), labels=labels,
                     one_hot=np.eye(gw.CLASSES, dtype=np.float32)[labels])
        kind = "one_hot" if w.loss == "mse" else "labels"
        (self.folder / f"{w.name}.yaml").write_text(gw.config_text(
            w, f"{{source: npz, path: {rows.name}, x: x, y: {kind}}}", None, self.epochs(w)))
        if w.bf16:
            return
        x, labels = gw.batches(w)
        np.savez(self.folder / f"{w.name}_check.npz", x=x.reshape(-1, *w.shape),
                 y=gw.targets(w, labels.reshape(-1)))
        np.savez(self.folder / f"{w.name}_weights.npz", **gw.first_weights(w))
        (self.folder / f"{w.name}_check.yaml").write_text(gw.config_text(
            w, f"{{source: npz, path: {w.name}_check.npz}}", f"{w.name}_weights.npz",
            gw.CHECK_STEPS // gw.BATCHES, dropout=False))

    def epochs(self, w):
        return 2 if self.tiny else max(4, min(20, 2000 * w.batch // w.samples))

    def train(self, config, timeout, *arguments):
        """The events of a run."""
        self.runs += 1
        run = self.folder / f"run{self.runs}"
        command = [self.program, "train", str(self.folder / config), "--devices", self.device, "-q", "-o", str(run),
                   *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, timeout), check=False)
        except subprocess.TimeoutExpired:
            raise Missing(f"meshtrain took longer than {timeout:.0f} s") from None
        if done.returncode != 0:
            words = done.stderr.strip().splitlines()
            raise Missing(f"meshtrain's exit status is {done.returncode}: {words[0] if words else ''}")
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]

    def check_losses(self, w, timeout):
        events = self.train(f"{w.name}_check.yaml", timeout, "run.log_steps=true", "matmul_precision=highest")
        return [e["loss"] for e in events if e["event"] == "step"]

    def us(self, w, timeout):
        """Microseconds a step: the median epoch after the first, which compiles."""
        events = self.train(f"{w.name}.yaml", timeout)
        return 1e3 * statistics.median([e["ms_per_step"] for e in events if e["event"] == "epoch"][1:])

    def first_step(self, w, cache):
        self.runs += 1
        command = [self.program, "train", str(self.folder / f"{w.name}_check.yaml"), "--devices", self.device,
                   "--limit-steps", "1", "--epochs", "1", "--log-format", "json", "run.log_steps=true",
                   "-o", str(self.folder / f"run{self.runs}")]
        return seconds_to_line(command, '"step"', 30, {"MESHTRAIN_CACHE": str(cache)})
