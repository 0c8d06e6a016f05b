#!/usr/bin/env python3
"""Builds on machines without CUDA or MPI: without_parts_test.py CMAKE

Configures the tree as such a machine does and compiles the two files that name what is missing.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CMAKE = "cmake"
TOOLKIT = "install cuda-toolkit-13-0 (from NVIDIA's repository, or any from 12.4 on)"
MPI = "install libopenmpi-dev and openmpi-bin"


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}")


class WithoutParts(unittest.TestCase):
    def check(self, options, gpu, mpi, write=()):
        """`options` for CMake; `gpu` and `mpi`: why the part is missing and what adds it."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for file, text in write:
                (folder / file).write_text(text)
            build = folder / "build"
            run(CMAKE, "-S", ROOT, "-B", build, "-G", "Ninja", "-DMESHTRAIN_TESTS=OFF",
                "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DCMAKE_BUILD_TYPE=Debug",  # texts stay whole in the objects
                *(option.format(folder=folder) for option in options))
            self.assertEqual((build / "parts.txt").read_text(),
                             "".join(f"{part} part\tmissing\t{why}\t{cure}\n"
                                     for part, (why, cure) in (("GPU", gpu), ("MPI", mpi))))
            for part, (why, cure), target in (("gpu", gpu, "backend"), ("mpi", mpi, "comm")):
                files = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True,
                                       text=True, check=True).stdout.splitlines()
                objects = [line.split(":")[0] for line in files if f"lib/{target}/" in line
                           and f"/{part}/load.cc.o:" in line]
                self.assertEqual(len(objects), 1, objects)
                run("ninja", "-C", build, objects[0])
                code = (build / objects[0]).read_bytes()
                for text in (why, cure):
                    self.assertTrue(text.encode() + b"\0" in code, text)

    def test_no_toolkit_and_no_mpi(self):
        # What an old toolkit's header says; a machine without any gives the same reason.
        self.check(["-DCUDA_INCLUDE_DIR={folder}", "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON"],
                   ("no CUDA toolkit 12.4 or newer was found", TOOLKIT), ("no MPI was found", MPI),
                   write=[("cuda.h", "#define CUDA_VERSION 11080\n")])

    def test_switched_off(self):
        self.check(["-DMESHTRAIN_CUDA=OFF", "-DMESHTRAIN_MPI=OFF"],
                   ("configured with -DMESHTRAIN_CUDA=OFF", "configure it with -DMESHTRAIN_CUDA=ON"),
                   ("configured with -DMESHTRAIN_MPI=OFF", "configure it with -DMESHTRAIN_MPI=ON"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        CMAKE = sys.argv.pop(1)
    unittest.main()
