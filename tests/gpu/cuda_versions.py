#!/usr/bin/env python3
"""Builds the GPU part with the headers of several versions of CUDA and opens the libraries of each.

  tests/gpu/cuda_versions.py --source DIR --work DIR [--versions 12.4,12.9,13]

Needs no GPU, but a network: the headers and libraries are NVIDIA's Python packages, about 2 GB for each version, which
stay in --work. Every build must open every version's libraries: they are chosen when the program runs. Exit status 77
where there is no network.
"""
import argparse
import pathlib
import subprocess
import sys
import venv

# Of NVIDIA's Python packages. cuDNN 9.1 and NCCL 2.21 are what PyTorch had beside CUDA 12.4.
PACKAGES = {
    "12.4": ["nvidia-cuda-runtime-cu12==12.4.*", "nvidia-cublas-cu12==12.4.*", "nvidia-cuda-nvrtc-cu12==12.4.*",
             "nvidia-cuda-nvcc-cu12==12.4.*", "nvidia-cuda-cccl-cu12==12.4.*", "nvidia-cudnn-cu12==9.1.*",
             "nvidia-nccl-cu12==2.21.*"],
    "12.9": ["nvidia-cuda-runtime-cu12==12.9.*", "nvidia-cublas-cu12==12.9.*", "nvidia-cuda-nvrtc-cu12==12.9.*",
             "nvidia-cuda-nvcc-cu12==12.9.*", "nvidia-cuda-cccl-cu12==12.9.*", "nvidia-cudnn-cu12", "nvidia-nccl-cu12"],
    "13": ["nvidia-cuda-runtime==13.*", "nvidia-cublas==13.*", "nvidia-cuda-nvrtc==13.*", "nvidia-cuda-crt==13.*",
           "nvidia-cuda-cccl==13.*", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"],
}
# What opens each library without a GPU: its version and functions; kernels compiled. No convolution is planned: cuDNN
# 9.1 knows no GPU that is not here, and 9.28 of these packages failed without a driver's library.
CASES = "each library is named with its version and file,a cubin is an ELF file*,products and sums are not contracted*"
# Found again for each version.
HEADERS = ["CUDA_*INCLUDE_DIR", "NVRTC_INCLUDE_DIR", "CUBLASLT_INCLUDE_DIR", "CUDNN_INCLUDE_DIR", "NCCL_INCLUDE_DIR"]


def run(command, **options):
    print("$", *command, flush=True)
    return subprocess.run([str(word) for word in command], check=True, **options)


def install(folder, packages):
    """The site-packages of an environment with these packages."""
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    done = folder / "complete"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        run([folder / "bin/pip", "install", "-q", "--no-deps", "--no-cache-dir", "--no-compile", *packages])
        done.touch()
    return site


def has_network(work):
    venv.create(work / "probe", with_pip=True)
    probe = subprocess.run([work / "probe/bin/pip", "--retries", "1", "index", "versions", "nvidia-nccl-cu12"],
                           capture_output=True, check=False)
    return probe.returncode == 0


def build(source, folder, site):
    """The program's GPU part and its tests, with the headers of these packages."""
    run(["cmake", "-S", source, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
         "-DMESHTRAIN_CUDA=ON", "-DMESHTRAIN_MPI=OFF", "-DMESHTRAIN_WERROR=ON", f"-DCUDAToolkit_ROOT={site / 'nvidia'}",
         *(f"-U{name}" for name in HEADERS)], stdout=subprocess.DEVNULL)
    cache = (folder / "CMakeCache.txt").read_text()
    for name in ("CUDA_INCLUDE_DIR", "CUBLASLT_INCLUDE_DIR", "CUDNN_INCLUDE_DIR", "NCCL_INCLUDE_DIR"):
        assert f"{name}:PATH={site}" in cache, f"{name} is not that of {site}"
    run(["cmake", "--build", folder, "--target", "meshtrain_cuda", "test_cuda", "--", "-j2"], stdout=subprocess.DEVNULL)
    library = folder / "app/libmeshtrain_cuda.so"
    needed = run(["readelf", "-d", library], capture_output=True, text=True).stdout
    for name in ("libcuda", "libcublas", "libcudnn", "libnvrtc", "libnccl"):
        assert f"[{name}" not in needed, f"{library} needs {name}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--versions", default=",".join(PACKAGES))
    options = parser.parse_args()
    versions = options.versions.split(",")
    options.work.mkdir(parents=True, exist_ok=True)
    work = options.work.resolve()
    if not all((work / version / "complete").exists() for version in versions) and not has_network(work):
        print("skipped: NVIDIA's packages cannot be downloaded here (no network)")
        return 77
    sites = {version: install(work / version, PACKAGES[version]) for version in versions}
    for headers in versions:
        build(options.source.resolve(), work / "build", sites[headers])
        for libraries in versions:
            run([work / "build/tests/unit/cuda/test_cuda", f"-tc={CASES}"],
                env={"PATH": "/usr/bin:/bin", "MESHTRAIN_CUDA_PATH": str(sites[libraries])}, stdout=subprocess.DEVNULL)
            print(f"built with CUDA {headers}'s headers: opens CUDA {libraries}'s libraries", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
