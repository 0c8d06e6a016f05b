#!/usr/bin/env python3
"""Several processes on ONE GPU over NCCL: slow, and the only way to try it where there are not several GPUs.

  tests/gpu/nccl.py --meshtrain PROGRAM [--device 0] [--configs DIR] [--processes 2,4,8] [--only ZeRO] [--seconds S]

Each process is on a host of its own as far as NCCL knows (NCCL_HOSTID), so that it takes sockets on the loopback
interface. With fixed reductions eight devices in 2, 4 and 8 processes must leave the weights of one process, byte
for byte: the guides' models on one and on two axes, the mirrored one, ZeRO 1 to 3 and HSDP, with the step as one
CUDA graph and without (NCCL sends, receives and gathers); with fast ones, where it adds up and scatters, too, the
losses of those of FAST must be theirs within 1e-4. Every collective is
timed once over every axis (bench comm). Runs without a graph come first; where those fail, too, try
MESHTRAIN_NCCL_BLOCKING=1. Then a process is killed: the others must have ended 5 seconds later, with
exit status 8. One line a check; exit status 1 when one fails.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from checks import Failed, losses_of, options, report, weights_of

DEVICES = 8
MOST_TO_END = 5.0  # seconds, from the death of one process to the end of the last
DATA = "keras_guide_data_parallel"
ADAM = "compile.optimizer={adam: {learning_rate: 0.001}}"
CONVNET = "jax_guide_convnet"
# Copies of halves, and four devices that share a copy.
HSDP = ["distribution.device_mesh.shape=[2, 4]", "distribution.device_mesh.axis_names=[data, fsdp]",
        "distribution.batch_dim_name=[data, fsdp]", "distribution.zero=3", "distribution.zero_axes=[fsdp]"]
# At the guide's own rate Adam makes so much of rounding that four steps of `fast` could differ by more.
SMALL_CONVNET = ["data={train: {source: digits, samples: 256}, test: {source: digits, split: test, samples: 64}}",
                 "compile.optimizer.Adam.learning_rate=3e-5"]
# Name: (config, arguments).
MODELS = {
    # First without captures: what fails here as well is no matter of graphs.
    "data parallel, no graph": (DATA, ["--no-cuda-graph"]),
    "model parallel, no graph": ("keras_guide_model_parallel", ["--no-cuda-graph"]),
    "data parallel": (DATA, []),
    "model parallel": ("keras_guide_model_parallel", []),
    "model parallel, 4x2": ("keras_guide_model_parallel", ["--mesh", "4x2"]),
    "model parallel, 1x8": ("keras_guide_model_parallel", ["--mesh", "1x8"]),
    "mirrored MLP": ("mirrored_mlp", ["--mesh", "8", "data.train={source: digits, samples: 256}",
                                      "data.validation={source: digits, split: test, samples: 64}"]),
    "convnet": (CONVNET, SMALL_CONVNET),
    "ZeRO-1": (DATA, ["distribution.zero=1", ADAM]),
    "ZeRO-2": (DATA, ["distribution.zero=2", ADAM]),
    "ZeRO-3": (DATA, ["distribution.zero=3", ADAM]),
    "ZeRO-3, no graph": (DATA, ["distribution.zero=3", ADAM, "--no-cuda-graph"]),
    "HSDP": (DATA, [*HSDP, ADAM]),
}
FAST = ("data parallel", "model parallel", "convnet", "ZeRO-2", "ZeRO-3", "HSDP")


def recipe(rank):
    """What makes NCCL take several processes on one GPU."""
    return {"NCCL_HOSTID": f"mt-host-{rank}", "NCCL_SOCKET_IFNAME": "=lo", "NCCL_SOCKET_FAMILY": "AF_INET",
            "NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_IB_DISABLE": "1", "NCCL_P2P_DISABLE": "1",
            "NCCL_SHM_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2",
            "NCCL_RAS_ENABLE": "0", "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def counts_that_fit(counts):
    """NCCL's proxy takes some 34 MB of /dev/shm for each communicator of each process, also where
    NCCL_SHM_DISABLE is set (2.28.9, proxy.cc, ncclProxyOpsPool); on a mesh of two axes there are three."""
    def needed(count):
        return count * 3 * 35_000_000

    if shutil.disk_usage("/dev/shm").free < needed(max(counts)) and os.geteuid() == 0:
        subprocess.run(["mount", "-o", "remount,size=2G", "/dev/shm"], stderr=subprocess.DEVNULL, check=False)
    free = shutil.disk_usage("/dev/shm").free
    fitting = [c for c in counts if c == min(counts) or needed(c) <= free]
    for c in counts:
        if c not in fitting:
            print(f"not run: {c} processes: /dev/shm has {free >> 20} MiB free, they need about {needed(c) >> 20}; as "
                  "root: mount -o remount,size=2G /dev/shm", flush=True)
    return fitting


class Processes:
    """The ranks of one command."""

    def __init__(self, words, count, folder):
        port, token = free_port(), os.urandom(16).hex()
        self.logs, self.started = [], []
        for rank in range(count):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank),
                               LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                               MESHTRAIN_TOKEN=token, **recipe(rank))
            self.logs.append(folder / f"rank{rank}.log")
            with open(self.logs[-1], "wb") as log:
                self.started.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log,
                                                     start_new_session=True))

    def wait(self, seconds):
        end = time.monotonic() + seconds
        try:
            return [p.wait(timeout=max(0.1, end - time.monotonic())) for p in self.started]
        except subprocess.TimeoutExpired:
            raise Failed(f"not done in {seconds:.0f} s: {self.tail()}") from None

    def succeed(self, seconds):
        try:
            codes = self.wait(seconds)
        finally:
            self.end()
        if any(codes):
            raise Failed(f"exit status {codes}: {self.tail()}")

    def tail(self):
        texts = [log.read_text(errors="replace").strip() for log in self.logs]
        return next((t[-600:] for t in texts if "error" in t), texts[0][-600:])

    def end(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Runner:
    def __init__(self, arguments, folder):
        self.program, self.configs, self.gpu = str(arguments.meshtrain), arguments.configs, arguments.device
        self.folder, self.limit = folder, time.monotonic() + arguments.seconds
        self.run_seconds, self.runs, self.references = arguments.run_seconds, 0, {}

    def left(self):
        """Seconds for the next run."""
        return max(1.0, min(self.run_seconds, self.limit - time.monotonic()))

    def new_folder(self):
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        return folder

    def words(self, model, count, folder, *more):
        config, arguments = MODELS[model]
        return [self.program, "train", str(self.configs / f"{config}.yaml"), "--devices",
                f"gpu:{self.gpu}x{DEVICES // count}", "-o", str(folder / "run"), "run.log_steps=true",
                "matmul_precision=highest", "checkpoint.every=never", "fit.epochs=1", "fit.limit_steps=4",
                *arguments, *more]

    def train(self, model, count, *more):
        """The run's weights, hashed, and its losses."""
        folder = self.new_folder()
        words = self.words(model, count, folder, *more)
        if count == 1:
            seconds = self.left()
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
            except subprocess.TimeoutExpired:
                raise Failed(f"one process was not done in {seconds:.0f} s") from None
            if done.returncode != 0:
                raise Failed(f"exit status {done.returncode}: {done.stderr.strip()}")
        else:
            Processes(words, count, folder).succeed(self.left())
        return weights_of(folder / "run"), losses_of(folder / "run")

    def reference(self, model):
        if model not in self.references:
            self.references[model] = self.train(model, 1, "distribution.reductions=fixed")
        return self.references[model]


def same_bits(runner, model, count):
    begin = time.monotonic()
    got, expected = runner.train(model, count, "distribution.reductions=fixed"), runner.reference(model)
    if got != expected:
        raise Failed(f"losses {got[1]} beside {expected[1]}, weights {got[0][:16]} beside {expected[0][:16]}")
    return f"sha256 {got[0][:16]}, {time.monotonic() - begin:.1f} s"


def close(runner, model, count):
    got, expected = runner.train(model, count, "distribution.reductions=fast")[1], runner.reference(model)[1]
    gap = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(got, expected, strict=True))
    if not gap <= 1e-4:
        raise Failed(f"losses {got} beside {expected}")
    return f"{gap:.1g} apart"


def all_collectives(runner, count):
    folder = runner.new_folder()
    ranks = Processes([runner.program, "bench", "comm", "--devices", f"gpu:{runner.gpu}x{DEVICES // count}", "--mesh",
                       "2x4", "--smallest", "64KiB", "--largest", "64KiB", "--format", "json"], count, folder)
    ranks.succeed(runner.left())
    text = ranks.logs[0].read_text()  # NCCL's warnings may lie around the figures
    series = json.JSONDecoder().raw_decode(text[text.index("{"):])[0]["series"]
    return ", ".join(sorted({f"{s['kind']} over {s['axis']}" for s in series}))


def killed(runner, count):
    folder = runner.new_folder()
    run = folder / "run" / "metrics.jsonl"
    ranks = Processes([*runner.words("data parallel", count, folder), "fit.epochs=1000000"], count, folder)
    end = time.monotonic() + runner.left()
    try:
        while not (run.exists() and '"step"' in run.read_text()):
            if time.monotonic() > end or any(p.poll() is not None for p in ranks.started):
                raise Failed(f"it does not train: {ranks.tail()}")
            time.sleep(0.2)
        victim = ranks.started[-1]
        victim.kill()
        begin = time.monotonic()
        codes = ranks.wait(runner.left())
        seconds = time.monotonic() - begin
    finally:
        ranks.end()
    if codes[:-1] != [8] * (count - 1) or seconds > MOST_TO_END:
        raise Failed(f"exit status {codes} after {seconds:.1f} s: {ranks.tail()}")
    return f"all others ended with 8 after {seconds:.1f} s"


def main():
    parser = options(__doc__, 300, 60)
    parser.add_argument("--device", type=int, default=0, help="number of the GPU")
    parser.add_argument("--processes", default="2,4,8")
    arguments = parser.parse_args()
    counts = counts_that_fit([int(c) for c in arguments.processes.split(",")])
    middle = counts[len(counts) // 2]
    checks = []
    for c in counts:  # all of few processes before many, which take longer
        checks += [(f"{m} in {c} processes", same_bits, (m, c)) for m in MODELS]
        checks += [(f"{m} in {c} processes, fast", close, (m, c)) for m in FAST]
        checks += [(f"collectives of {c} processes", all_collectives, (c,))]
        checks += [(f"kill -9 of one of {c}", killed, (c,))] * (c == middle)
    return report(lambda folder: Runner(arguments, folder), checks, arguments.only)


if __name__ == "__main__":
    sys.exit(main())
