#!/usr/bin/env python3
"""Where the time of a build goes, as Markdown: build_times.py build/release [--files N]

Reads ninja's log: seconds from start to end of each command, which are processor seconds when no more commands run at
once than there are cores. Measure a build from nothing; of a later build only the newest command of each file counts.
"""
import argparse
import collections
import pathlib
import re


def commands(build):
    """Output file -> seconds, of the log's newest entry for it."""
    seconds = {}
    for line in (pathlib.Path(build) / ".ninja_log").read_text().splitlines():
        fields = line.split("\t")
        if len(fields) >= 4:  # not the heading
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def module_of(output):
    for pattern, name in ((r"meshtrain_simd_", "backend, vector loops"), (r"backend/cuda/", "backend, cuda"),
                          (r"comm/mpi/", "comm, MPI"), (r"^lib/(\w+)/", None), (r"^app/", "app"),
                          (r"^tests/", "tests")):
        match = re.search(pattern, output)
        if match:
            return name or match.group(1)
    return "other"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="folder of a build by ninja")
    parser.add_argument("--files", type=int, default=15, help="how many of the slowest files (15)")
    arguments = parser.parse_args()
    seconds = commands(arguments.build)
    compiles = {output: time for output, time in seconds.items() if output.endswith(".o")}
    modules = collections.defaultdict(lambda: [0.0, 0])
    for output, time in compiles.items():
        modules[module_of(output)][0] += time
        modules[module_of(output)][1] += 1
    print("| module | seconds | compilations |\n|---|---:|---:|")
    for name, (total, count) in sorted(modules.items(), key=lambda row: -row[1][0]):
        print(f"| {name} | {total:.1f} | {count} |")
    rest = sum(seconds.values()) - sum(compiles.values())
    print(f"| linking and the rest | {rest:.1f} | |\n| all | {sum(seconds.values()):.1f} | {len(compiles)} |\n")
    print("| file | seconds |\n|---|---:|")
    for output, time in sorted(compiles.items(), key=lambda row: -row[1])[:arguments.files]:
        print(f"| {re.sub(r'CMakeFiles/|[.]dir|[.]o$', '', output)} | {time:.1f} |")


if __name__ == "__main__":
    main()
