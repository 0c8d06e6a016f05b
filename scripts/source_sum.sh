#!/bin/bash
# One sum of all sources of the program and its tests: what scripts/package.sh packs and scripts/gpu_check.sh
# compares, so that a GPU never runs something else than what lies beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
find CMakeLists.txt app lib tests -type f -not -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum |
  sha256sum | cut -c1-16
