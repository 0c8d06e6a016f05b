#!/usr/bin/env python3
"""scripts/gpu_check.sh where there is no GPU: gpu_check_test.py PROGRAM TEST_GPU EMULATOR

From a tarball of this build, with a compute-sanitizer that checks nothing but its options. What goes wrong on the
way (a case that fails, hangs or finds no device, a finding of the sanitizer) must be said and fail the whole.
"""
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM, SUITE, EMULATOR = map(os.path.abspath, sys.argv[1:4])
SANITIZER = """#!/bin/bash
# Options that compute-sanitizer has; the one of FINDS finds something in everything.
while [ $# -gt 0 ]; do
  case $1 in
    --tool) [[ $2 =~ ^(memcheck|racecheck|initcheck)$ ]] || exit 3; tool=$2; shift 2 ;;
    --report-api-errors) [ "$2" = no ] || exit 3; shift 2 ;;
    --error-exitcode) code=$2; shift 2 ;;
    --print-limit) shift 2 ;;
    -*) exit 3 ;;
    *) break ;;
  esac
done
"$@" || exit
[ "$tool" != "${FINDS:-}" ] || exit "$code"
"""
# Speaks as a suite of doctest does.
SPEAKING = """#!/bin/sh
case " $* " in
  *--list-test-cases*)
    case " $* " in *--test-suite=specs*) ;; *) echo "[doctest] listing"; echo ===; echo "{name}"; echo === ;; esac ;;
  *) {does}; echo "[doctest] test cases: 1 | 1 passed" ;;
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

    def check(self, suites, *arguments, **environment):
        """(exit status, what it printed) of a dry run with these suites."""
        tarball = self.folder / "meshtrain.tar.gz"
        with tarfile.open(tarball, "w:gz") as tar:
            for place, file in [("bin/meshtrain", PROGRAM), *((f"libexec/{os.path.basename(s)}", s) for s in suites)]:
                link = tarfile.TarInfo(f"meshtrain-0/{place}")
                link.type, link.linkname = tarfile.SYMTYPE, file
                tar.addfile(link)
        done = subprocess.run(
            [ROOT / "scripts/gpu_check.sh", tarball, "--dry-run", "--out", self.folder / "out", *arguments],
            capture_output=True, text=True, check=False,
            env=os.environ | {"MESHTRAIN_GPU_LIBRARY": EMULATOR, "MESHTRAIN_GPU_SPECS": "iota",
                              "PATH": f"{self.folder}/tools:{os.environ['PATH']}"} | environment)
        return done.returncode, done.stdout + done.stderr

    def fails(self, text, suites, *arguments, **environment):
        code, said = self.check(suites, *arguments, **environment)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, text)
        self.assertRegex((self.folder / "out/report.txt").read_text(), r"\| FAILED \|")

    def test_cases_of_a_suite_run_by_themselves_and_under_the_sanitizer(self):
        code, said = self.check([SUITE], "--parts", "tests,sanitizer")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"tests +passed +\d+ s +\d+ processes, each with a test case, of 1 programs")
        self.assertRegex(said, r"sanitizer +passed +\d+ s +memcheck, racecheck, initcheck find nothing in \d+ processes")
        log = (self.folder / "out/tests.log").read_text()
        ran = re.findall(r"^== test_gpu: copies and fills and iotas equal the CPU's, part (\d), ", log, re.MULTILINE)
        self.assertEqual(ran, ["0", "1", "2", "3"])
        listed = len(re.findall(r"^== ", log, re.MULTILINE))
        self.assertEqual(len(re.findall(r"test cases: +1 ", log)), listed)

    def test_a_case_that_fails_is_named(self):
        good, bad = self.suite("good", "true"), self.suite("bad", "exit 1")
        self.fails(r"tests +FAILED .*1 of 2: test_bad: bad as it is said \(exit status 1\)", [good, bad],
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
        self.fails(r"sanitizer +FAILED .*3 of 9: racecheck quickstart \(exit status 86\)", [self.suite("good", "true")],
                   "--parts", "sanitizer", FINDS="racecheck")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
