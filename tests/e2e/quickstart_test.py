#!/usr/bin/env python3
"""What scripts/quickstart.sh and build.sh say and run: quickstart_test.py

Copies of the scripts among stand-ins for what they call.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILT = "GPU part\tbuilt\tCUDA 13.0.48, cuDNN 9.19.0, NCCL 2.28.3\nMPI part\tbuilt\tOpen MPI 4.1.4\n"
MISSING = ("GPU part\tmissing\tno CUDA toolkit 12.4 or newer was found\tinstall cuda-toolkit-13-0\n"
           "MPI part\tbuilt\tOpen MPI 4.1.4\n")
GPU = '{"name":"NVIDIA H100","compute_capability":9.0,"memory":80,"free":79,"driver":"580.65"}'


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class Quickstart(unittest.TestCase):
    def run_script(self, parts=BUILT, gpus=0, build="exit 0"):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            calls = folder / "calls"
            write_program(folder / "scripts/install_dependencies.sh", "#!/bin/sh\n")
            write_program(folder / "scripts/build.sh", f'#!/bin/sh\necho "build.sh $*" >>{calls}\n{build}\n')
            devices = ",".join([GPU] * gpus)
            write_program(folder / "build/release/app/meshtrain", f"""#!/bin/sh
echo "meshtrain $*" >>{calls}
[ "$1" != devices ] || echo '{{"cpu":{{"cores":2}},"gpus":[{devices}]}}'
""")
            (folder / "build/release/parts.txt").write_text(parts)
            shutil.copy(ROOT / "scripts/quickstart.sh", folder / "scripts")
            done = subprocess.run([folder / "scripts/quickstart.sh"], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, calls.read_text().splitlines()

    def test_every_part_is_built_and_named(self):
        code, out, calls = self.run_script()
        self.assertEqual(code, 0)
        self.assertEqual(calls[0], "build.sh release programs")
        self.assertIn("GPU part: built with CUDA 13.0.48, cuDNN 9.19.0, NCCL 2.28.3\n", out)
        self.assertIn("MPI part: built with Open MPI 4.1.4\n", out)

    def test_what_is_left_out_comes_with_the_reason_and_the_command(self):
        code, out, _ = self.run_script(parts=MISSING)
        self.assertEqual(code, 0)
        self.assertIn("GPU part: left out, no CUDA toolkit 12.4 or newer was found\n"
                      "  to add it: install cuda-toolkit-13-0, then run scripts/quickstart.sh again\n", out)

    def test_it_trains_on_the_gpus_of_the_machine(self):
        config = "meshtrain train configs/quickstart.yaml"
        for gpus, flags in ((0, ""), (1, " --devices gpu:0x8"), (2, " --devices gpu:0-1 --mesh 2x1"),
                            (3, " --devices gpu:0-1 --mesh 2x1"), (4, " --devices gpu:0-3 --mesh 2x2"),
                            (8, " --devices gpu:0-7"), (16, " --devices gpu:0-7")):
            with self.subTest(gpus=gpus):
                code, out, calls = self.run_script(gpus=gpus)
                self.assertEqual((code, calls[-1]), (0, config + flags))
                self.assertIn(f"$ build/release/app/{config}{flags}\n", out)

    def test_a_failed_build_ends_it(self):
        code, out, calls = self.run_script(build="exit 1")
        self.assertEqual((code, calls), (1, ["build.sh release programs"]))
        self.assertNotIn("It works", out)


class Build(unittest.TestCase):
    def run_script(self, ninja, cmake=""):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_program(folder / "bin/cmake", f"""#!/bin/sh
[ "$1" = --build ] || {{ {cmake or "exit 0"}; }}
{ninja}
""")
            write_program(folder / "scripts/build.sh", (ROOT / "scripts/build.sh").read_text())
            done = subprocess.run([folder / "scripts/build.sh", "release", "programs"], capture_output=True, text=True,
                                  check=False, env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"})
            log = folder / "build/release/build.log"
            return done, log.read_text() if log.exists() else ""

    def test_progress_and_log(self):
        done, log = self.run_script("echo '[1 of 2, 3s] Building CXX object a.cc.o'")
        self.assertEqual((done.returncode, done.stdout), (0, log))
        self.assertIn("[1 of 2, 3s]", log)

    def test_a_file_that_does_not_compile_is_named(self):
        done, _ = self.run_script("""echo 'FAILED: lib/a/unity_1_cxx.cxx.o'
echo 'In file included from unity_1_cxx.cxx:3:'
echo "/src/lib/a/b.cc:7:3: error: 'x' was not declared in this scope"; exit 1""")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the release build failed: /src/lib/a/b.cc:7:3: error: 'x' was not declared", done.stderr)

    def test_a_missing_package_is_named(self):
        done, _ = self.run_script("exit 3", cmake="echo 'Install them with: apt-get install libfmt-dev'; exit 1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("apt-get install libfmt-dev", done.stderr)

    def test_a_machine_without_memory_is_named(self):
        done, _ = self.run_script("echo 'c++: fatal error: Killed signal terminated program cc1plus'; exit 1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a compiler ran out of memory; try: JOBS=1 scripts/build.sh release", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
