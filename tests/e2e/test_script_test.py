#!/usr/bin/env python3
"""The count of scripts/test.sh, whose last line others read: test_script_test.py

A copy of the script among stand-ins for what it calls.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CTEST = """#!/bin/sh
echo "ctest $*" >>{calls}
cat <<'END'
    Start 1: test_a
1/4 Test #1: test_a ...........   Passed    0.10 sec
    Start 2: test_b
2/4 Test #2: test_b ...........{second}    0.05 sec
    Start 3: test_c
3/4 Test #3: test_c ...........***Skipped   0.01 sec
    Start 4: test_d
4/4 Test #4: test_d ...........   Passed    1.00 sec

{summary}

The following tests did not run:
	  3 - test_c (Skipped)
END
"""
LOG = """a_test.cc:7: MESSAGE: skipped: python3 has no numpy
a_test.cc:9: MESSAGE: skipped: python3 has no numpy
d_test.cc:3: MESSAGE: 12 states
d_test.cc:5: MESSAGE: skipped: no data
"""


class TestScript(unittest.TestCase):
    def run_script(self, *arguments, fails=False, ctest=CTEST):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            calls = folder / "calls"
            for place in ("scripts/build.sh", "scripts/package.sh", "scripts/install_dependencies.sh", "bin/ctest",
                          "bin/clang-format-14"):
                path = folder / place
                path.parent.mkdir(exist_ok=True)
                path.write_text(f'#!/bin/sh\necho "{path.name} $*" >>{calls}\n')
                path.chmod(0o755)
            second, summary = (("***Failed", "75% tests passed, 1 tests failed out of 4") if fails else
                               ("   Passed", "100% tests passed, 0 tests failed out of 4"))
            (folder / "bin/ctest").write_text(ctest.format(calls=calls, second=second, summary=summary))
            for place in ("tests/include_direction.py", "tests/type_names.py", "tests/pages_test.py",
                          "tests/words_test.py", "tests/readme_test.py", "lib/a.cc", "app/a.cc"):
                (folder / place).parent.mkdir(exist_ok=True)
                (folder / place).touch()
            for kind in ("release", "sanitize"):
                (folder / "build" / kind / "Testing/Temporary").mkdir(parents=True)
                (folder / "build" / kind / "Testing/Temporary/LastTest.log").write_text(LOG)
            shutil.copy(ROOT / "scripts/test.sh", folder / "scripts")
            done = subprocess.run([folder / "scripts/test.sh", *arguments], capture_output=True, text=True, check=False,
                                  env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"})
            return done.returncode, done.stdout.splitlines(), calls.read_text()

    # Format, include direction, type names, pages and words twice each, README and package are eleven checks.
    def test_skipped_tests_are_not_among_the_passed(self):
        code, lines, calls = self.run_script()
        self.assertEqual((code, lines[-2:]), (0, ["1 skipped, 3 test cases skipped in others", "14 passed, 0 failed"]))
        self.assertIn("      2 MESSAGE: skipped: python3 has no numpy", lines)
        self.assertIn("-L cpu ", calls)
        self.assertIn("install_dependencies.sh \n", calls)

    def test_quick_runs_the_suites_alone(self):
        code, lines, calls = self.run_script("--quick")
        self.assertEqual((code, lines[-1]), (0, "3 passed, 0 failed"))
        self.assertNotIn("package.sh", calls)

    def test_sanitize_builds_and_counts_its_suites_too(self):
        code, lines, calls = self.run_script("--sanitize")
        self.assertEqual((code, lines[-2:]), (0, ["2 skipped, 6 test cases skipped in others", "17 passed, 0 failed"]))
        self.assertIn("build.sh sanitize sanitized_tests\n", calls)
        self.assertIn("build/sanitize -L sanitize ", calls)

    def test_a_failed_test_is_the_exit_status(self):
        code, lines, _ = self.run_script("--quick", fails=True)
        self.assertEqual((code, lines[-2:]), (1, ["1 skipped, 3 test cases skipped in others", "2 passed, 1 failed"]))
        self.assertTrue(any(line.startswith("FAILED: 1 tests in build/release") for line in lines))

    def test_ctest_without_a_word_is_a_failure(self):
        code, lines, _ = self.run_script(ctest="#!/bin/sh\n")
        self.assertEqual((code, lines[-1]), (1, "11 passed, 1 failed"))

    def test_long_runs_everything_in_both_builds_and_installs_what_it_needs(self):
        code, _, calls = self.run_script("--quick", "--long")
        self.assertEqual(code, 0)
        self.assertIn("build/release -L cpu|cluster|long ", calls)
        self.assertIn("build.sh sanitize all\n", calls)
        self.assertIn("build/sanitize -L cpu|cluster|long ", calls)
        self.assertIn("install_dependencies.sh --long\n", calls)


if __name__ == "__main__":
    sys.exit(unittest.main())
