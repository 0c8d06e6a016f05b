#!/usr/bin/env python3
"""scripts/gpu_check.sh where there is no GPU: gpu_check_test.py PROGRAM TEST_GPU EMULATOR

From a tarball of this build, with a compute-sanitizer that is played: it knows its options, and whether a suite
has opened the GPU's library. What goes wrong on the way (a case that fails, hangs or finds no device, a finding of
the sanitizer) must be said and fail the whole.
"""
import io
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

import equality
import nccl

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM, SUITE, EMULATOR = map(os.path.abspath, sys.argv[1:4])
SANITIZER = """#!/bin/bash
# Options that compute-sanitizer has; the one of FINDS finds something in everything. TRACKS: as 2026.4 is.
filter=
while [ $# -gt 0 ]; do
  case $1 in
    --help) [ -z "${TRACKS:-}" ] || echo '  --initcheck-track-filtered-global-memory arg (=yes)'; exit ;;
    --tool) [[ $2 =~ ^(memcheck|racecheck|initcheck|synccheck)$ ]] || exit 3; tool=$2; shift 2 ;;
    --report-api-errors) [ "$2" = no ] || exit 3; shift 2 ;;
    --error-exitcode) code=$2; shift 2 ;;
    --print-limit) shift 2 ;;
    --port) [[ $2 =~ ^[0-9]+$ ]] || exit 3; shift 2 ;;
    --kernel-name) [[ $2 = regex=* ]] || exit 3; filter+="|${2#regex=}"; shift 2 ;;
    --racecheck-num-workers) [ "$tool" = racecheck ] || exit 3; shift 2 ;;
    -*) exit 3 ;;
    *) break ;;
  esac
done
if [ -n "${UNSUPPORTED:-}" ]; then
  echo '========= Error: Device not supported. Please refer to the "Supported Devices" section'
  exit 255
fi
# Kernels of this program and of a library: the library's are no business of two of the tools, and before 2026.4
# what they write must be seen.
for kernel in copy_1f_x3_2 chain_0a_4 sm90_gemm_x9_tn; do
  [[ -z $filter || $kernel =~ ${filter#|} ]] && checked+=" $kernel"
done
case $tool in
  racecheck | synccheck) wanted=" copy_1f_x3_2 chain_0a_4" ;;
  memcheck) wanted=" copy_1f_x3_2 chain_0a_4 sm90_gemm_x9_tn" ;;
  initcheck) wanted=" copy_1f_x3_2 chain_0a_4"; [ -n "${TRACKS:-}" ] || wanted+=" sm90_gemm_x9_tn" ;;
esac
[ "$checked" = "$wanted" ] || exit 4
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
LD_DEBUG=files LD_DEBUG_OUTPUT=$logs/log "$@" || exit
# What a dry run trains is on the processor.
if [[ " $* " != *" --devices cpu"* ]] && ! grep -rqF "$MESHTRAIN_GPU_LIBRARY" "$logs"; then
  echo "========= Error: Target application terminated before first instrumented API call"
  exit 255
fi
[ "$tool" != "${FINDS:-}" ] || exit "$code"
"""
# Speaks as a suite of doctest does.
SPEAKING = """#!/bin/sh
case " $* " in
  *--list-test-cases*)
    case " $* " in *--test-suite=parts*) ;; *) echo "[doctest] listing"; echo ===; echo "{name}"; echo === ;; esac ;;
  *) LD_PRELOAD=$MESHTRAIN_GPU_LIBRARY /bin/true; {does}; echo "[doctest] test cases: 1 | 1 passed" ;;
esac
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.write("tools/compute-sanitizer", SANITIZER)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def suite(self, name, does):
        return self.write(f"suites/test_{name}", SPEAKING.format(name=f"{name} as it is said", does=does))

    def check(self, suites, *arguments, program=PROGRAM, sources=None, **environment):
        """(exit status, what it printed) of a dry run with these suites."""
        if sources is None:
            sources = subprocess.run(ROOT / "scripts/source_sum.sh", capture_output=True, check=True).stdout
        tarball = self.folder / "meshtrain.tar.gz"
        with tarfile.open(tarball, "w:gz") as tar:
            for place, file in [("bin/meshtrain", program), *((f"libexec/{os.path.basename(s)}", s) for s in suites)]:
                link = tarfile.TarInfo(f"meshtrain-0/{place}")
                link.type, link.linkname = tarfile.SYMTYPE, file
                tar.addfile(link)
            file = tarfile.TarInfo("meshtrain-0/SOURCES")
            file.size = len(sources)
            tar.addfile(file, io.BytesIO(sources))
        done = subprocess.run(
            [ROOT / "scripts/gpu_check.sh", tarball, "--dry-run", "--out", self.folder / "out", *arguments],
            capture_output=True, text=True, check=False,
            env=os.environ | {"MESHTRAIN_GPU_LIBRARY": EMULATOR, "MESHTRAIN_GPU_SPECS": "iota",
                              "PATH": f"{self.folder}/tools:{os.environ['PATH']}"} | environment)
        return done.returncode, done.stdout + done.stderr

    def fails(self, text, suites, *arguments, **options):
        code, said = self.check(suites, *arguments, **options)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, text)
        self.assertRegex((self.folder / "out/report.txt").read_text(), r"\| FAILED \|")

    def test_cases_of_a_suite_run_by_themselves_and_under_the_sanitizer(self):
        code, said = self.check([SUITE], "--parts", "tests,sanitizer")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"tests +passed +\d+ s +\d+ processes, each with a test case, of 1 programs")
        self.assertRegex(said, r"sanitizer +passed .* memcheck, initcheck, synccheck, racecheck find nothing in \d+ proc")
        log = (self.folder / "out/sanitizer.log").read_text()
        ran = re.findall(r"^== (\w+) (\w+)", log, re.MULTILINE)
        self.assertEqual(ran[0], ("memcheck", "quickstart"))
        models = ["quickstart", "jax_guide_convnet"]
        self.assertEqual({tool: [what for t, what in ran if t == tool and what != "test_gpu"] for tool, _ in ran},
                         {"memcheck": models, "initcheck": models, "synccheck": [], "racecheck": models})
        self.assertEqual(re.findall(r"^== synccheck test_gpu: (\w+)", log, re.MULTILINE),
                         ["reductions", "scans", "lookups", "rows"])
        self.assertNotIn("calls order what conflicts", log)  # which opens no device
        log = (self.folder / "out/tests.log").read_text()
        ran = re.findall(r"^== test_gpu: copies and fills and iotas equal the CPU's, part (\d), ", log, re.MULTILINE)
        self.assertEqual(ran, ["0", "1", "2", "3"])
        listed = len(re.findall(r"^== ", log, re.MULTILINE))
        self.assertEqual(len(re.findall(r"test cases: +1 ", log)), listed)

    def test_processes_for_which_there_is_no_shared_memory_are_left_out(self):
        usage = mock.Mock(free=500_000_000)
        with mock.patch("nccl.shutil.disk_usage", return_value=usage), mock.patch("nccl.os.geteuid", return_value=1000), \
                mock.patch("builtins.print") as said:
            self.assertEqual(nccl.counts_that_fit([2, 4, 8]), [2, 4])
        self.assertIn("not run: 8 processes: /dev/shm has 476 MiB free", said.call_args[0][0])

    def test_losses_below_one_are_compared_by_their_own_size(self):
        class Losses:
            def losses(self, _, devices, *__, **___):
                return [0.09] if devices == "cpu:8" else [0.09 * (1 + 2e-4)]
        with self.assertRaisesRegex(equality.Failed, "is 0.0002 from the CPU's losses, first at step 1"):
            equality.compare(Losses(), "quickstart", "gpu:0")

    def test_a_tarball_of_other_sources_is_refused(self):
        self.fails(r"build +FAILED .*meshtrain.tar.gz is of other sources than these; make it anew: scripts/package.sh",
                   [], "--parts", "tests", sources=b"0123456789abcdef\n")

    def test_a_case_that_fails_is_named(self):
        good, bad = self.suite("good", "true"), self.suite("bad", "exit 1")
        self.fails(r"tests +FAILED .*1 of 2: test_bad: bad as it is said \(exit status 1\)", [good, bad],
                   "--parts", "tests")

    def test_a_model_that_does_not_train_leaves_the_other_parts(self):
        program = self.write("tools/meshtrain", f"""#!/bin/sh
case " $* " in *jax_guide_convnet*) echo "error: no cuDNN here" >&2; exit 4 ;; esac
exec {PROGRAM} "$@"
""")
        self.fails(r"build +FAILED .*jax_guide_convnet.*: error: no cuDNN here(.|\n)*tests +passed",
                   [self.suite("good", "true")], "--parts", "tests", program=program)

    def test_a_case_that_is_killed_with_its_shell_is_no_success(self):
        bad = self.suite("late", "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat)")
        self.fails(r"tests +FAILED .*1 of 2: test_late: .*\(exit status killed\)", [self.suite("good", "true"), bad],
                   "--parts", "tests")

    def test_a_case_without_a_device_is_no_success(self):
        self.fails("tests +FAILED .*skipped: no GPU here", [self.suite("none", "echo 'skipped: no GPU here'")],
                   "--parts", "tests")

    def test_a_suite_that_does_not_start_is_no_success(self):
        self.fails("tests +FAILED .*does not list its cases", [self.write("suites/test_x", "#!/bin/sh\nexit 127\n")],
                   "--parts", "tests")

    def test_what_hangs_is_ended_in_time(self):
        began = time.monotonic()
        self.fails(r"tests +FAILED .*\(out of time\)", [self.suite("slow", "sleep 600")], "--parts", "tests",
                   "--budget", "12")
        self.assertLess(time.monotonic() - began, 60)

    def test_a_finding_of_one_tool_is_a_failure(self):
        self.fails(r"sanitizer +FAILED .*3 of 8: racecheck quickstart \(exit status 86\)", [self.suite("good", "true")],
                   "--parts", "sanitizer", FINDS="racecheck")

    def test_initcheck_looks_at_all_kernels_unless_it_sees_what_the_others_write(self):
        code, said = self.check([], "--parts", "sanitizer", "--only", "initcheck", TRACKS="1")
        self.assertEqual(code, 0, said)

    def test_a_sanitizer_that_cannot_check_this_device_is_tried_once(self):
        code, said = self.check([self.suite("good", "true")], "--parts", "sanitizer", UNSUPPORTED="1")
        self.assertEqual(code, 0, said)  # of a dry run; where a GPU is, what cannot be checked has failed
        self.assertRegex(said, "sanitizer +skipped .*Device not supported")
        log = (self.folder / "out/sanitizer.log").read_text()
        self.assertEqual(re.findall(r"^== ([^,]+)", log, re.MULTILINE), ["memcheck quickstart"])

    def test_only_what_is_asked_for_runs(self):
        good, bad = self.suite("good", "true"), self.suite("bad", "exit 1")
        code, said = self.check([good, bad], "--parts", "tests", "--only", "good as")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"tests +passed .* 1 processes")
        self.fails("tests +FAILED .*nothing has 'good ones' in its name", [good, bad], "--parts", "tests",
                   "--only", "good ones")

    def test_random_models_are_on_the_gpu_where_the_tests_run_and_not_under_the_sanitizer(self):
        suite = self.suite("random_x", 'test "$MESHTRAIN_TEST_GPU" = 1 || exit 1')
        code, said = self.check([suite], "--parts", "tests,sanitizer")
        self.assertEqual(code, 0, said)
        self.assertNotIn("random_x", (self.folder / "out/sanitizer.log").read_text())
        self.assertLessEqual(len(list((self.folder / "out").iterdir())), 8)


class Repeats(unittest.TestCase):
    """Of equality.py, with runs that are played."""

    def runs(self, count, left):
        runner = mock.Mock(left=lambda: left)
        with mock.patch("equality.weights_of", return_value="0" * 64), \
                mock.patch("time.monotonic", side_effect=itertools.count()):
            said = equality.repeat(runner, "quickstart", "cpu", count)
        self.assertEqual(runner.train.call_args.args[-1], "--no-cuda-graph")
        self.assertIn(f"{runner.train.call_count - 1} runs and one without a graph", said)
        return runner.train.call_count - 1

    def test_all_repeats_are_had_where_there_is_time(self):
        self.assertEqual(self.runs(20, left=100), 20)

    def test_too_little_time_leaves_five(self):
        self.assertEqual(self.runs(20, left=0), equality.FEWEST_REPEATS)
        self.assertEqual(self.runs(2, left=0), 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
