// The kernel of a short-time Fourier transform, as Keras' STFT initializer makes it
// (keras/src/initializers/constant_initializers.py), and the windows of SciPy that it takes by
// name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

struct StftKernel {
  bool imaginary = false;  // the sines, else the cosines
  std::string window;      // by SciPy's name, as the catalogue lists them; empty: none
  std::string
      scaling;  // "density": by the window's L2 norm, "spectrum": by its L1 norm; empty: not
  bool periodic = false;  // the window is periodic, else symmetric
};

// Row-major (length, bands): the real or imaginary part of exp(-2 pi i t f / (2 (bands - 1))),
// times the window. bands >= 2. Sines and cosines are made of + and * alone, so that weights are
// the same bits on every machine.
std::vector<double> stft_kernel(const StftKernel& kernel, int64_t length, int64_t bands);

}  // namespace meshtrain
