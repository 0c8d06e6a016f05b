# What the checks on GPUs have in common; sourced by gpu_check.sh and multi_gpu_check.sh.
# shellcheck shell=bash

# cuda_folders PYTHON: where CUDA's, cuDNN's and NCCL's libraries may lie, with colons between them: the
# toolkit's folders, the driver's, and those that pip puts beside PyTorch or JAX.
cuda_folders() {
  {
    local folder
    for folder in /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib /usr/local/nvidia/lib64 \
      /usr/local/nvidia/lib /usr/lib/x86_64-linux-gnu; do
      [ ! -d "$folder" ] || echo "$folder"
    done
    "$1" - <<'END' 2>/dev/null
import glob, site, sys
for root in dict.fromkeys(site.getsitepackages() + [site.getusersitepackages()] + sys.path):
    for folder in sorted(glob.glob(f"{root}/nvidia/*/lib")):
        print(folder)
END
  } | paste -sd:
}

# wrap_program FILE PROGRAM FOLDERS: makes FILE start PROGRAM with these folders to find libraries in. Only
# programs of ours get them: PyTorch must find its own.
wrap_program() {
  cat >"$1" <<END
#!/bin/sh
LD_LIBRARY_PATH='$3'\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec '$2' "\$@"
END
  chmod +x "$1"
}
