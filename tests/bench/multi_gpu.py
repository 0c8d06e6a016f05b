#!/usr/bin/env python3
"""How training scales over the GPUs of this machine: weak and strong, overlap, bus rates.

Each row is a real run of `meshtrain train`, which starts a process for each GPU: four epochs, the median of
the last three counts. One table, a line as soon as it is known, and JSON of all figures so far with --save. A
run that fails is a line that says why; then the exit status is 1. Nothing here has a goal yet.
"""

import argparse
import array
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

EPOCHS = 4
SEQUENCES = 6400  # 100 steps of 64 in an epoch
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Workload:
    """batch: of one GPU in weak scaling, of all together in strong scaling."""

    def __init__(self, name, config, batch, strong, words):
        self.name, self.config, self.batch, self.strong, self.words = name, config, batch, strong, words

    def mesh(self, count):
        return f"1x{count}" if self.name == "transformer" else str(count)


def write_tokens(path, count, vocabulary):
    """The same random block again and again: nobody looks at what is learned."""
    block = array.array("H", random.Random(0).choices(range(vocabulary), k=min(count, 1 << 18)))
    with open(path, "wb") as file:
        for begin in range(0, count, len(block)):
            block[:count - begin].tofile(file)


def workloads(folder, tiny):
    tokens, vocabulary, sequences = (32, 512, 64) if tiny else (1024, 32768, SEQUENCES)
    path = os.path.join(folder, "tokens.bin")
    write_tokens(path, sequences * (tokens + 1), vocabulary)
    width, hidden, layers = (32, 64, 2) if tiny else (1024, 4096, 12)
    # FSDP, as the file has it, of a decoder that one GPU of 40 GB can also hold, 16 sequences at a time.
    transformer = [f"vars.width={width}", f"vars.hidden={hidden}", f"vars.layers={layers}",
                   f"vars.tokens={tokens}", f"vars.vocabulary={vocabulary}", "vars.replicas=1",
                   f"data.train={{source: tokens, path: {path}, sequence_length: {tokens}}}"]
    digits = ["data.train={source: digits, samples: %d}" % (256 if tiny else 131072)]
    configs = os.path.join(ROOT, "configs")
    return [Workload("convnet", os.path.join(configs, "jax_guide_convnet.yaml"), 8 if tiny else 512,
                     16 if tiny else 2048, [*digits, "evaluate.on=none"]),
            Workload("MLP b", os.path.join(configs, "mirrored_mlp.yaml"), 8 if tiny else 512,
                     16 if tiny else 4096, [*digits, "~data.validation", "evaluate.on=none"]),
            Workload("transformer", os.path.join(ROOT, "tests/bench/configs/transformer_8b.yaml"),
                     2 if tiny else 8, 4 if tiny else 16, transformer)]


class Failed(Exception):
    pass


class Machine:
    def __init__(self, program, folder, steps, seconds, tiny):
        self.program, self.folder, self.steps, self.seconds, self.tiny = program, folder, steps, seconds, tiny
        self.runs = 0

    def call(self, words):
        try:
            done = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=self.seconds,
                                  cwd=self.folder, stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"`{words[0]}` took longer than {self.seconds:.0f} s") from None
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
            print(f"meshtrain {' '.join(words)}\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
            raise Failed(f"`{words[0]}` ended with exit code {done.returncode}: {said[0]}")
        return done.stdout

    def gpus(self):
        return len(json.loads(self.call(["devices", "--format", "json"]))["gpus"])

    def words(self, workload, count, batch, devices=None):
        devices = devices or ("gpu:0" if count == 1 else f"gpu:0-{count - 1}")
        return [workload.config, *workload.words, "--devices", devices, "--mesh", workload.mesh(count),
                "--batch-size", str(batch)]

    def step(self, workload, count, batch):
        """Seconds of a step."""
        self.runs += 1
        run = os.path.join(self.folder, f"run{self.runs}")
        self.call(["train", *self.words(workload, count, batch), "-q", "--epochs", str(EPOCHS),
                   "--limit-steps", str(self.steps), "checkpoint.every=1000000 steps", "-o", run])
        with open(os.path.join(run, "metrics.jsonl")) as file:
            epochs = [event for event in map(json.loads, file) if event["event"] == "epoch"]
        return statistics.median(epoch["ms_per_step"] for epoch in epochs[1:]) / 1000

    def communication(self, workload, count, batch, constants):
        """Seconds of a step's collectives, one after the other, by the constants measured here (YAML)."""
        hardware = os.path.join(self.folder, f"hardware{count}.yaml")
        with open(hardware, "w") as file:
            file.write(constants)
        plan = json.loads(self.call(["plan", *self.words(workload, count, batch, f"{count}xcluster"),
                                     "--hardware", hardware, "--format", "json"]))
        return plan["estimate"]["communication_seconds"]

    def bus(self, count):
        return json.loads(self.call(["bench", "comm", "--mesh", str(count), "--devices", f"gpu:0-{count - 1}",
                                     "--format", "json", *(["--largest", "64KiB"] if self.tiny else [])]))


def counts_to(gpus):
    counts = [1]
    while counts[-1] * 2 <= gpus:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == gpus else counts + [gpus]


class Report:
    """The table, printed line by line, and the same as JSON."""

    COLUMNS = (("", 20), ("GPUs", 5), ("batch, bytes", 13), ("time", 13), ("samples", 13), ("efficiency", 11),
               ("overlap", 8), ("bus rate", 12))

    def __init__(self, path):
        self.path, self.rows, self.bus, self.failures = path, [], {}, 0
        self.line(*(name for name, _ in self.COLUMNS))
        self.line(*("-" * (width - 1) for _, width in self.COLUMNS))

    def line(self, *cells):
        text = "".join(str(cell).rjust(width) if i else str(cell).ljust(width)
                       for i, (cell, (_, width)) in enumerate(zip(cells, self.COLUMNS)))
        print(text.rstrip(), flush=True)

    def save(self):
        if self.path:
            with open(self.path, "w") as file:
                json.dump({"scaling": self.rows, "bus": self.bus}, file, indent=1)

    def failed(self, what, gpus, error):
        self.failures += 1
        self.line(what, gpus, f"  FAILED: {error}")

    def add_row(self, row):
        def percent(value):
            return "-" if value is None else f"{value:.0%}"
        self.rows.append(row)
        what = f"{row['workload']}, {row['kind']}"
        if "error" in row:
            self.failed(what, row["gpus"], row["error"])
        else:
            self.line(what, row["gpus"], row["batch"], f"{row['seconds'] * 1e3:.2f} ms",
                      f"{row['samples_per_second']:,.0f}/s", percent(row["efficiency"]), percent(row.get("overlap")),
                      "-")
        self.save()

    def add_bus(self, count, measured):
        self.bus[count] = measured
        for series in measured["series"]:
            if series["axis"] is None:
                continue
            best = max(series["points"], key=lambda point: point["bus_rate"])
            kind = " ".join(filter(None, (series["kind"], series.get("reductions"))))  # "all_reduce fixed"
            self.line(kind, count, f"{best['bytes'] >> 10} KiB", f"{best['seconds'] * 1e3:.3f} ms", "-", "-",
                      "-", f"{best['bus_rate'] / 1e9:.1f} GB/s")
        self.save()


def overlap(machine, workload, row, alone, bus):
    """{} or what the collectives of a step take by themselves, and the part of it that no step waits for."""
    if row["kind"] != "weak" or row["gpus"] == 1 or row["gpus"] not in bus or alone is None:
        return {}
    seconds = machine.communication(workload, row["gpus"], row["batch"], bus[row["gpus"]]["hardware"])
    hidden = max(0.0, min(1.0, 1 - (row["seconds"] - alone) / seconds)) if seconds > 0 else None
    return {"communication_seconds": seconds, "overlap": hidden}


def scaling(machine, workload, counts, report):
    for kind, batch_of in (("weak", lambda n: workload.batch * n), ("strong", lambda n: workload.strong)):
        first = None  # seconds on one GPU
        for count in counts:
            batch = batch_of(count)
            row = {"workload": workload.name, "kind": kind, "gpus": count, "batch": batch}
            try:
                if batch % count != 0:
                    raise Failed(f"{batch} is no multiple of {count}")
                seconds = machine.step(workload, count, batch)
                first = seconds if count == 1 else first
                ideal = first and (first if kind == "weak" else first / count)
                row |= {"seconds": seconds, "samples_per_second": batch / seconds,
                        "efficiency": ideal and ideal / seconds}
                row |= overlap(machine, workload, row, first, report.bus)
            except Failed as error:
                row["error"] = str(error)
            report.add_row(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshtrain", required=True)
    parser.add_argument("--gpus", type=int, help="use so many; default all")
    parser.add_argument("--steps", type=int, default=100, help="of an epoch, at most")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run")
    parser.add_argument("--only", default="", help="workloads with this in their names")
    parser.add_argument("--save", help="JSON of all figures")
    parser.add_argument("--tiny", action="store_true", help="small models, to try this script")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(os.path.abspath(args.meshtrain), folder, 4 if args.tiny else args.steps, args.limit,
                          args.tiny)
        gpus = min(args.gpus or machine.gpus(), machine.gpus())
        if gpus < 2:
            sys.exit(f"this machine has {gpus} GPUs; scaling needs two at least")
        counts = counts_to(gpus)
        report = Report(args.save)
        for count in counts[1:]:
            try:
                report.add_bus(count, machine.bus(count))
            except Failed as error:
                report.failed("bench comm", count, error)
        for workload in workloads(folder, args.tiny):
            if args.only in workload.name:
                scaling(machine, workload, counts, report)
    if report.failures or not report.rows:
        sys.exit(f"{report.failures} runs failed of those in the table")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:  # of what nothing goes without
        sys.exit(str(error))
