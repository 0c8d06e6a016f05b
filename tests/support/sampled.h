// How much of a long loop of a test runs: a sample by default, everything under
// $MESHTRAIN_TEST_LONG=1 (scripts/test.sh --long).
//
// $MESHTRAIN_TEST_OFFSET shifts the samples. scripts/test.sh sets it to the number of the commit,
// so that `stride` successive commits run every case, and one commit always runs the same ones. A
// test that fails prints the offset (doctest_main.cc).
//
// $MESHTRAIN_TEST_PART=1/4 takes every fourth case from the second on instead, so that parts run,
// and compile, beside each other (scripts/gpu_check.sh; suite "parts").
#pragma once

#include <cstddef>
#include <vector>

namespace meshtrain::test {

bool runs_everything();

// $MESHTRAIN_TEST_OFFSET; 0 where it is not set. Throws where it is not a number.
size_t test_offset();

// True for one of `stride` successive numbers; for all where everything runs.
bool is_sampled(size_t i, size_t stride);

// The sampled numbers of 0 ... n - 1. Of fewer than `stride` it is one.
std::vector<size_t> sampled(size_t n, size_t stride);

// Seeds of a test of random cases: 0 ... N - 1 where $MESHTRAIN_RANDOM_CASES=N is set, else
// sampled(n, stride).
std::vector<size_t> sampled_seeds(size_t n, size_t stride);

}  // namespace meshtrain::test
