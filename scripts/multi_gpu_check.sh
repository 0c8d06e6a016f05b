#!/bin/bash
# What only a machine with several GPUs can show: how training scales over 1, 2, 4, ... of them.
#   scripts/multi_gpu_check.sh [--program MESHTRAIN] [--out DIR] [--gpus N] [--dry-run]
#   --program  default build/release/app/meshtrain
#   --out      report.txt, figures.json; default build/multi_gpu_check
#   --gpus     use so many; default all
#   --dry-run  tiny models, to try this script with the emulator of tests/support:
#              MESHTRAIN_GPU_LIBRARY=.../libmeshtrain_gpu_emulator.so MESHTRAIN_EMULATOR_GPUS=4
# First the same numbers: the guide's model with `reductions: fixed` must log the same losses on two GPUs
# as on two virtual devices of one. Then tests/bench/multi_gpu.py: weak scaling (batch grows with the
# GPUs) and strong scaling (it does not) of a convnet, an MLP and a transformer, how much of the
# communication is hidden behind computing, and the bus rates of the collectives; one table.
# NOT YET RUN on a machine with several GPUs.
set -euo pipefail
cd "$(dirname "$0")/.."

program=build/release/app/meshtrain
out=build/multi_gpu_check
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --program) program=${2:?} && shift ;;
    --out) out=${2:?} && shift ;;
    --gpus) arguments+=(--gpus "${2:?}") && shift ;;
    --dry-run) arguments+=(--tiny) ;;
    *)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
  esac
  shift
done
[ -x "$program" ] || { echo "there is no $program; scripts/build.sh release, or --program" >&2; exit 2; }
rm -rf "$out"
mkdir -p "$out"

count=$("$program" devices --format json |
  python3 -c 'import json, sys; print(len(json.load(sys.stdin)["gpus"]))')
if [ "$count" -lt 2 ]; then
  echo "this machine has $count GPUs; this check needs two at least" >&2
  exit 2
fi
for devices in "gpu:0x2" "gpu:0-1"; do
  "$program" train configs/keras_guide_data_parallel.yaml --devices "$devices" --mesh 2 -q \
    distribution.reductions=fixed run.log_steps=true -o "$out/${devices/:/-}"
done
virtual=$(grep '"event":"step"' "$out/gpu-0x2/metrics.jsonl")
real=$(grep '"event":"step"' "$out/gpu-0-1/metrics.jsonl")
if [ "$virtual" != "$real" ]; then
  echo "two GPUs compute other losses than one does with two virtual devices" >&2
  exit 1
fi
echo "two GPUs log the losses of one with two virtual devices, bit for bit"
python3 tests/bench/multi_gpu.py --meshtrain "$program" --save "$out/figures.json" "${arguments[@]}" |
  tee "$out/report.txt"
