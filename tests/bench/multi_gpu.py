#!/usr/bin/env python3
"""How training scales over the GPUs of this machine: weak and strong, overlap, bus rates.

Each row is a real run of `meshtrain train`, which starts a process for each GPU: two epochs, the
second is timed. One table; JSON of all figures with --save. Nothing here has a goal yet.
"""

import argparse
import array
import json
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Workload:
    """batch: of one GPU in weak scaling, of all together in strong scaling."""

    def __init__(self, name, config, batch, strong, words):
        self.name, self.config, self.batch, self.strong, self.words = name, config, batch, strong, words

    def mesh(self, count):
        return f"1x{count}" if self.name == "transformer" else str(count)


def workloads(folder, tiny):
    tokens, vocabulary = (32, 512) if tiny else (1024, 32000)
    path = os.path.join(folder, "tokens.bin")
    generator = random.Random(0)
    with open(path, "wb") as file:
        array.array("H", (generator.randrange(vocabulary) for _ in range(tokens * 257))).tofile(file)
    width, hidden, layers = (32, 64, 2) if tiny else (1024, 4096, 12)
    # FSDP, as the file has it, of a decoder that one GPU can also hold.
    transformer = [f"vars.width={width}", f"vars.hidden={hidden}", f"vars.layers={layers}",
                   f"vars.tokens={tokens}", f"vars.vocabulary={vocabulary}", "vars.replicas=1",
                   f"data.train={{source: tokens, path: {path}, sequence_length: {tokens}}}"]
    digits = ["data.train={source: digits, samples: %d}" % (512 if tiny else 60000)]
    configs = os.path.join(ROOT, "configs")
    return [Workload("convnet", os.path.join(configs, "jax_guide_convnet.yaml"), 8 if tiny else 512,
                     16 if tiny else 2048, [*digits, "evaluate.on=none"]),
            Workload("MLP b", os.path.join(configs, "mirrored_mlp.yaml"), 8 if tiny else 512,
                     16 if tiny else 4096, [*digits, "~data.validation", "evaluate.on=none"]),
            Workload("transformer", os.path.join(ROOT, "tests/bench/configs/transformer_8b.yaml"),
                     2 if tiny else 8, 4 if tiny else 64, transformer)]


class Machine:
    def __init__(self, program, folder, steps, seconds):
        self.program, self.folder, self.steps, self.seconds = program, folder, steps, seconds
        self.runs = 0

    def call(self, words):
        done = subprocess.run([self.program, *words], capture_output=True, text=True,
                              timeout=self.seconds, cwd=self.folder, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
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
        self.call(["train", *self.words(workload, count, batch), "-q", "--epochs", "2",
                   "--limit-steps", str(self.steps), "checkpoint.every=1000000 steps", "-o", run])
        with open(os.path.join(run, "metrics.jsonl")) as file:
            epochs = [event for event in map(json.loads, file) if event["event"] == "epoch"]
        return epochs[-1]["ms_per_step"] / 1000

    def communication(self, workload, count, batch, hardware):
        """Seconds of a step's collectives, one after the other, by the constants measured here."""
        plan = json.loads(self.call(["plan", *self.words(workload, count, batch, f"{count}xcluster"),
                                     "--hardware", hardware, "--format", "json"]))
        return plan["estimate"]["communication_seconds"]

    def bus(self, count):
        return json.loads(self.call(["bench", "comm", "--mesh", str(count), "--devices",
                                     f"gpu:0-{count - 1}", "--format", "json"]))


def counts_to(gpus):
    counts = [1]
    while counts[-1] * 2 <= gpus:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == gpus else counts + [gpus]


def scaling(machine, workload, counts):
    rows = []
    for kind, batch_of in (("weak", lambda n: workload.batch * n), ("strong", lambda n: workload.strong)):
        first = None
        for count in counts:
            batch = batch_of(count)
            if batch % count != 0:
                continue
            seconds = machine.step(workload, count, batch)
            first = first or seconds
            ideal = first if kind == "weak" else first / count
            rows.append({"workload": workload.name, "kind": kind, "gpus": count, "batch": batch,
                         "seconds": seconds, "samples_per_second": batch / seconds,
                         "efficiency": ideal / seconds})
    return rows


def table(headings, rows):
    cells = [headings, *rows]
    widths = [max(len(str(row[i])) for row in cells) for i in range(len(headings))]
    for number, row in enumerate(cells):
        print("  ".join(str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))))
        if number == 0:
            print("  ".join("-" * width for width in widths))


def add_overlap(machine, workload, rows, bus, folder):
    """Of the time that the collectives of a step take by themselves, the part that no step waits for."""
    alone = next(row["seconds"] for row in rows if row["kind"] == "weak" and row["gpus"] == 1)
    for row in rows:
        if row["kind"] != "weak" or row["gpus"] == 1 or row["gpus"] not in bus:
            continue
        hardware = os.path.join(folder, f"hardware{row['gpus']}.yaml")
        with open(hardware, "w") as file:
            file.write(bus[row["gpus"]]["hardware"])
        seconds = machine.communication(workload, row["gpus"], row["batch"], hardware)
        row["communication_seconds"] = seconds
        row["overlap"] = max(0.0, min(1.0, 1 - (row["seconds"] - alone) / seconds)) if seconds > 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meshtrain", required=True)
    parser.add_argument("--gpus", type=int, help="use so many; default all")
    parser.add_argument("--steps", type=int, default=100, help="of an epoch")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run")
    parser.add_argument("--save", help="JSON of all figures")
    parser.add_argument("--tiny", action="store_true", help="small models, to try this script")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(os.path.abspath(args.meshtrain), folder, 4 if args.tiny else args.steps, args.limit)
        gpus = min(args.gpus or machine.gpus(), machine.gpus())
        if gpus < 2:
            sys.exit(f"this machine has {gpus} GPUs; scaling needs two at least")
        counts = counts_to(gpus)
        bus = {count: machine.bus(count) for count in counts[1:]}
        rows = []
        for workload in workloads(folder, args.tiny):
            mine = scaling(machine, workload, counts)
            add_overlap(machine, workload, mine, bus, folder)
            rows += mine
        report(rows, bus)
        if args.save:
            with open(args.save, "w") as file:
                json.dump({"scaling": rows, "bus": bus}, file, indent=1)


def report(rows, bus):
    def percent(value):
        return "-" if value is None else f"{value:.0%}"
    lines = [(f"{row['workload']}, {row['kind']}", row["gpus"], row["batch"], f"{row['seconds'] * 1e3:.2f} ms",
              f"{row['samples_per_second']:,.0f}/s", percent(row["efficiency"]), percent(row.get("overlap")), "-")
             for row in rows]
    for count, measured in bus.items():
        for series in measured["series"]:
            if series["axis"] is None:
                continue
            best = max(series["points"], key=lambda point: point["bus_rate"])
            lines.append((series["kind"], count, f"{best['bytes'] >> 10} KiB", f"{best['seconds'] * 1e3:.3f} ms", "-",
                          "-", "-", f"{best['bus_rate'] / 1e9:.1f} GB/s"))
    table(("", "GPUs", "batch, bytes", "time", "samples", "efficiency", "overlap", "bus rate"), lines)


if __name__ == "__main__":
    main()
