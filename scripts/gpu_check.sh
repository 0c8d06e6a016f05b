#!/bin/bash
# Everything that only a GPU can show, in nine minutes, without a network and without Debian's packages:
#   scripts/gpu_check.sh [TARBALL] [--parts build,tests,sanitizer,equality,bench,nccl] [--out DIR]
#                        [--budget SECONDS] [--python PYTHON] [--dry-run]
#   TARBALL    of scripts/package.sh --with-tests; default that in build/
#   --parts    only these, and build, which the others need; default all but nccl
#   --out      report.txt and the logs; default $OUT, else build/gpu_check
#   --budget   for all parts together; a part that is left out gives its share to the others
#   --python   the one with PyTorch and JAX, for bench
#   --dry-run  on the CPU, tiny: tries this script where there is no GPU, proves nothing about one
# build      unpacks the tarball, or builds from source where there is none but the libraries are; the
#            program starts and sees the GPU
# tests      the suites of libexec/ on the GPU
# sanitizer  a part of them, and short runs, under compute-sanitizer: memcheck, racecheck, initcheck
# equality   tests/gpu/equality.py: the guides' models on CPU, GPU and eight virtual devices; repeats
# bench      tests/bench/gpu_bench.py: beside PyTorch and JAX
# nccl       tests/gpu/nccl.py: 2, 4 and 8 processes on the one GPU beside one process; for a dry run
#            MESHTRAIN_GPU_LIBRARY names the emulator
# One line a part, then a table. Exit status 0 only when every part that was asked for passed.
set -uo pipefail
from=$PWD
cd "$(dirname "$0")/.." || exit 1

# Parts of the time; build takes the few seconds it needs.
declare -A share=([tests]=20 [sanitizer]=22 [equality]=15 [bench]=40 [nccl]=50)
tarball=
parts="tests sanitizer equality bench"
out=${OUT:-build/gpu_check}
budget=525
python=python3
dry_run=

usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --parts) parts=${2:-}; parts=${parts//,/ }; shift ;;
    --out) out=${2:-}; shift ;;
    --budget) budget=${2:-}; shift ;;
    --python) python=${2:-}; shift ;;
    --dry-run) dry_run=1 ;;
    -*) usage ;;
    *) tarball=$1 ;;
  esac
  shift || usage
done
shares=0
parts=" $parts "
parts=${parts/ build / }
for part in $parts; do
  [ -n "${share[$part]:-}" ] || usage
  shares=$((shares + share[$part]))
done
if [ -z "$out" ] || ! [ "$budget" -gt 0 ]; then
  usage
fi

absolute() {
  case $1 in
    /* | "") echo "$1" ;;
    *) echo "$from/$1" ;;
  esac
}
tarball=$(absolute "$tarball")
if [ "$out" != build/gpu_check ]; then
  out=$(absolute "$out")
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
# Arguments of `train` for the least of a run that has everything in it.
short_run=(--epochs 1 --limit-steps 2
  'data={train: {source: digits, samples: 128}, test: {source: digits, samples: 64}}')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
device=gpu:0
first=gpu:0       # the same with a number of devices
cannot=FAILED     # what a part is that this machine cannot run
if [ -n "$dry_run" ]; then
  device=cpu
  first=cpu:1
  cannot=skipped
fi
began=$SECONDS
table=()
failures=0

# Seconds that a part may take: its share of what is left, where earlier ones left some over.
part_seconds() {
  local left=$((budget - SECONDS + began))
  echo $((left * share[$1] / shares))
}

# result PART passed|FAILED|skipped "what": its line, its row of the table.
result() {
  local seconds=$((SECONDS - part_began))
  printf '%-10s %-8s %4d s  %s\n' "$1" "$2" "$seconds" "$3"
  table+=("$1|$2|$seconds|$3")
  [ "$2" != FAILED ] || failures=$((failures + 1))
}

# Folders where CUDA's libraries may lie: the toolkit's, the driver's, and those that pip puts beside
# PyTorch. Only for programs of ours: PyTorch must find its own.
cuda_folders() {
  local folder
  for folder in /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib /usr/local/nvidia/lib64 \
    /usr/local/nvidia/lib /usr/lib/x86_64-linux-gnu; do
    [ ! -d "$folder" ] || echo "$folder"
  done
  "$python" - <<'END' 2>/dev/null
import glob, site, sys
for root in dict.fromkeys(site.getsitepackages() + sys.path):
    for folder in sorted(glob.glob(f"{root}/nvidia/*/lib")):
        print(folder)
END
}

find_sanitizer() {
  local candidate
  for candidate in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer \
    /usr/local/cuda*/compute-sanitizer/compute-sanitizer /opt/nvidia/*/compute-sanitizer/compute-sanitizer; do
    if [ -x "$candidate" ]; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

# Sets program, suites, configs and the folders of libraries.
part_build() {
  local log=$out/build.log
  if [ -z "$tarball" ]; then
    # Where both are, the one with tests, which sorts first.
    tarball=$(find build -maxdepth 1 -name 'meshtrain-*.tar.gz' 2>/dev/null | sort | head -1)
  fi
  if [ -n "$tarball" ]; then
    if ! tar -C "$work" -xzf "$tarball" 2>"$log"; then
      result build FAILED "$tarball cannot be unpacked: $(head -1 "$log")"
      return 1
    fi
    root=$(echo "$work"/meshtrain-*)
    program=$root/bin/meshtrain
    suites=$(ls "$root"/libexec/* 2>/dev/null)
    library=$root/lib/libmeshtrain_cuda.so
  elif scripts/build.sh release meshtrain >"$log" 2>&1 && scripts/build.sh release gpu_tests >>"$log" 2>&1; then
    program=$PWD/build/release/app/meshtrain
    suites=$(cat build/release/tests/gpu_tests.txt)
    library=$(find "$PWD/build/release" -name libmeshtrain_cuda.so)
  else
    result build FAILED "no tarball in build/, and from source: $(grep -m1 -iE 'error|missing' "$log")"
    return 1
  fi
  if [ -n "${MESHTRAIN_GPU_LIBRARY:-}" ]; then
    library=$MESHTRAIN_GPU_LIBRARY  # another one, such as the emulator of tests/support
  elif [ ! -e "$library" ] && [ -z "$dry_run" ]; then
    result build FAILED "there is no libmeshtrain_cuda.so: package where the CUDA toolkit is"
    return 1
  fi
  library_path=$(cuda_folders | paste -sd:)
  # Peers of the benchmark must not see these folders, so what starts our programs sets them.
  mkdir -p "$work/run"
  cat >"$work/run/meshtrain" <<END
#!/bin/sh
LD_LIBRARY_PATH=$library_path\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec "$program" "\$@"
END
  chmod +x "$work/run/meshtrain"
  # The second one needs cuDNN.
  if ! {
    "$work/run/meshtrain" --version && "$work/run/meshtrain" devices &&
      "$work/run/meshtrain" train configs/quickstart.yaml --devices "$first" --mesh 1x1 "${short_run[@]}" \
        -o "$work/first" &&
      "$work/run/meshtrain" train configs/jax_guide_convnet.yaml --devices "$first" --mesh 1 \
        "${short_run[@]}" -o "$work/second"
  } >"$log" 2>&1; then
    result build FAILED "$(grep -m1 -E 'error' "$log" || tail -1 "$log")"
    return 1
  fi
  result build passed "$(head -1 "$log"); two models on $first"
}

# with_libraries SECONDS COMMAND...
with_libraries() {
  LD_LIBRARY_PATH=$library_path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} MESHTRAIN_GPU_LIBRARY=$library \
    timeout -k 5 "$@"
}

part_tests() {
  local log=$out/tests.log suite ends=$((SECONDS + $1)) bad=() count=0 status
  : >"$log"
  if [ -n "$dry_run" ] && [ -z "${MESHTRAIN_GPU_LIBRARY:-}" ]; then
    result tests skipped "there is no GPU; MESHTRAIN_GPU_LIBRARY can name the emulator"
    return
  fi
  for suite in $suites; do
    count=$((count + 1))
    echo "== $(basename "$suite")" >>"$log"
    with_libraries $((ends > SECONDS ? ends - SECONDS : 1)) "$suite" >>"$log" 2>&1
    status=$?
    case $status in
      0) ;;
      124 | 137) bad+=("$(basename "$suite") (out of time)") ;;
      *) bad+=("$(basename "$suite") (exit status $status)") ;;
    esac
  done
  # A suite that finds no device has nothing to show, and says so.
  if grep -q 'skipped: ' "$log"; then
    bad+=("$(grep -m1 -o 'skipped: .*' "$log")")
  fi
  if [ "$count" -eq 0 ]; then
    result tests $cannot "no suites in the tarball: package.sh --with-tests"
  elif [ ${#bad[@]} -gt 0 ]; then
    result tests FAILED "of $count programs: $(printf '%s; ' "${bad[@]}")"
  else
    result tests passed "$count programs, $(sed -nE 's/.*test cases: *([0-9]+).*/\1/p' "$log" |
      awk '{ n += $1 } END { print n + 0 }') cases"
  fi
}

# The three tools side by side on one program after the other; without a graph, so that they can name
# the kernel.
part_sanitizer() {
  local log=$out/sanitizer.log sanitizer ends=$((SECONDS + $1)) bad=() names=() name tool seconds status
  local tools="memcheck racecheck initcheck"
  declare -A commands
  : >"$log"
  if ! sanitizer=$(find_sanitizer); then
    result sanitizer $cannot "there is no compute-sanitizer"
    return
  fi
  for config in quickstart jax_guide_convnet; do
    names+=("$config")
    commands[$config]="$program train configs/$config.yaml --devices ${device}x8 --no-cuda-graph"
  done
  for suite in $suites; do
    names+=("$(basename "$suite")")
    commands[$(basename "$suite")]=$suite
  done
  local left=${#names[@]}
  for name in "${names[@]}"; do
    seconds=$(((ends - SECONDS) / left))
    left=$((left - 1))
    for tool in $tools; do
      local words=("${short_run[@]}" -o "$work/$tool-$name")
      [ -e "configs/$name.yaml" ] || words=()
      # A finding of the tool is a failure even where the program's own checks pass.
      (
        # shellcheck disable=SC2086  # words of a command
        MESHTRAIN_RANDOM_CASES=2 with_libraries $((seconds > 1 ? seconds : 1)) "$sanitizer" --tool $tool \
          --error-exitcode 86 --print-limit 20 ${commands[$name]} "${words[@]}" >"$work/$tool-$name.log" 2>&1
        echo $? >"$work/$tool-$name.status"
      ) &
    done
    wait
    for tool in $tools; do
      status=$(cat "$work/$tool-$name.status")
      { echo "== $tool $name"; cat "$work/$tool-$name.log"; } >>"$log"
      case $status in
        0) ;;
        124 | 137) bad+=("$tool $name (not done in $seconds s)") ;;
        *) bad+=("$tool $name (exit status $status)") ;;
      esac
    done
  done
  if grep -q 'skipped: ' "$log"; then
    bad+=("$(grep -m1 -o 'skipped: .*' "$log")")
  fi
  if [ ${#bad[@]} -gt 0 ]; then
    result sanitizer FAILED "$(printf '%s; ' "${bad[@]}")"
  else
    result sanitizer passed "$tools clean on: ${names[*]}"
  fi
}

part_equality() {
  local log=$out/equality.log
  if timeout -k 5 $(($1 + 5)) "$python" tests/gpu/equality.py --meshtrain "$work/run/meshtrain" \
    --device "$device" --seconds "$1" ${dry_run:+--repeats 2} >"$log" 2>&1; then
    result equality passed "$(tail -1 "$log")"
  else
    result equality FAILED "$(grep -m1 FAILED "$log" || tail -1 "$log")"
  fi
}

part_bench() {
  local log=$out/bench.log
  # Whatever is cut short still leaves the figures that were had: gpu_bench.py keeps to its own budget.
  timeout -k 5 $(($1 + 20)) "$python" tests/bench/gpu_bench.py --meshtrain "$work/run/meshtrain" \
    --budget "$1" --save "$out/bench" ${dry_run:+--dry-run --only b64 --rounds 2} >"$log" 2>&1
  local status=$?
  [ ! -f "$out/bench.md" ] || cat "$out/bench.md"
  if [ $status -eq 0 ]; then
    result bench passed "every goal met"
  else
    result bench FAILED "$(grep -cE '\| (MISSED|not measured) \|' "$out/bench.md") goals missed or not measured; $(
      tail -1 "$log")"
  fi
}

part_nccl() {
  local log=$out/nccl.log
  if [ -n "$dry_run" ] && [ -z "${MESHTRAIN_GPU_LIBRARY:-}" ]; then
    result nccl skipped "there is no GPU; MESHTRAIN_GPU_LIBRARY can name the emulator"
    return
  fi
  if MESHTRAIN_GPU_LIBRARY=$library timeout -k 5 $(($1 + 5)) "$python" tests/gpu/nccl.py \
    --meshtrain "$work/run/meshtrain" --seconds "$1" ${dry_run:+--processes 2} >"$log" 2>&1; then
    result nccl passed "$(tail -1 "$log")"
  else
    result nccl FAILED "$(grep -m1 FAILED "$log" || tail -1 "$log")"
  fi
}

part_began=$SECONDS
if part_build; then
  for part in $parts; do
    part_began=$SECONDS
    "part_$part" "$(part_seconds "$part")"
    shares=$((shares - share[$part]))
  done
fi

{
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "no GPU"
  printf '\n| part | | seconds | |\n| --- | --- | --- | --- |\n'
  for row in "${table[@]}"; do
    printf '| %s |\n' "${row//|/ | }"
  done
  [ ! -f "$out/bench.md" ] || { echo; cat "$out/bench.md"; }
} >"$out/report.txt"
echo
sed -n '1,/^$/p;/^| part/,/^$/p' "$out/report.txt"
echo "$((SECONDS - began)) s; logs in $out"
[ "$failures" -eq 0 ]
