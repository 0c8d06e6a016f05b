#!/bin/sh
# Configures and builds one kind of build; later calls rebuild only what changed.
#   scripts/build.sh [release|dev|sanitize] [target]
#   release    build/release, optimized
#   dev        build/dev, for editing: -O1, files compiled one by one, each module a shared library
#   sanitize   build/sanitize, debug with AddressSanitizer and UndefinedBehaviorSanitizer
# MESHTRAIN_WERROR=ON makes warnings errors; JOBS sets how many compilers run at once.
set -eu
cd "$(dirname "$0")/.."

kind=${1:-release}
target=${2:-all}
build=build/$kind
case $kind in
  release) set -- -DCMAKE_BUILD_TYPE=Release ;;
  # Debug information down to lines only: stack traces need no more, and compiling is quicker. Files
  # are compiled together here on every machine, so that names that clash are found on all of them.
  sanitize)
    set -- -DCMAKE_BUILD_TYPE=Debug -DMESHTRAIN_SANITIZE=address,undefined -DMESHTRAIN_UNITY=ON \
      "-DCMAKE_CXX_FLAGS_DEBUG=-g1 -O1"
    ;;
  dev)
    set -- -DCMAKE_BUILD_TYPE=Debug -DMESHTRAIN_SHARED=ON "-DCMAKE_CXX_FLAGS_DEBUG=-g1 -O1"
    if command -v ld.lld >/dev/null 2>&1; then
      for linked in EXE SHARED MODULE; do
        set -- "$@" -DCMAKE_${linked}_LINKER_FLAGS=-fuse-ld=lld
      done
    fi
    ;;
  *)
    echo "build.sh: unknown kind of build '$kind' (release, dev, sanitize)" >&2
    exit 2
    ;;
esac
# The compiler of Debian 12 is the one that is kept free of warnings; what was built with it needs not
# be built again for the tests.
[ "$(c++ -dumpversion 2>/dev/null)" != 12 ] || set -- "$@" -DMESHTRAIN_WERROR=ON
if [ -n "${MESHTRAIN_WERROR:-}" ]; then
  set -- "$@" -DMESHTRAIN_WERROR="$MESHTRAIN_WERROR"
fi
if command -v ccache >/dev/null 2>&1; then
  set -- "$@" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
else
  set -- "$@" -DMESHTRAIN_UNITY=ON
fi

mkdir -p "$build"
if ! cmake -S . -B "$build" -G Ninja "$@" >"$build/configure.log" 2>&1; then
  cat "$build/configure.log" >&2
  exit 1
fi
# -k 0: every file that does not compile is reported, not only the first.
cmake --build "$build" --target "$target" -- -k 0 -j "${JOBS:-$(nproc)}"
