#!/bin/bash
# What only a machine with several GPUs can show: how training scales over 1, 2, 4, ... of them.
#   scripts/multi_gpu_check.sh [--program MESHTRAIN] [--out DIR] [--gpus N] [--only NAME] [--python PYTHON]
#                              [--dry-run]
#   --program  default build/release/app/meshtrain
#   --out      report.txt, figures.json; default build/multi_gpu_check
#   --gpus     use so many; default all
#   --only     of the workloads those with this in their names
#   --python   the one whose packages have CUDA's libraries; else the program searches for them
#   --dry-run  tiny models, to try this script with the emulator of tests/support:
#              MESHTRAIN_GPU_LIBRARY=.../libmeshtrain_gpu_emulator.so MESHTRAIN_EMULATOR_GPUS=4
# First the same numbers: the guide's model with `reductions: fixed` must log the same losses on two GPUs
# as on two virtual devices of one. Then tests/bench/multi_gpu.py: the bus rates of the collectives, weak
# scaling (batch grows with the GPUs) and strong scaling (it does not) of a convnet, an MLP and a
# transformer, and how much of the communication is hidden behind computing; one table, line by line. What
# fails leaves the rest as it is. Exit status 0 only when nothing did.
# NOT YET RUN on a machine with several GPUs.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/gpu_libraries.sh

program=build/release/app/meshtrain
out=build/multi_gpu_check
python=python3
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --program) program=${2:?} && shift ;;
    --out) out=${2:?} && shift ;;
    --gpus | --only) arguments+=("$1" "${2:?}") && shift ;;
    --python) python=${2:?} && shift ;;
    --dry-run) arguments+=(--tiny) ;;
    *)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
  esac
  shift
done
[ -x "$program" ] || { echo "there is no $program; scripts/build.sh release, or --program" >&2; exit 2; }
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -rf "$out"/gpu-0x2 "$out"/gpu-0-1 "$out"/figures.json  # of an earlier time
wrap_program "$out/meshtrain" "$(realpath "$program")" "$(cuda_path "$python")"

count=$("$out/meshtrain" devices --format json |
  "$python" -c 'import json, sys; print(len(json.load(sys.stdin)["gpus"]))')
if [ "${count:-0}" -lt 2 ]; then
  echo "this machine has ${count:-0} GPUs; this check needs two at least" >&2
  exit 2
fi

# losses DEVICES: of every step of the guide's model there.
losses() {
  "$out/meshtrain" train configs/keras_guide_data_parallel.yaml --devices "$1" --mesh 2 -q \
    distribution.reductions=fixed run.log_steps=true -o "$out/${1/:/-}" >&2 &&
    grep '"event":"step"' "$out/${1/:/-}/metrics.jsonl"
}
same_losses() {
  local virtual real
  if virtual=$(losses gpu:0x2) && real=$(losses gpu:0-1) && [ "$virtual" = "$real" ]; then
    echo "two GPUs log the losses of one with two virtual devices, bit for bit"
  else
    echo "FAILED: two GPUs do not log the losses of one with two virtual devices"
    return 1
  fi
}
failures=0
same_losses | tee "$out/report.txt" || failures=1
"$python" tests/bench/multi_gpu.py --meshtrain "$out/meshtrain" --save "$out/figures.json" "${arguments[@]}" |
  tee -a "$out/report.txt" || failures=1
exit $failures
