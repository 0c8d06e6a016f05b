#!/bin/bash
# Every test of the project, from a fresh machine on. The last line says "N passed, N failed"; the
# exit status is 0 only when nothing failed.
#   scripts/test.sh             format, include direction, type names, pages, words, README, package, release
#                               suites; loops of thousands of cases are sampled, others with each commit
#   scripts/test.sh --quick     the suites alone
#   scripts/test.sh --sanitize  also the suites that parse, read and communicate, with AddressSanitizer and
#                               UndefinedBehaviorSanitizer
#   scripts/test.sh --long      everything at full size, in both builds, and several hosts (tests/cluster),
#                               kills before every file call (tests/e2e/crash): hours
# tests/README.md says which suites there are, how long they take and what waits for --long.
# A test that this machine cannot run (no GPU, no CUDA toolkit, no MPI, no namespaces) prints "skipped: ..." and
# is neither passed nor failed, but counted in the line before. Beside it: test cases that skipped themselves
# in tests that ran.
set -u
cd "$(dirname "$0")/.." || exit 1

kinds=release
labels=cpu
quick=
packages=()
for word in "$@"; do
  case $word in
    --quick) quick=1 ;;
    --sanitize) kinds="release sanitize" ;;
    --long)
      kinds="release sanitize" labels="cpu|cluster|long" packages=(--long)
      export MESHTRAIN_TEST_LONG=1
      ;;
    *)
      echo "usage: scripts/test.sh [--quick] [--sanitize] [--long]" >&2
      exit 2
      ;;
  esac
done
# Where sampled loops begin: ten commits one after the other meet all cases.
if [ -z "${MESHTRAIN_TEST_OFFSET:-}" ]; then
  MESHTRAIN_TEST_OFFSET=$(git rev-list --count HEAD 2>/dev/null || echo 0)
fi
export MESHTRAIN_TEST_OFFSET

passed=0
failed=0
skipped=0
skipped_cases=0
failures=()

# The summary is the last line whatever happened before it, so it is printed on the way out.
finish() {
  trap - EXIT
  local failure
  for failure in "${failures[@]}"; do
    echo "FAILED: $failure"
  done
  echo "$skipped skipped, $skipped_cases test cases skipped in others"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit $?  # named, because a bare exit in a trap returns the status from before it
}
trap finish EXIT
trap 'failed=$((failed + 1)); failures+=("interrupted"); exit' INT TERM

# check "name" command...: one test by its exit status.
check() {
  local name=$1
  shift
  echo "== $name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$name: $*")
    return 1
  fi
}

# A step that is no test, but without which nothing is known: only its failure is counted.
need() {
  check "$@" || return 1
  passed=$((passed - 1))
}

check_format() {
  local files tool=clang-format-14
  mapfile -t files < <(find lib app tests \( -name '*.h' -o -name '*.cc' -o -name '*.cuh' \) -print | sort)
  [ "${#files[@]}" -gt 0 ] || return 1
  command -v "$tool" >/dev/null 2>&1 || tool=clang-format
  printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 50 "$tool" --dry-run -Werror || {
    echo "put right with: $tool -i FILE..."
    return 1
  }
}

# count_skipped_cases LOG: what doctest cases print that return early, each reason once.
count_skipped_cases() {
  local reasons
  [ -f "$1" ] || return 0
  reasons=$(grep -ohE 'MESSAGE: skipped( in part)?: .*' "$1" | sort | uniq -c)
  [ -n "$reasons" ] || return 0
  echo "== test cases skipped in tests that ran"
  echo "$reasons"
  skipped_cases=$((skipped_cases + $(grep -cE 'MESSAGE: skipped( in part)?: ' "$1")))
}

# run_ctest KIND: adds the tests of build/KIND to the counts. Under sanitizers runs what was built for them.
run_ctest() {
  local kind=$1 log=build/$1/ctest.log total bad not_run run_labels=$labels
  [ "$kind" != sanitize ] || [ -n "${MESHTRAIN_TEST_LONG:-}" ] || run_labels=sanitize
  echo "== ctest in build/$kind"
  # One more than there are cores: some suites mostly wait, for heartbeats, disks and processes that end.
  ctest --test-dir "build/$kind" -L "$run_labels" -j $(($(nproc) + 1)) --output-on-failure --no-tests=error \
    --output-junit ctest.xml 2>&1 | tee "$log"
  echo "== $SECONDS s after ctest in build/$kind"
  read -r bad total < <(sed -nE \
    's/^[0-9]+% tests passed, ([0-9]+) tests? failed out of ([0-9]+)$/\1 \2/p' "$log")
  if [ -z "${total:-}" ]; then
    failed=$((failed + 1))
    failures+=("ctest in build/$kind ran nothing, see $log")
    return
  fi
  not_run=$(grep -cE '\*\*\*Skipped +[0-9.]+ sec' "$log")  # ctest has them among the passed
  passed=$((passed + total - bad - not_run))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
  count_skipped_cases "build/$kind/Testing/Temporary/LastTest.log"
  if [ "$bad" -gt 0 ]; then
    failures+=("$bad tests in build/$kind: ctest --test-dir build/$kind --rerun-failed --output-on-failure")
  fi
}

need "dependencies" scripts/install_dependencies.sh "${packages[@]}" || exit
if [ -z "$quick" ]; then
  check "format" check_format
  check "include direction can fail" python3 tests/include_direction.py --self-test
  check "include direction" python3 tests/include_direction.py
  check "type names can fail" python3 tests/type_names.py --self-test
  check "type names" python3 tests/type_names.py
  check "pages can fail" python3 tests/pages_test.py --self-test
  check "pages" python3 tests/pages_test.py
  check "words can fail" python3 tests/words_test.py --self-test
  check "words" python3 tests/words_test.py
fi
for kind in $kinds; do
  target=all
  [ "$kind" != sanitize ] || [ -n "${MESHTRAIN_TEST_LONG:-}" ] || target=sanitized_tests
  need "build $kind" scripts/build.sh "$kind" $target || continue
  echo "== $SECONDS s after build $kind"
  run_ctest "$kind"
  if [ "$kind" = release ] && [ -z "$quick" ]; then
    check "README" python3 tests/readme_test.py
    check "package" scripts/package.sh --check
  fi
done
exit
