#!/usr/bin/env python3
"""How long NVRTC takes for the programs of a run, one after the other and beside each other. Needs no GPU.

The fake CUDA of the tests says which texts a run compiles; its cache keeps them. The toolkit's NVRTC then compiles
them with the options of a run, for sm_90. Workloads are those of gpu_workloads.py, with a validation and smaller last
batches: as many programs as a run can have.
"""
import argparse
import concurrent.futures
import ctypes
import glob
import os
import pathlib
import subprocess
import tempfile
import time

import gpu_workloads

MARK = b"fake cubin of "
CHECKSUM = 32  # characters before the data of a cache file
OPTIONS = [b"--gpu-architecture=sm_90", b"--std=c++20", b"--fmad=false", b"--minimal", b"--split-compile=0"]


def texts_of(build, workload):
    """The texts that a run of the workload compiles."""
    labels = f"labels: [{gpu_workloads.CLASSES}]" if workload.loss == "mse" else f"classes: {gpu_workloads.CLASSES}"
    samples = workload.batch * 5 // 2
    source = f"{{source: random, samples: {samples}, shape: {list(workload.shape)}, {labels}}}"
    text = gpu_workloads.config_text(workload, source, None, 1)
    text = text.replace(f"data: {{train: {source}", f"data: {{train: {source}, validation: {source}")
    fake = build / "tests/support/fake_cuda/lib"
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "run.yaml").write_text(text)
        environment = os.environ | {"LD_LIBRARY_PATH": str(fake), "MESHTRAIN_CUDA_PATH": str(fake),
                                    "MESHTRAIN_CACHE": folder + "/cache"}
        subprocess.run([build / "app/meshtrain", "train", "run.yaml", "--devices", "gpu:0", "-o", "run", "-q"],
                       cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        files = sorted(glob.glob(folder + "/cache/**/cubin-*", recursive=True), key=os.path.getmtime)
        codes = [pathlib.Path(file).read_bytes()[CHECKSUM:] for file in files]
    assert codes and all(code.startswith(MARK) for code in codes)
    return [code.partition(b"\n")[2] for code in codes]


def compile_text(nvrtc, text):
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"meshtrain.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    status = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    assert status == 0, status


def seconds(nvrtc, texts, threads):
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda text: compile_text(nvrtc, text), texts))
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--nvrtc", default="/usr/local/cuda/lib64/libnvrtc.so")
    parser.add_argument("--only", default="a16,a64,a512,b64,c64")
    arguments = parser.parse_args()
    nvrtc = ctypes.CDLL(arguments.nvrtc)
    threads = max(2, os.cpu_count())
    print("workload  texts  first  one by one  beside each other")
    for workload in gpu_workloads.workloads().values():
        if workload.name not in arguments.only.split(","):
            continue
        texts = texts_of(arguments.build.absolute(), workload)
        first = seconds(nvrtc, texts[:1], 1)
        together = seconds(nvrtc, texts, threads)
        alone = seconds(nvrtc, texts, 1)
        print(f"{workload.name:8}  {len(texts):5}  {first:4.1f}s  {alone:9.1f}s  {together:16.1f}s")


if __name__ == "__main__":
    main()
