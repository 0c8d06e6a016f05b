// Images of handwritten-looking digits, drawn by the program: training data without a download, in
// MNIST's shape and with much of its difficulty.
//
//   DigitImages train = make_digits(10000, 1);
//
// Every image is a pure function of (seed, index): a set of n images is the beginning of every
// larger set. Every result is exact, so the bytes are the same on every machine.
//
// How hard it is, as measured with 10,000 training and 2,000 test images (two seeds), pixels scaled
// to 0..1, Adam at 0.001 and batches of 100: see tests/unit/digits/README.md.
#pragma once

#include <cstdint>

#include "tensor/host_tensor.h"

namespace meshtrain {

struct DigitImages {
  HostTensor images;  // uint8 (n, 28, 28, 1): 0 is background, 255 full ink
  HostTensor labels;  // uint8 (n,): each run of ten images holds every digit once
};

// Throws Error when `samples` is negative.
DigitImages make_digits(int64_t samples, uint64_t seed);

}  // namespace meshtrain
