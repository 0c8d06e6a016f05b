// $MESHTRAIN_TEST_PART: "1/4" for every fourth of what a test case goes through, from the second
// on, so that parts run, and compile, beside each other (scripts/gpu_check.sh; suite "parts"). A
// part is the same every time, and finds its kernels in the cache.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace meshtrain::test {

inline bool is_in_part(size_t i) {
  const char* const part = std::getenv("MESHTRAIN_TEST_PART");
  if (part == nullptr)
    return true;
  size_t first = 0, parts = 0;
  REQUIRE_MESSAGE((std::sscanf(part, "%zu/%zu", &first, &parts) == 2 && first < parts), part);
  return i % parts == first;
}

}  // namespace meshtrain::test
