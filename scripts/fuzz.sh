#!/bin/sh
# Looks for files that a reader of meshtrain does not stand, and says where it kept what it found.
#   scripts/fuzz.sh TARGET SECONDS [libFuzzer's options]
# Targets are the folders of tests/fuzz/corpus. Inputs that reach new code are kept in
# build/fuzz/corpus/TARGET for the next time. MESHTRAIN_FUZZ_BUILD is another place than build/fuzz.
# Needs libFuzzer: apt-get install libclang-rt-dev
set -eu
cd "$(dirname "$0")/.."

if [ $# -lt 2 ] || [ ! -d "tests/fuzz/corpus/$1" ]; then
  echo "usage: scripts/fuzz.sh TARGET SECONDS [libFuzzer's options]" >&2
  echo "targets: $(ls tests/fuzz/corpus | tr '\n' ' ')" >&2
  exit 2
fi
target=$1
seconds=$2
shift 2
build=${MESHTRAIN_FUZZ_BUILD:-build/fuzz}

mkdir -p "$build/corpus/$target" "$build/findings"
launcher=
! command -v ccache >/dev/null || launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache
if ! cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
  "-DCMAKE_CXX_FLAGS_DEBUG=-g1 -O1" -DMESHTRAIN_FUZZ=ON -DMESHTRAIN_SANITIZE=address,undefined \
  $launcher >"$build/configure.log" 2>&1; then
  cat "$build/configure.log" >&2
  exit 1
fi
cmake --build "$build" --target fuzz -- -j "${JOBS:-$(nproc)}"

dictionary=tests/fuzz/dictionaries/$target.dict
[ ! -f "$dictionary" ] || set -- "-dict=$dictionary" "$@"
# Configs that are tested elsewhere are seeds, too.
[ "$target" != config ] || set -- tests/errors/cases configs "$@"
# The target itself measures processor time and memory; these end what never comes back.
MESHTRAIN_FUZZ=$target exec "$build/tests/fuzz/fuzz" "$build/corpus/$target" \
  "tests/fuzz/corpus/$target" -artifact_prefix="$build/findings/$target-" \
  -max_total_time="$seconds" -timeout=60 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 "$@"
