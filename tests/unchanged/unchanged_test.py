#!/usr/bin/env python3
"""Checks that short trainings, plans and checkpoints are what they were, bit for bit.

  unchanged_test.py --program build/release/app/meshtrain            compares with reference.json
  unchanged_test.py --program NEW --against OLD                      compares two programs
  unchanged_test.py --program build/release/app/meshtrain --record   writes reference.json

Of each case in cases.py: the digest of the final weights and of every tensor file of every checkpoint, metrics
without times, plan.json, and the JSON of the checkpoints without dates and names of runs. Bits depend on the
processor and on oneDNN: on a machine unlike the one of the reference, only plans and file names are compared.
Exit status: 0 equal, 1 not, 2 wrong usage, 77 nothing could be run.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import cases

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REFERENCE = HERE / "reference.json"
# Keys of JSON objects that tell when, where or by whom, not what; the digest of a text that names its folder.
PASSING = {"seconds", "ms_per_step", "tokens_per_second", "run_id", "time", "self_xxh3_128", "run_dir", "config",
           "version", "devices", "parent_run", "config.resolved.yaml", "config_xxh3_128"}
# Files of a run's folder that are about this run alone, or are drawn from those that are compared.
LEFT_OUT = {"LOCK", "log.txt", "meta.json", "report.html"}


def machine():
    """What decides bits beside the program: instruction sets, caches, oneDNN."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    flags = re.search(r"^flags\s*:(.*)$", info, re.M)
    sets = sorted(f for f in (flags.group(1).split() if flags else []) if re.match(r"avx|amx|fma|sse4|f16c|bmi", f))
    caches = sorted(p.read_text().strip() for p in
                    pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    dnnl = sorted(p.name for p in pathlib.Path("/usr/lib").glob("*/libdnnl.so.*"))
    return hashlib.sha256(json.dumps([sets, caches, dnnl, os.cpu_count()]).encode()).hexdigest()[:16]


def without_passing(value):
    if isinstance(value, dict):
        return {k: without_passing(v) for k, v in value.items() if k not in PASSING}
    if isinstance(value, list):
        return [without_passing(v) for v in value]
    return value


def without_checksum(data):
    """A safetensors file as it is without metadata: of its checksum, which follows from the rest."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    if header.pop("__metadata__", None) is None:
        return data
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text + data[8 + size:]


def content(path, folder):
    """The bytes of a file that must not change; `folder` is where the program ran."""
    if path.suffix == ".json":
        return json.dumps(without_passing(json.loads(path.read_text())), sort_keys=True).encode()
    if path.suffix == ".jsonl":
        lines = path.read_text().splitlines()
        return "\n".join(json.dumps(without_passing(json.loads(line))) for line in lines).encode()
    if path.name == "weights.safetensors":
        return without_checksum(path.read_bytes())
    return path.read_bytes().replace(str(folder).encode(), b".") if path.suffix == ".yaml" else path.read_bytes()


def digests(run):
    """{file: digest} of a run's folder."""
    out = {}
    for path in sorted(p for p in run.rglob("*") if p.is_file()):
        name = str(path.relative_to(run))
        if not LEFT_OUT.isdisjoint(path.relative_to(run).parts):
            continue
        out[name] = hashlib.sha256(content(path, run.parent)).hexdigest()[:12]
    return out


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MESHTRAIN_") and k not in ("NO_COLOR",)}
    kept.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1",
                OMPI_MCA_rmaps_base_oversubscribe="1")
    return kept


def run_command(program, arguments, processes, folder):
    command = [str(program), *arguments]
    if processes > 1:
        command = ["mpirun", "--oversubscribe", "--quiet", "-np", str(processes), *command]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def run_case(program, case):
    """What one case gives: {"exit": code, "plan": digest, "files": {name: digest}}."""
    with tempfile.TemporaryDirectory(prefix="meshtrain-unchanged-") as name:
        folder = pathlib.Path(name)
        shutil.copytree(HERE, folder / "tests/unchanged", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "configs", folder / "configs")
        (folder / "datasets").symlink_to(ROOT / "datasets")
        cases.write_data(folder / "tests/unchanged")
        out = {}
        for number, step in enumerate(case.steps()):
            code, errors = run_command(program, step, case.processes, folder)
            out[f"exit {number}"] = code
            if code not in case.exits:
                out[f"error {number}"] = errors[-800:]
        plan = subprocess.run([str(program), "plan", case.config, *case.overrides, "--format", "json"], cwd=folder,
                              env=environment(), capture_output=True, timeout=300)
        out["plan"] = hashlib.sha256(plan.stdout).hexdigest()[:24]
        out["files"] = digests(folder / "run") if (folder / "run").is_dir() else {}
        return out


def differences(name, old, new, same_machine):
    """Lines that say what differs between two results of a case."""
    lines = []
    for key in sorted((old.keys() | new.keys()) - {"files"}):
        if old.get(key) != new.get(key):
            lines.append(f"{name}: {key}: was {old.get(key)}, is {new.get(key)}")
    before, after = old["files"], new["files"]
    for file in sorted(before.keys() | after.keys()):
        if file not in after or file not in before:
            lines.append(f"{name}: {file} is {'new' if file in after else 'missing'}")
        elif same_machine and before[file] != after[file]:
            lines.append(f"{name}: {file} differs")
    return lines


def run_all(program, selected, jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return dict(zip((c.name for c in selected), pool.map(lambda c: run_case(program, c), selected)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path, help="another program, in place of reference.json")
    parser.add_argument("--record", action="store_true", help="write reference.json")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    if not program.is_file():
        parser.error(f"no program {program}")
    has_mpi = shutil.which("mpirun") and (program.parent / "libmeshtrain_mpi.so").is_file()
    selected = [c for c in cases.CASES if arguments.only in c.name and (c.processes == 1 or has_mpi)]
    if not selected:
        print("skipped: no case can be run")
        return 77
    results = run_all(program, selected, arguments.jobs)
    failed = [f"{n}: {k}: {v}" for n, r in results.items() for k, v in r.items() if k.startswith("error")]
    if arguments.record:
        if failed:
            print("\n".join(failed))
            return 1
        kept = json.loads(REFERENCE.read_text()) if arguments.only else {"machine": machine(), "cases": {}}
        if kept["machine"] != machine():
            parser.error("--only keeps the other cases, which are of another machine")
        kept["cases"] |= results
        REFERENCE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(f"{len(results)} cases are written to {REFERENCE}")
        return 0
    if arguments.against:
        before, same_machine = run_all(arguments.against.resolve(), selected, arguments.jobs), True
    else:
        stored = json.loads(REFERENCE.read_text())
        before, same_machine = stored["cases"], stored["machine"] == machine()
        if not same_machine:
            print("skipped: bits, for the processor or oneDNN is not that of the reference")
    wrong = [line for c in selected for line in differences(c.name, before[c.name], results[c.name], same_machine)]
    for line in wrong:
        print(line)
    print(f"{len(selected)} cases, {len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
