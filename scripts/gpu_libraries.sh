# What the checks on GPUs have in common; sourced by gpu_check.sh and multi_gpu_check.sh.
# shellcheck shell=bash

# cuda_path PYTHON: what MESHTRAIN_CUDA_PATH shall be: as it is set, else the packages of this Python where they
# have all of CUDA's libraries; "" leaves the search to the program.
cuda_path() {
  if [ -n "${MESHTRAIN_CUDA_PATH:-}" ]; then
    echo "$MESHTRAIN_CUDA_PATH"
    return
  fi
  "$1" - <<'END' 2>/dev/null
import glob, site, sys
for root in dict.fromkeys(site.getsitepackages() + [site.getusersitepackages()] + sys.path):
    if all(glob.glob(f"{root}/nvidia/*/lib/lib{name}.so.*") for name in ("cublasLt", "nvrtc", "cudnn", "nccl")):
        print(root)
        break
END
}

# wrap_program FILE PROGRAM CUDA_PATH: makes FILE start PROGRAM with CUDA's libraries from there.
wrap_program() {
  cat >"$1" <<END
#!/bin/sh
MESHTRAIN_CUDA_PATH='$3' exec '$2' "\$@"
END
  chmod +x "$1"
}
