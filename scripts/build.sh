#!/bin/bash
# Configures and builds one kind of build; later calls rebuild only what changed.
#   scripts/build.sh [release|dev|sanitize] [target...]
#   release    build/release, optimized
#   dev        build/dev, for editing: -O1, files compiled one by one, each module a shared library
#   sanitize   build/sanitize, debug with AddressSanitizer and UndefinedBehaviorSanitizer
# Targets: all (the default), programs (meshtrain with its GPU and MPI parts), or a name such as test_mesh.
# MESHTRAIN_WERROR=ON makes warnings errors; JOBS sets how many compilers run at once. The output of a build
# is kept in build/KIND/build.log. Compilers are found in ccache where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:-release}
[ $# -eq 0 ] || shift
targets=("${@:-all}")
build=build/$kind
options=()
case $kind in
  # Some thirty files are compiled as one: the build takes half the time, and names that clash are found.
  release) options=(-DCMAKE_BUILD_TYPE=Release -DMESHTRAIN_UNITY=ON) ;;
  dev)
    options=(-DCMAKE_BUILD_TYPE=Debug -DMESHTRAIN_SHARED=ON "-DCMAKE_CXX_FLAGS_DEBUG=-g1 -O1")
    if command -v ld.lld >/dev/null 2>&1; then  # links in a quarter of the time
      options+=(-DCMAKE_{EXE,SHARED,MODULE}_LINKER_FLAGS=-fuse-ld=lld)
    fi
    ;;
  # Debug information down to lines only: stack traces need no more, and compiling is quicker.
  sanitize)
    options=(-DCMAKE_BUILD_TYPE=Debug -DMESHTRAIN_SANITIZE=address,undefined -DMESHTRAIN_UNITY=ON
      "-DCMAKE_CXX_FLAGS_DEBUG=-g1 -O1")
    ;;
  *)
    echo "build.sh: unknown kind of build '$kind' (release, dev, sanitize)" >&2
    exit 2
    ;;
esac
# The compiler of Debian 12 is the one that is kept free of warnings. Set in every build, so that the tests
# reuse what quickstart.sh built.
[ "$(c++ -dumpversion 2>/dev/null)" != 12 ] || options+=(-DMESHTRAIN_WERROR=ON)
[ -z "${MESHTRAIN_WERROR:-}" ] || options+=("-DMESHTRAIN_WERROR=$MESHTRAIN_WERROR")
if command -v ccache >/dev/null 2>&1; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

mkdir -p "$build"
if ! cmake -S . -B "$build" -G Ninja "${options[@]}" >"$build/configure.log" 2>&1; then
  cat "$build/configure.log" >&2
  exit 1
fi

# A compiler takes up to 1.5 GiB: on a machine of many cores and little memory fewer run at once.
default_jobs() {
  local available
  available=$(sed -nE 's/^MemAvailable: +([0-9]+) kB$/\1/p' /proc/meminfo 2>/dev/null || true)
  local jobs=$((${available:-67108864} / 1572864))
  [ "$jobs" -lt "$(nproc)" ] || jobs=$(nproc)
  [ "$jobs" -gt 0 ] || jobs=1
  echo "$jobs"
}

# Says what broke a build: its first error by file and line, or what the machine ran out of.
explain_failure() {
  local first
  first=$(grep -m 1 -E '(: |^)(fatal )?error: |undefined reference to|No such file or directory' "$1" || true)
  if grep -qE 'Killed( signal)?|[Cc]annot allocate memory|virtual memory exhausted' "$1"; then
    echo "build.sh: a compiler ran out of memory; try: JOBS=1 scripts/build.sh $kind" >&2
  elif grep -q 'No space left on device' "$1"; then
    echo "build.sh: no space is left on the device of $PWD/$build; the tests need 2 GiB of it, the program 0.2" >&2
  fi
  echo "build.sh: the $kind build failed${first:+: $first}" >&2
  echo "build.sh: all messages are in $build/build.log" >&2
}

# On a terminal the progress is one line that is drawn over, and what compilers say stays.
show_progress() {
  if [ -t 1 ]; then
    awk -v columns="$(tput cols 2>/dev/null || echo 80)" '
      /^\[[0-9]+ of [0-9]+, / { printf "\r\033[K%s", substr($0, 1, columns - 1); fflush(); open = 1; next }
      { if (open) printf "\n"; open = 0; print; fflush() }
      END { if (open) printf "\n" }'
  else
    cat
  fi
}

# -k 0: every file that does not compile is reported, not only the first.
export NINJA_STATUS='[%f of %t, %es] '
cmake --build "$build" --target "${targets[@]}" -- -k 0 -j "${JOBS:-$(default_jobs)}" 2>&1 |
  tee "$build/build.log" | show_progress || {
  explain_failure "$build/build.log"
  exit 1
}
