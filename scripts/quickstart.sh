#!/bin/bash
# From a fresh Debian 12 machine to a trained model: installs what is missing, builds the program with its
# GPU and MPI parts, trains a small network on a 2 x 4 mesh: on this machine's GPUs where there are some,
# else on eight virtual devices of the processor. Ends with what to try next.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
echo "Building meshtrain in build/release (minutes the first time, then seconds)"
scripts/build.sh release programs

# One line for each part: "GPU part<tab>built<tab>with what", or "...<tab>missing<tab>why<tab>what adds it".
echo
while IFS=$'\t' read -r part state about cure; do
  if [ "$state" = built ]; then
    echo "$part: built with $about"
  else
    echo "$part: left out, $about"
    echo "  to add it: $cure, then run scripts/quickstart.sh again"
  fi
done <build/release/parts.txt

meshtrain=build/release/app/meshtrain
config=configs/quickstart.yaml
# The mesh has eight devices: eight GPUs, fewer GPUs with a smaller mesh, or virtual devices of one GPU.
gpus=$("$meshtrain" devices --format json | grep -o '"compute_capability"' | wc -l || true)
if [ "$gpus" -ge 8 ]; then
  run=("$config" --devices gpu:0-7)
elif [ "$gpus" -ge 4 ]; then
  run=("$config" --devices gpu:0-3 --mesh 2x2)
elif [ "$gpus" -ge 2 ]; then
  run=("$config" --devices gpu:0-1 --mesh 2x1)
elif [ "$gpus" -eq 1 ]; then
  run=("$config" --devices gpu:0x8)
else
  run=("$config")
fi
printf '\n$ %s\n' "$meshtrain train ${run[*]}"
"$meshtrain" train "${run[@]}"

cat <<END

It works. The same model on a 4 x 2 mesh, and what goes where before it runs:
  $meshtrain train $config --mesh 4x2
  $meshtrain plan $config
END
