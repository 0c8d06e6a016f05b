#!/usr/bin/env python3
"""Seeds faults in lib/backend/cuda, one at a time, and fails where no suite on the fake CUDA finds one.

seeded_faults.py --build build/release --work DIR            builds each faulty library and runs the suites
seeded_faults.py --build build/release --work DIR --coverage  counts the lines that the suites run
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
SOURCES = ROOT / "lib/backend/cuda"

# File, text, and what stands for it.
FAULTS = {
    "an event does not wait for uploads": ("device.cc", "    core_.follow_copies();\n    core_.check(driver().cuEventRecord(event_", "    core_.check(driver().cuEventRecord(event_"),
    "a graph does not wait for uploads": ("plan.cc", "    core_.follow_copies();\n    core_.traffic.add(prepared_->traffic(), steps_);\n    core_.check(driver().cuGraphLaunch", "    core_.traffic.add(prepared_->traffic(), steps_);\n    core_.check(driver().cuGraphLaunch"),
    "single calls do not wait for uploads": ("plan.cc", "    core_.follow_copies();\n    core_.traffic.add(prepared_->traffic(), steps_);\n    for", "    core_.traffic.add(prepared_->traffic(), steps_);\n    for"),
    "the upload's event is on the wrong stream": ("device.cc", "cuEventRecord(core_.copied, core_.copies)", "cuEventRecord(core_.copied, core_.work)"),
    "downloads are on the wrong stream": ("device.cc", "static_cast<size_t>(bytes),\n                                            core_.work)", "static_cast<size_t>(bytes),\n                                            core_.copies)"),
    "nodes of a graph do not wait": ("plan.cc", "        add_all(after, ends[static_cast<size_t>(earlier)]);\n", "        (void)earlier;\n"),
    "a step does not wait for the one before": ("plan.cc", "        after = before;\n", "        after = {};\n"),
    "a step waits for one of the last calls only": ("plan.cc", "if (last.size() < 2)\n      return last;", "if (!last.empty())\n      return {last[0]};"),
    "a running graph is destroyed": ("plan.cc", "      core_.wait_for(core_.work);  // it may be running\n", ""),
    "a failed capture is not ended": ("plan.cc", "    } catch (...) {\n      driver().cuStreamEndCapture(stream, &same);\n      throw;", "    } catch (...) {\n      throw;"),
    "graphs are not destroyed": ("plan.cc", "~GraphBuilder() { driver().cuGraphDestroy(graph_); }", "~GraphBuilder() {}"),
    "addresses in windows stay": ("prepared.cc", "return value + static_cast<uint64_t>(step_ * window.stride);", "return value;"),
    "a graph keeps filters that are freed": ("prepared.cc", "    assign_workspaces();\n  } catch", "    assign_workspaces();\n    for (std::byte* data : memory_)\n      free_memory(data);\n    memory_.clear();\n  } catch"),
    "a workspace that is too small is kept": ("workspaces.cc", "if (block.bytes < bytes)", "if (block.data == nullptr)"),
    "a shared workspace is not waited for": ("workspaces.cc", "return ancestors.has(call, static_cast<size_t>(last));", "return last >= 0;"),
    "kernels are not loaded before a capture": ("modules.cc", '  core_.check(driver().cuFuncLoad(kernel), "cuFuncLoad");\n', ""),
    "the bias of another step is added": ("matmul.cc", "  std::byte* const to = matmul.result();\n  set_bias(plan, matmul);\n", "  std::byte* const to = matmul.result();\n"),
    "more alignment is promised than there is": ("matmul_layout.cc", "| static_cast<uint64_t>(step) | 16;", "| 16;\n  (void)step;"),
    "cuDNN keeps an old stream": ("conv.cc", '  core_.check(cudnn().cudnnSetStream(handle_, stream), "cudnnSetStream");\n', '  static const bool once = cudnn().cudnnSetStream(handle_, stream) == CUDNN_STATUS_SUCCESS;\n  (void)once;\n'),
    "new memory is not zeroed": ("device.cc", "cuMemsetD8Async(data, 0, size, core_.work)", "cuMemsetD8Async(data, 0, 0, core_.work)"),
    "new memory is not waited for": ("device.cc", '"cuMemsetD8Async");\n    core_.wait_for(core_.work);', '"cuMemsetD8Async");'),
    "a graph runs on whichever device is current": ("plan.cc", "    core_.make_current();\n    core_.follow_copies();\n    core_.traffic.add(prepared_->traffic(), steps_);\n    core_.check(driver().cuGraphLaunch", "    core_.follow_copies();\n    core_.traffic.add(prepared_->traffic(), steps_);\n    core_.check(driver().cuGraphLaunch"),
    "streams go before what uses them": ("device.cc", "  planner_.reset();\n  destroy_streams();", "  destroy_streams();\n  planner_.reset();"),
    "streams are left behind": ("device.cc", "  planner_.reset();\n  destroy_streams();", "  planner_.reset();"),
    "communicators are left behind": ("communicators.cc", "    finish(world_);\n}", "    return;\n}"),
    "communication is not waited for": ("plan.cc", "          hand_over(arrived_, core_.messages, core_.work);\n          waited = last;\n", "          waited = last;\n"),
    "communication does not wait": ("plan.cc", "          hand_over(ready_, core_.work, core_.messages);\n", ""),
}

# Executable, arguments, variables: the cheapest first.
SUITES = [
    ("unit/cuda/test_fake_cuda", ["-tce=*call that fails*"], {}),
    ("gpu/test_cuda_device", ["-tce=*measured*"], {"MESHTRAIN_FAKE_CUDA_KEEPS": "1"}),
    ("unit/gpu/test_gpu_pipeline", [], {"MESHTRAIN_EMULATOR_SEED": "5"}),
    ("unit/gpu/test_gpu_memory", [], {"MESHTRAIN_EMULATOR_SEED": "6"}),
    ("unit/gpu/test_gpu_programs", ["-tc=random*,repeats*"], {"MESHTRAIN_EMULATOR_SEED": "7", "MESHTRAIN_RANDOM_CASES": "4"}),
    ("unit/gpu/test_gpu_processes", ["-tc=abort*,an exception*,random steps*"],
     {"MESHTRAIN_EMULATOR_SEED": "8", "MESHTRAIN_FAKE_CUDA_KEEPS": "1"}),
    ("unit/cuda/test_fake_cuda", ["-tc=*call that fails*"], {}),
]


class Builder:
    """Compiles sources of the library as the build does, but without optimization."""

    def __init__(self, build, work, flags):
        self.build, self.work, self.flags = build, work, flags
        commands = json.loads((build / "compile_commands.json").read_text())
        words = next(shlex.split(c["command"]) for c in commands if "meshtrain_cuda_parts" in c["command"])
        keeps = [i for i, word in enumerate(words) if word.startswith(("-D", "-I", "-std", "-f", "-isystem"))]
        self.compiler = [words[0]]
        for i in keeps:
            self.compiler += words[i:i + 2] if words[i] == "-isystem" else [words[i]]
        sources = sorted(SOURCES.glob("*.cc"))
        self.objects = {source.name: self.compile(source) for source in sources}

    def compile(self, source):
        """The object of a source, unless it is newer than that."""
        to = self.work / f"{source.stem}.o"
        if to.exists() and to.stat().st_mtime > source.stat().st_mtime:
            return to
        subprocess.run([*self.compiler, *self.flags, "-w", "-c", str(source), "-o", str(to)], check=True, cwd=self.work)
        return to

    def link(self, objects, to):
        subprocess.run([self.compiler[0], *self.flags, "-shared", "-o", str(to), *map(str, objects),
                        str(self.build / "lib/backend/gpu/libmeshtrain_gpu_shared.a"), "-Wl,--exclude-libs,ALL", "-ldl",
                        "-lfmt", "-lxxhash"], check=True)
        return to

    def seed(self, number, file, text, instead):
        source = (SOURCES / file).read_text()
        if source.count(text) != 1:
            raise SystemExit(f"{file} has {source.count(text)} times:\n{text}")
        changed = self.work / f"fault_{number}.cc"
        faulty = source.replace(text, instead)
        if not changed.exists() or changed.read_text() != faulty:
            changed.write_text(faulty)
        objects = {**self.objects, file: self.compile(changed)}
        return self.link(objects.values(), self.work / f"fault_{number}.so")


def run_suite(build, work, suite, library):
    name, arguments, variables = suite
    fake = build / "tests/support/fake_cuda/lib"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(fake), "MESHTRAIN_CUDA_PATH": str(fake),
                   "MESHTRAIN_GPU_LIBRARY": str(library), "MESHTRAIN_CACHE": str(work / "cache"), **variables}
    try:
        done = subprocess.run([build / "tests" / name, *arguments], env=environment, timeout=150, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.splitlines() if re.search("fake CUDA:|values:|threw|SIG", line)]
    return lines[0].strip() if lines else f"exit code {done.returncode}"


def find_faults(options):
    builder = Builder(options.build, options.work, ["-O0"])
    missed = 0
    for number, (what, fault) in enumerate(FAULTS.items()):
        library = builder.seed(number, *fault)
        for suite in SUITES:
            words = run_suite(options.build, options.work, suite, library)
            if words:
                print(f"| {what} | {suite[0].rsplit('/')[-1]} | {words[:100]} |", flush=True)
                break
        else:
            missed += 1
            print(f"| {what} | NOT FOUND | |", flush=True)
    return 1 if missed else 0


def count_lines(options):
    builder = Builder(options.build, options.work, ["-O0", "--coverage"])
    library = builder.link(builder.objects.values(), options.work / "covered.so")
    for suite in SUITES:
        words = run_suite(options.build, options.work, suite, library)
        if words:
            print(f"{suite[0]}: {words}", file=sys.stderr)
    total = {}
    for source in sorted(SOURCES.glob("*.cc")):
        text = subprocess.run(["gcov", "-n", f"{source.stem}.o"], cwd=options.work, text=True, stdout=subprocess.PIPE).stdout
        found = re.search(rf"File '[^']*/{re.escape(source.name)}'\nLines executed:([0-9.]+)% of ([0-9]+)", text)
        total[source.name] = (float(found[1]), int(found[2])) if found else (0.0, 0)
    for name, (part, lines) in total.items():
        print(f"| {name} | {lines} | {part:.0f} % |")
    lines = sum(count for _, count in total.values())
    print(f"| all | {lines} | {sum(part * count for part, count in total.values()) / lines:.0f} % |")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--coverage", action="store_true")
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    return count_lines(options) if options.coverage else find_faults(options)


if __name__ == "__main__":
    sys.exit(main())
