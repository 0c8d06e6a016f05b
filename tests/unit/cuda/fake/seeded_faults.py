#!/usr/bin/env python3
"""Seeds faults in lib/backend/cuda, one at a time, and fails where no suite on the fake CUDA finds one.

seeded_faults.py --build build/release --work DIR              builds each faulty library, runs the suites: a table
seeded_faults.py --build build/release --work DIR --only WORD  likewise, of faults with that in their kind or name
seeded_faults.py --build build/release --work DIR --coverage   prints which part of each file the suites run
seeded_faults.py --check                                       only looks whether each text is still there, once

No source is changed: a fault is compiled in DIR, without optimization, and linked with the objects of the other files.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
SOURCES = ROOT / "lib/backend/cuda"

LAUNCH = "    core_.traffic.add(prepared_->traffic(), steps_);\n    core_.check(driver().cuGraphLaunch"
FOLLOW = "    core_.follow_copies();\n"
CURRENT = "    core_.make_current();\n"
# What nobody can observe is no fault: upload() that does not wait for its end (the driver has copied memory that is not
# pinned when the call returns).
# By kind: what is wrong, the file, a text that it has once, and what stands for that.
FAULTS = {
    "missing synchronisation": [
        ("an event does not wait for uploads", "device.cc",
         f"{FOLLOW}    core_.check(driver().cuEventRecord(event_", "    core_.check(driver().cuEventRecord(event_"),
        ("a graph does not wait for uploads", "plan.cc", FOLLOW + LAUNCH, LAUNCH),
        ("single calls do not wait for uploads", "plan.cc",
         f"{FOLLOW}    core_.traffic.add(prepared_->traffic(), steps_);\n    for",
         "    core_.traffic.add(prepared_->traffic(), steps_);\n    for"),
        ("new memory is not waited for", "device.cc", '"cuMemsetD8Async");\n    core_.wait_for(core_.work);',
         '"cuMemsetD8Async");'),
        ("communication is not waited for", "plan.cc",
         "          hand_over(arrived_, core_.messages, core_.work);\n          waited = last;\n",
         "          waited = last;\n"),
        ("communication does not wait", "plan.cc", "          hand_over(ready_, core_.work, core_.messages);\n", ""),
        ("the last communication of a step is not waited for", "plan.cc",
         "      if (last > waited)\n        hand_over(arrived_, core_.messages, core_.work);\n", ""),
        ("a running graph is destroyed", "plan.cc", "      core_.wait_for(core_.work);  // it may be running\n", ""),
    ],
    "wrong stream": [
        ("the upload's event is on the wrong stream", "device.cc", "cuEventRecord(core_.copied, core_.copies)",
         "cuEventRecord(core_.copied, core_.work)"),
        ("downloads are on the wrong stream", "device.cc", "static_cast<size_t>(bytes),\n"
         "                                            core_.work)",
         "static_cast<size_t>(bytes),\n                                            core_.copies)"),
        ("cuDNN keeps an old stream", "conv.cc", '  core_.check(cudnn().cudnnSetStream(handle_, stream), "cudnnSetStream");\n',
         "  static const bool once = cudnn().cudnnSetStream(handle_, stream) == CUDNN_STATUS_SUCCESS;\n  (void)once;\n"),
        ("products of a graph are enqueued beside it", "prepared.cc", "here, workspaces_[i], stream);",
         "here, workspaces_[i], makers_.core.work);"),
        ("kernels of a graph are enqueued beside it", "prepared.cc", "call.shared_bytes, params.data(), stream);",
         "call.shared_bytes, params.data(), makers_.core.work);"),
        ("a graph runs on whichever device is current", "plan.cc", CURRENT + FOLLOW + LAUNCH, FOLLOW + LAUNCH),
    ],
    "order in a graph": [
        ("nodes of a graph do not wait", "plan.cc", "        add_all(after, ends[static_cast<size_t>(earlier)]);\n",
         "        (void)earlier;\n"),
        ("a step does not wait for the one before", "plan.cc", "        after = last_;\n", "        after = {};\n"),
        ("a step waits for one of the last calls only", "plan.cc", "Nodes{joint(last)};", "Nodes{last[0]};"),
        ("communication in a graph waits for nothing", "plan.cc", "      continue_behind(std::move(after));\n",
         "      continue_behind(prepared.communicates(call) ? Nodes{} : std::move(after));\n"),
        ("a shared workspace is not waited for", "workspaces.cc", "return ancestors.has(call, static_cast<size_t>(last));",
         "return last >= 0;"),
    ],
    "capture": [
        ("a failed capture is not ended", "plan.cc",
         "    if (is_capturing_)\n      driver().cuStreamEndCapture(core_.captures, &graph_);\n", ""),
        ("kernels are not loaded before a capture", "modules.cc",
         '  core_.check(driver().cuFuncLoad(kernel), "cuFuncLoad");\n', ""),
        ("memory is allocated during a capture", "prepared.cc", "    gpu::Matmul here = *matmul;\n",
         '    gpu::Matmul here = *matmul;\n    free_memory(makers_.core.allocate(16, "scratch"));\n'),
        ("a communicator connects during a capture", "communicators.cc", "  try_out(*part, ranks);\n", ""),
        ("peers are connected during a capture", "communicators.cc", "  enqueue(messages, core_.messages);\n", ""),
        ("a capture is waited for", "prepared.cc", "    gpu::Matmul here = *matmul;\n",
         "    gpu::Matmul here = *matmul;\n    makers_.core.wait_for(stream);\n"),
    ],
    "stale pointer": [
        ("addresses in windows stay", "prepared.cc", "return value + static_cast<uint64_t>(step_ * window.stride);",
         "return value;"),
        ("a graph keeps filters that are freed", "prepared.cc", "  find_workspaces(module);\n  module_ = {};",
         "  find_workspaces(module);\n  for (std::byte* data : memory_)\n    free_memory(data);\n"
         "  memory_.clear();\n  module_ = {};"),
        ("the bias of another product is added", "matmul.cc",
         "  std::byte* const to = matmul.result();\n  set_bias(plan, matmul);\n",
         "  std::byte* const to = matmul.result();\n"),
        ("new memory is not zeroed", "device.cc", "cuMemsetD8Async(data, 0, size, core_.work)",
         "cuMemsetD8Async(data, 0, 0, core_.work)"),
        ("a workspace that grows frees what graphs use", "workspaces.cc", "    block = {data, bytes};",
         "    free_memory(block.data);\n    std::erase(all_, block.data);\n    block = {data, bytes};"),
    ],
    "swapped or wrong descriptor": [
        ("the operands of a product are swapped", "matmul.cc", "matmul.spec.b,\n"
         "                                         plan.first.get(), matmul.spec.a,",
         "matmul.spec.a,\n                                         plan.first.get(), matmul.spec.b,"),
        ("the layouts of a product are swapped", "matmul.cc", "plan->first = matrix_layout(layout.first, matmul.b_step);\n"
         "  plan->second = matrix_layout(layout.second, matmul.a_step);",
         "plan->second = matrix_layout(layout.first, matmul.b_step);\n"
         "  plan->first = matrix_layout(layout.second, matmul.a_step);"),
        ("a batch has the step of another operand", "matmul.cc", "matrix_layout(layout.second, matmul.a_step)",
         "matrix_layout(layout.second, matmul.b_step)"),
        ("input and output of a convolution are swapped", "conv.cc", "{x, kernel, y};\n  const std::array<int64_t, 3> uids",
         "{y, kernel, x};\n  const std::array<int64_t, 3> uids"),
        ("strides and dilations of a convolution are swapped", "conv.cc",
         "FILTER_STRIDES, layout.steps);", "FILTER_STRIDES, layout.dilations);"),
        ("more alignment is promised than there is", "matmul_layout.cc", "| static_cast<uint64_t>(step) | 16;",
         "| 16;\n  (void)step;"),
        ("a workspace that is too small is kept", "workspaces.cc", "if (block.bytes < bytes)", "if (block.data == nullptr)"),
        ("a kernel gets no more shared memory than by default", "modules.cc",
         "constexpr unsigned kSharedByDefault = 48 * 1024;", "constexpr unsigned kSharedByDefault = 1024 * 1024;"),
    ],
    "leak, or too early an end": [
        ("graphs are not destroyed", "plan.cc", "    if (graph_ != nullptr)\n      driver().cuGraphDestroy(graph_);\n", ""),
        ("a graph that cannot be uploaded stays", "plan.cc",
         '      driver().cuGraphExecDestroy(graph_);\n      core.check(status, "cuGraphUpload");',
         '      core.check(status, "cuGraphUpload");'),
        ("streams go before what uses them", "device.cc", "  planner_.reset();\n  destroy_streams();",
         "  destroy_streams();\n  planner_.reset();"),
        ("streams are left behind", "device.cc", "  planner_.reset();\n  destroy_streams();", "  planner_.reset();"),
        ("communicators are left behind", "communicators.cc", "    finish(world_);\n}", "    return;\n}"),
        ("modules are not unloaded", "modules.cc", "  driver().cuModuleUnload(module_);\n", ""),
        ("programs of the compiler stay", "nvrtc.cc", "~Program() { nvrtc().nvrtcDestroyProgram(&program_); }", "~Program() {}"),
        ("descriptors of cuDNN stay", "cudnn.cc", "    cudnn().cudnnBackendDestroyDescriptor(object_);\n", "    (void)0;\n"),
        ("memory whose zeroing fails stays", "device.cc", "    free_memory(memory);\n    throw;", "    throw;"),
    ],
    "error that is not noticed": [
        ("a launch that fails is taken for done", "core.cc", "  check(driver().cuLaunchKernel(", "  static_cast<void>(driver().cuLaunchKernel("),
        ("an error of the other processes is not looked for", "core.cc", "      communicators->check();\n", ""),
        ("an end that was brought about by an abort counts", "core.cc", "  communicators->check_aborted();\n", ""),
    ],
}

# Executable, arguments, variables: the cheapest first. They are those of CMakeLists.txt.
SUITES = [
    ("unit/cuda/test_fake_cuda", ["-tce=*call*that fails*"], {}),
    ("gpu/test_cuda_device", ["-tce=*measured*"], {"MESHTRAIN_FAKE_CUDA_KEEPS": "1"}),
    ("unit/gpu/test_gpu_pipeline", [], {"MESHTRAIN_EMULATOR_SEED": "5"}),
    ("unit/gpu/test_gpu_memory", [], {"MESHTRAIN_EMULATOR_SEED": "6"}),
    ("unit/gpu/test_gpu_programs", ["-tc=random*,repeats*"], {"MESHTRAIN_EMULATOR_SEED": "7", "MESHTRAIN_RANDOM_CASES": "2"}),
    ("unit/gpu/test_gpu_processes", ["-tc=abort*,an exception*,random steps*"],
     {"MESHTRAIN_EMULATOR_SEED": "8", "MESHTRAIN_FAKE_CUDA_KEEPS": "1"}),
    ("unit/cuda/test_fake_cuda", ["-tc=*call*that fails*"], {}),
]
SUITE_SECONDS = 60  # they take 0.3 to 3 s


def seeded(file, text, instead):
    """The source with the fault."""
    source = (SOURCES / file).read_text()
    if source.count(text) != 1:
        raise SystemExit(f"{file} has {source.count(text)} times:\n{text}")
    return source.replace(text, instead)


class Builder:
    """Compiles sources of the library as the build does, but without optimization."""

    def __init__(self, options, flags, as_one=False):
        self.build, self.work, self.flags = options.build, options.work, flags
        commands = json.loads((self.build / "compile_commands.json").read_text())
        words = next(shlex.split(c["command"]) for c in commands if "meshtrain_cuda_parts" in c["command"])
        keeps = [i for i, word in enumerate(words) if word.startswith(("-D", "-I", "-std", "-f", "-isystem"))]
        self.compiler = [words[0]]
        for i in keeps:
            self.compiler += words[i:i + 2] if words[i] == "-isystem" else [words[i]]
        headers = max(header.stat().st_mtime for header in (ROOT / "lib/backend").rglob("*.h"))
        sources = sorted(SOURCES.glob("*.cc"))
        if as_one:
            one = self.work / "all.cc"
            one.write_text("".join(f'#include "{source}"\n' for source in sources))
            sources = [one]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            objects = pool.map(lambda source: self.compile(source, headers), sources)
        self.objects = dict(zip((source.name for source in sources), objects, strict=True))

    def compile(self, source, headers=0.0):
        """The object of a source, unless it is newer than that and its headers."""
        to = self.work / f"{source.stem}.o"
        if not to.exists() or to.stat().st_mtime < max(source.stat().st_mtime, headers):
            subprocess.run([*self.compiler, *self.flags, "-w", "-c", str(source), "-o", str(to)], check=True, cwd=self.work)
        return to

    def link(self, objects, to):
        subprocess.run([self.compiler[0], *self.flags, "-shared", "-o", str(to), *map(str, objects),
                        str(self.build / "lib/backend/gpu/libmeshtrain_gpu_shared.a"), "-Wl,--exclude-libs,ALL", "-ldl",
                        "-lfmt", "-lxxhash"], check=True)
        return to

    def seed(self, name, file, text, instead):
        changed = self.work / f"{re.sub('[^a-z]', '_', name)}.cc"
        changed.write_text(seeded(file, text, instead))
        objects = {**self.objects, file: self.compile(changed)}
        library = self.link(objects.values(), changed.with_suffix(".so"))
        objects[file].unlink()
        return library


def run_suite(options, suite, library):
    """What it found; "" for nothing."""
    name, arguments, variables = suite
    fake = options.build / "tests/support/fake_cuda/lib"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(fake), "MESHTRAIN_CUDA_PATH": str(fake),
                   "MESHTRAIN_GPU_LIBRARY": str(library), "MESHTRAIN_CACHE": str(options.work / "cache"), **variables}
    try:
        done = subprocess.run([options.build / "tests" / name, "--abort-after=1", *arguments], env=environment,
                              timeout=SUITE_SECONDS, text=True, errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
    except subprocess.TimeoutExpired:
        return "does not end"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stdout.splitlines()]
    words = [line for line in lines if line.startswith("fake CUDA:") or re.search("threw|SIG", line)]
    words += [line for line in lines if line.startswith("values:") and not line.endswith("( false )")]
    text = words[0] if words else f"exit code {done.returncode}"
    return re.sub(r"^(values: CHECK|fake CUDA)\W*|(\s*==)?\s*\)$", "", text).replace("|", "/")[:60].strip()


def find_faults(options):
    builder = Builder(options, ["-O0"])

    def find(kind, fault):
        library = builder.seed(*fault)
        for suite in SUITES:
            words = run_suite(options, suite, library)
            if words:
                library.unlink()
                return kind, fault[0], suite[0].rsplit("/")[-1], words
        return kind, fault[0], "", "NOT FOUND"

    missed = 0
    print("| kind | fault | found by | words of the problem |\n|---|---|---|---|")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        pairs = [(kind, fault) for kind, faults in FAULTS.items() for fault in faults
                 if options.only in kind or options.only in fault[0]]
        for row in pool.map(find, *zip(*pairs, strict=True)):
            print(f"| {' | '.join(row)} |", flush=True)
            missed += row[-1] == "NOT FOUND"
    return 1 if missed else 0


def count_lines(options):
    builder = Builder(options, ["-O0", "--coverage"], as_one=True)
    library = builder.link(builder.objects.values(), options.work / "covered.so")
    for counts in options.work.glob("*.gcda"):
        counts.unlink()
    for suite in SUITES:
        words = run_suite(options, suite, library)
        if words:
            print(f"{suite[0]}: {words}", file=sys.stderr)
    return print_coverage(options.work)  # lines that were not run are marked in DIR/*.gcov


def print_coverage(folder):
    lines = run = 0
    print("| file | lines | run |\n|---|---:|---:|")
    text = subprocess.run(["gcov", "all.o"], cwd=folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False).stdout
    for source in sorted(SOURCES.glob("*.cc")):
        found = re.search(rf"File '[^']*/{re.escape(source.name)}'\nLines executed:([0-9.]+)% of ([0-9]+)", text)
        part, count = (float(found[1]), int(found[2])) if found else (0.0, 0)
        print(f"| {source.name} | {count} | {part:.0f} % |")
        lines, run = lines + count, run + part * count / 100
    print(f"| all | {lines} | {100 * run / lines:.0f} % |")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        for fault in (fault for faults in FAULTS.values() for fault in faults):
            seeded(*fault[1:])
        return 0
    if options.build is None or options.work is None:
        parser.error("--build and --work are needed")
    options.build = options.build.resolve()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    return count_lines(options) if options.coverage else find_faults(options)


if __name__ == "__main__":
    sys.exit(main())
