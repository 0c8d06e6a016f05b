#!/bin/bash
# What only a GPU can show, in nine minutes, without a network and without Debian's packages:
#   scripts/gpu_check.sh [TARBALL] [--parts build,tests,equality,bench,sanitizer,nccl] [--out DIR]
#                        [--only NAME] [--budget SECONDS] [--python PYTHON] [--dry-run]
#   TARBALL    of scripts/package.sh --with-tests, of the sources here; default that in build/
#   --parts    only these, in this order, and build, which the others need; default tests,equality,bench,sanitizer
#   --only     of each part only what has this in its name: test cases, checks, workloads
#   --out      report.txt, a log of each part, bench.json; default $OUT, else build/gpu_check
#   --budget   for all parts together; a part that is left out gives its share to the others. Building from
#              source, where there is no tarball, takes as long as it takes
#   --python   the one with PyTorch and JAX, for bench
#   --dry-run  on the CPU, tiny: tries this script where there is no GPU, proves nothing about one
# build      unpacks the tarball, or builds from source where there is none but the libraries are; the
#            program starts and sees the GPU
# tests      the suites of libexec/ on the GPU, test cases in processes beside each other
# sanitizer  a part of them, and short runs, under compute-sanitizer's four tools
# equality   tests/gpu/equality.py: the guides' models on CPU, GPU and eight virtual devices; repeats
# bench      tests/bench/gpu_bench.py: beside PyTorch and JAX
# nccl       tests/gpu/nccl.py: 2, 4 and 8 processes on the one GPU beside one process; takes most of the
#            nine minutes by itself: --parts nccl. For a dry run MESHTRAIN_GPU_LIBRARY names the emulator
# One line a part, then a table. Exit status 0 only when every part that was asked for passed.
set -uo pipefail
shopt -s extglob
from=$PWD
cd "$(dirname "$0")/.." || exit 1
. scripts/gpu_libraries.sh

# Parts of the time: tests, equality and bench as an H200 with 16 cores needed them; build takes the few seconds it
# needs.
declare -A share=([tests]=22 [sanitizer]=22 [equality]=8 [bench]=48 [nccl]=150)
readonly in_parts=4  # cases of the suite "parts" (every family of kernels), which compile and run beside each other
# Kernels of this program (lib/backend/gpu/module_text.cc), not those of NVIDIA's libraries.
readonly ours=(--kernel-name 'regex=_x[0-9]+_[0-9]+$' --kernel-name 'regex=^chain_')
tarball=
parts="tests equality bench sanitizer"
out=${OUT:-build/gpu_check}
only=
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
    --only) only=${2:-}; shift ;;
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
rm -f "$out"/bench.{md,json} "$out"/report.txt  # of an earlier time
# Arguments of `train` for the least of a run that has everything in it.
short_run=(--epochs 1 --limit-steps 2
  'data={train: {source: digits, samples: 128}, test: {source: digits, samples: 64}}')
work=$(mktemp -d)
# `timeout` hands the signal on to what it runs.
clean_up() {
  local file
  for file in "$work"/unit*.pid; do
    [ ! -f "$file" ] || kill "$(cat "$file")" 2>/dev/null
  done
  rm -rf "$work"
}
trap clean_up EXIT
export MESHTRAIN_TEST_SOURCES=$PWD   # whose goldens the suites read
export MESHTRAIN_CACHE=$work/cache  # what one part compiles no other one compiles again
most_jobs=$(nproc)
[ "$most_jobs" -le 16 ] || most_jobs=16  # each is a process on the GPU
device=gpu:0
first=gpu:0
eight=gpu:0x8
cannot=FAILED     # what a part is that this machine cannot run
if [ -n "$dry_run" ]; then
  device=cpu
  first=cpu:1
  eight=cpu:8
  cannot=skipped
fi
began=$SECONDS
table=()
failures=0

# Seconds that a part may take: its share of what is left, where earlier ones left some over.
part_seconds() {
  local seconds=$(((budget - SECONDS + began) * share[$1] / shares))
  echo $((seconds > 15 ? seconds : 15))
}

# result PART passed|FAILED|skipped "what": its line, its row of the table.
result() {
  local seconds=$((SECONDS - part_began))
  printf '%-10s %-8s %4d s  %s\n' "$1" "$2" "$seconds" "$3"
  table+=("$1|$2|$seconds|$3")
  [ "$2" != FAILED ] || failures=$((failures + 1))
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

# unpack TARBALL: into $work; with Python where there is no xz.
unpack() {
  if [[ $1 != *.xz ]] || command -v xz >/dev/null; then
    tar -C "$work" -xf "$1"
  else
    "$python" -c "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter='tar')" "$1" "$work"
  fi
}

# Sets program, suites, configs and the folders of libraries.
part_build() {
  local log=$out/build.log
  if [ -z "$tarball" ]; then
    # Where both are, the one with tests, which sorts first by bytes.
    tarball=$(find build -maxdepth 1 -name 'meshtrain-*.tar.[gx]z' 2>/dev/null | LC_ALL=C sort | head -1)
  fi
  if [ -n "$tarball" ]; then
    if ! unpack "$tarball" 2>"$log"; then
      result build FAILED "$tarball cannot be unpacked: $(tail -1 "$log")"
      return 1
    fi
    root=$(echo "$work"/meshtrain-*)
    if [ "$(cat "$root/SOURCES" 2>/dev/null)" != "$(scripts/source_sum.sh)" ]; then
      result build FAILED "$tarball is of other sources than these; make it anew: scripts/package.sh --with-tests"
      return 1
    fi
    program=$root/bin/meshtrain
    suites=$(ls "$root"/libexec/* 2>/dev/null)
    library=$root/lib/libmeshtrain_cuda.so
  elif scripts/build.sh release meshtrain >"$log" 2>&1 && scripts/build.sh release gpu_tests >>"$log" 2>&1; then
    program=$PWD/build/release/app/meshtrain
    suites=$(cat build/release/tests/gpu_tests.txt)
    library=$(find "$PWD/build/release" -name libmeshtrain_cuda.so)
    began=$SECONDS
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
  local cuda
  cuda=$(cuda_path "$python")
  libraries=(env "MESHTRAIN_CUDA_PATH=$cuda" "MESHTRAIN_GPU_LIBRARY=$library")
  mkdir -p "$work/run"
  wrap_program "$work/run/meshtrain" "$program" "$cuda"
  # The second model needs cuDNN. What fails here says so and leaves the other parts to show the rest, but for a
  # program that does not start at all.
  local words bad=()
  : >"$log"
  for words in "--version" "devices" "train configs/quickstart.yaml --devices $first --mesh 1x1" \
    "train configs/jax_guide_convnet.yaml --devices $first --mesh 1"; do
    local more=()
    [ "${words#train}" = "$words" ] || more=("${short_run[@]}" -o "$work/first${#words}")
    # shellcheck disable=SC2086  # words of a command
    if ! timeout -k 2 60 "$work/run/meshtrain" $words "${more[@]}" >>"$log" 2>&1; then
      bad+=("meshtrain $words: $(grep -E 'error' "$log" | tail -1 | grep . || tail -1 "$log")")
    fi
    if [ "$words" = --version ] && [ ${#bad[@]} -gt 0 ]; then
      result build FAILED "${bad[0]}"
      return 1
    fi
  done
  if [ ${#bad[@]} -gt 0 ]; then
    result build FAILED "$(some "${bad[@]}")"
  else
    result build passed "$(head -1 "$log"); two models on $first"
  fi
}

units=()  # of a part: what runs beside each other
ends=0    # when the part's time is over, as $SECONDS has it

# start "what it is" COMMAND...: beside others, until $ends; a word PORT becomes a port of its own. Nothing where
# --only wants something else.
start() {
  [[ $1 == *"$only"* ]] || return 0
  local place=$work/unit${#units[@]} port=$((49152 + 16 * ${#units[@]}))
  units+=("$1")
  shift
  set -- "${@/#PORT/$port}"
  while [ "$(jobs -rp | wc -l)" -ge "$most_jobs" ]; do
    wait -n
  done
  (
    from=$SECONDS
    status=124
    if [ "$ends" -gt "$from" ]; then
      timeout -k 2 $((ends - from)) "$@" >"$place.log" 2>&1 </dev/null &
      echo $! >"$place.pid"
      wait $!
      status=$?
      rm "$place.pid"
    fi
    echo "$status $((SECONDS - from))" >"$place.end"
  ) &
}

# gather LOG: waits for all that was started; what they wrote, and what is wrong with them in `bad`.
gather() {
  local i status seconds
  bad=()
  wait
  for i in "${!units[@]}"; do
    status=killed seconds=0  # where nothing was left
    [ ! -f "$work/unit$i.end" ] || read -r status seconds <"$work/unit$i.end"
    { echo "== ${units[$i]}, $seconds s"; cat "$work/unit$i.log" 2>/dev/null; } >>"$1"
    case $status in
      0)
        # A case that finds no device has nothing to show, and says so; a filter may fit none.
        if grep -q 'skipped: ' "$work/unit$i.log"; then
          bad+=("${units[$i]}: $(grep -m1 -o 'skipped: .*' "$work/unit$i.log")")
        elif grep -q 'test cases: *0 ' "$work/unit$i.log"; then
          bad+=("${units[$i]}: no such case")
        fi
        ;;
      124 | 137) bad+=("${units[$i]} (out of time)") ;;
      *) bad+=("${units[$i]} (exit status $status)") ;;
    esac
  done
  rm -f "$work"/unit*
}

# some "a" "b" ...: the first of them, and how many more there are.
some() {
  local most=5
  printf '%s; ' "${@:1:most}"
  [ $# -le $most ] || printf 'and %d more' $(($# - most))
}

# is_named PART: false, and said, where nothing in it has what --only wants in its name.
is_named() {
  [ -n "$only" ] && [ ${#units[@]} -eq 0 ] || return 0
  result "$1" FAILED "nothing has '$only' in its name"
  return 1
}

# cases_of SUITE FILTER...: names of its test cases, one a line; complaints go to $log. A comma in a name would end
# a filter of --test-case: "?" stands for it.
cases_of() {
  "${libraries[@]}" timeout 20 "$@" --list-test-cases 2>>"$log" | sed '/^\[doctest\]/d; /^=*$/d'
}

# start_cases WHAT COMMAND...: the cases of the chosen suites by COMMAND, but those of the test suites "host",
# which open no device, "emulator" (on a GPU), and "parts".
start_cases() {
  local what=$1 suite name left_out=parts,host
  shift
  [ -n "$dry_run" ] || left_out+=,emulator
  for suite in "${chosen[@]}"; do
    while read -r name; do
      start "$what$(basename "$suite"): $name" "${libraries[@]}" "$@" "$suite" --test-case="${name//,/?}"
    done < <(cases_of "$suite" --test-suite-exclude=$left_out)
  done
}

# start_parts WHAT COUNT NAMES COMMAND...: the same of those of the test suite "parts" whose names begin as the
# regular expression NAMES; of each COUNT of $in_parts parts.
start_parts() {
  local what=$1 count=$2 names=$3 suite part name
  shift 3
  for suite in "${chosen[@]}"; do
    while read -r name; do
      [[ $name =~ ^($names) ]] || continue
      for ((part = 0; part < count; part++)); do
        start "$what$(basename "$suite"): $name, part $part" "${libraries[@]}" \
          "MESHTRAIN_TEST_PART=$part/$in_parts" "$@" "$suite" --test-case="${name//,/?}"
      done
    done < <(cases_of "$suite" --test-suite=parts)
  done
}

# choose_suites PATTERN: sets `chosen`, those whose names it matches that can run: on the processor none, on the
# emulator not the CUDA library's own.
choose_suites() {
  local suite
  chosen=()
  for suite in $suites; do
    # shellcheck disable=SC2053  # a pattern
    [[ ${suite##*/} == $1 ]] || continue
    if [ -z "$dry_run" ] || { [ -n "${MESHTRAIN_GPU_LIBRARY:-}" ] && [[ ${suite##*/} != *cuda* ]]; }; then
      chosen+=("$suite")
    fi
  done
}

part_tests() {
  local log=$out/tests.log suite chosen bad empty=()
  : >"$log"
  if [ -n "$dry_run" ] && [ -z "${MESHTRAIN_GPU_LIBRARY:-}" ]; then
    result tests skipped "there is no GPU; MESHTRAIN_GPU_LIBRARY can name the emulator"
    return
  fi
  units=()
  # Random losses and optimizers are on the GPU only when asked.
  choose_suites 'test_random_*'
  start_cases "" env MESHTRAIN_TEST_GPU=1 MESHTRAIN_RANDOM_CASES=8
  start_parts "" $in_parts "" env MESHTRAIN_TEST_GPU=1
  choose_suites '!(test_random_*)'
  start_cases ""
  start_parts "" $in_parts ""  # last, being short
  choose_suites '*'
  for suite in "${chosen[@]}"; do
    [ -n "$only" ] || [[ " ${units[*]}" == *" $(basename "$suite"): "* ]] ||
      empty+=("$(basename "$suite") does not list its cases")
  done
  is_named tests || return
  gather "$log"
  bad=("${empty[@]}" "${bad[@]}")
  if [ ${#chosen[@]} -eq 0 ]; then
    result tests $cannot "no suites in the tarball: package.sh --with-tests"
  elif [ ${#bad[@]} -gt 0 ]; then
    result tests FAILED "${#bad[@]} of ${#units[@]}: $(some "${bad[@]}")"
  else
    result tests passed "${#units[@]} processes, each with a test case, of ${#chosen[@]} programs"
  fi
}

# Sets `check`: compute-sanitizer with the tool $1. Calls that fail on purpose (more memory than there is) are no
# findings, and what runs beside others has ports of its own.
choose_check() {
  check=("$sanitizer" --tool "$1" --report-api-errors no --error-exitcode 86 --print-limit 20 --port PORT)
  case $1 in
    racecheck)  # it takes NVIDIA's asynchronous copies for races (2025.3 on Hopper)
      check+=("${ours[@]}" --racecheck-num-workers 1)
      ;;
    synccheck) check+=("${ours[@]}") ;;
    initcheck)  # before 2026.4 what a kernel writes that is not checked counts as never written
      if "$sanitizer" --help 2>/dev/null | grep initcheck-track-filtered-global-memory >/dev/null; then
        check+=("${ours[@]}")
      fi
      ;;
  esac
}

# Without a graph, so that the tools can name the kernel; of each family of kernels a part, which the tests
# have compiled. Device memory is zeroed when it is allocated, so that initcheck has little to find; synccheck
# looks at kernels with barriers and shuffles.
part_sanitizer() {
  local log=$out/sanitizer.log sanitizer chosen bad tool config check
  local tools="memcheck initcheck synccheck racecheck" slow=(env MESHTRAIN_SLOW=1 MESHTRAIN_RANDOM_CASES=2)
  local unsupported='^=====.*(not supported|unsupported|unable to initialize)'
  : >"$log"
  if ! sanitizer=$(find_sanitizer); then
    result sanitizer $cannot "there is no compute-sanitizer"
    return
  fi
  choose_suites '!(test_random_*)'
  units=()
  for tool in $tools; do
    choose_check "$tool"
    if [ "$tool" = synccheck ]; then
      start_parts "$tool " 1 "reductions|scans|rows|lookups" "${slow[@]}" "${check[@]}"
      continue
    fi
    for config in quickstart jax_guide_convnet; do
      start "$tool $config" "${libraries[@]}" "${check[@]}" "$program" train configs/$config.yaml \
        --devices "$eight" --no-cuda-graph "${short_run[@]}" -o "$work/$tool-$config"
      [ "$tool $config" = "memcheck quickstart" ] || continue
      wait  # the first alone: whether it can check anything here
      if grep -qv '^0 ' "$work/unit0.end" 2>/dev/null && grep -qiE "$unsupported" "$work/unit0.log"; then
        gather "$log"
        result sanitizer $cannot "$(grep -m1 -iE "$unsupported" "$log")"
        return
      fi
    done
    if [ "$tool" != initcheck ]; then
      start_cases "$tool " "${slow[@]}" "${check[@]}"
      start_parts "$tool " 1 "" "${slow[@]}" "${check[@]}"
    fi
  done
  is_named sanitizer || return
  gather "$log"
  if [ ${#bad[@]} -gt 0 ]; then
    result sanitizer FAILED "${#bad[@]} of ${#units[@]}: $(some "${bad[@]}")"
  else
    result sanitizer passed "${tools// /, } find nothing in ${#units[@]} processes"
  fi
}

part_equality() {
  local log=$out/equality.log
  if timeout -k 2 "$1" "$python" tests/gpu/equality.py --meshtrain "$work/run/meshtrain" --device "$device" \
    --seconds $(($1 - 3)) ${dry_run:+--repeats 2 --run-seconds 600} ${only:+--only "$only"} >"$log" 2>&1; then
    result equality passed "$(tail -1 "$log")"
  else
    result equality FAILED "$(grep -m1 FAILED "$log" || tail -1 "$log")"
  fi
}

# Its own cache: which algorithm is the fastest was measured elsewhere while others used the GPU.
part_bench() {
  local log=$out/bench.log status
  MESHTRAIN_CACHE=$work/bench timeout -k 2 "$1" "$python" tests/bench/gpu_bench.py \
    --meshtrain "$work/run/meshtrain" --budget $(($1 - 10)) --save "$out/bench" \
    ${dry_run:+--dry-run --only b64,first --rounds 2} ${only:+--only "$only"} >"$log" 2>&1
  status=$?
  if [ ! -f "$out/bench.md" ]; then
    result bench FAILED "no figures: $(tail -1 "$log")"
    return
  fi
  cat "$out/bench.md"
  if [ $status -eq 0 ]; then
    result bench passed "$([ -n "$dry_run" ] && echo "tried, nothing judged" || echo "every goal met")"
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
  if MESHTRAIN_GPU_LIBRARY=$library timeout -k 2 "$1" "$python" tests/gpu/nccl.py --meshtrain \
    "$work/run/meshtrain" --seconds $(($1 - 5)) ${dry_run:+--processes 2 --run-seconds 600} \
    ${only:+--only "$only"} >"$log" 2>&1; then
    result nccl passed "$(tail -1 "$log")"
  else
    result nccl FAILED "$(grep -m1 FAILED "$log" || tail -1 "$log")"
  fi
}

part_began=$SECONDS
if part_build; then
  for part in $parts; do
    part_began=$SECONDS
    seconds=$(part_seconds "$part")
    ends=$((SECONDS + seconds))
    "part_$part" "$seconds"
    shares=$((shares - share[$part]))
  done
fi

{
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo "no GPU"
  # Which libraries were loaded, by version and file: `meshtrain devices` in the part build.
  grep -E '^ +(NVRTC|cuBLASLt|cuDNN|NCCL) ' "$out/build.log" 2>/dev/null
  printf '\n| part | | seconds | |\n| --- | --- | --- | --- |\n'
  for row in "${table[@]}"; do
    printf '| %s |\n' "${row//|/ | }"
  done
  [ ! -f "$out/bench.md" ] || { echo; cat "$out/bench.md"; }
} >"$out/report.txt"
rm -f "$out/bench.md"  # what fetches the files may take eight, which the rest are
echo
sed -n '1,/^$/p;/^| part/,/^$/p' "$out/report.txt"
echo "$((SECONDS - began)) s; logs in $out"
[ "$failures" -eq 0 ]
