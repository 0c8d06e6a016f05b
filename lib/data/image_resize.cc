// Source: keras.ops.image.resize on JAX (jax.image.scale_and_translate); R. Keys, "Cubic
// convolution interpolation for digital image processing", 1981. lib/nn/resizing.cc builds the same
// weights as operations of a graph.
#include "data/image_resize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tensor/aspect_ratio.h"

namespace meshtrain {
namespace {

// The weights of the inputs begin, begin + 1, ... of one output.
struct Taps {
  int64_t begin = 0;           // in the image
  std::vector<float> weights;  // of sum 1
};

double keys_cubic(double d) {
  return d < 1 ? ((1.5 * d - 2.5) * d) * d + 1 : d < 2 ? ((-0.5 * d + 2.5) * d - 4) * d + 2 : 0;
}

double lanczos(double d, double radius) {
  constexpr double kPi = std::numbers::pi;
  if (d > radius) {
    return 0;
  }
  return d <= 1e-3 ? 1
                   : radius * std::sin(kPi * d) * std::sin(kPi * d / radius) / (kPi * kPi * d * d);
}

struct Kernel {
  double radius = 0;
  double (*weight)(double distance) = nullptr;
};

Kernel kernel_of(const std::string& interpolation) {
  if (interpolation == "bicubic") {
    return {2, keys_cubic};
  }
  if (interpolation == "lanczos3") {
    return {3, [](double d) { return lanczos(d, 3); }};
  }
  if (interpolation == "lanczos5") {
    return {5, [](double d) { return lanczos(d, 5); }};
  }
  MESHTRAIN_CHECK(interpolation == "bilinear", "no interpolation {}", interpolation);
  return {1, [](double d) { return std::max(0.0, 1 - d); }};
}

// One axis of the image: `length` inputs are taken from `begin` on, with `before` black ones in
// front of them and as many behind.
struct Side {
  int64_t begin = 0, length, before = 0;
};

// The taps of each of `size` outputs, without those on black inputs.
std::vector<Taps> taps_of(const Side& side, int64_t size, const std::string& interpolation) {
  std::vector<Taps> all(static_cast<size_t>(size));
  const int64_t length = side.length + 2 * side.before;
  const double step = static_cast<double>(length) / static_cast<double>(size);
  const bool is_nearest = interpolation == "nearest" || length == size;
  const Kernel kernel = is_nearest ? Kernel{} : kernel_of(interpolation);
  for (size_t i = 0; i < all.size(); ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step - 0.5;
    const auto at = [&](double position) {
      return std::clamp<int64_t>(static_cast<int64_t>(position), 0, length - 1);
    };
    const int64_t begin =
        at(is_nearest ? std::floor(centre + 0.5) : std::ceil(centre - kernel.radius));
    const int64_t end = is_nearest ? begin + 1 : at(std::floor(centre + kernel.radius)) + 1;
    std::vector<double> weights;
    double sum = 0;
    for (int64_t from = begin; from < end; ++from) {
      weights.push_back(is_nearest ? 1
                                   : kernel.weight(std::abs(centre - static_cast<double>(from))));
      sum += weights.back();
    }
    const int64_t first = std::max(begin, side.before);
    const int64_t last = std::min(end, side.before + side.length);
    all[i].begin = side.begin + first - side.before;
    for (int64_t from = first; from < last; ++from) {
      all[i].weights.push_back(
          static_cast<float>(weights[static_cast<size_t>(from - begin)] / sum));
    }
  }
  return all;
}

// Returns the ranges of the image's rows and columns that are used.
std::pair<Side, Side> sides_of(const Image& image, const ImageSize& size) {
  Side rows{0, image.height}, columns{0, image.width};
  const int64_t height = fitting_side(image.width, size.height, size.width);
  const int64_t width = fitting_side(image.height, size.width, size.height);
  if (size.crop_to_aspect_ratio) {
    rows.length = std::clamp<int64_t>(height, 1, image.height);
    columns.length = std::clamp<int64_t>(width, 1, image.width);
    rows.begin = (image.height - rows.length) / 2;
    columns.begin = (image.width - columns.length) / 2;
  } else if (size.pad_to_aspect_ratio) {
    rows.before = (std::max(image.height, height) - image.height) / 2;
    columns.before = rows.before > 0 ? 0 : (std::max(image.width, width) - image.width) / 2;
  }
  return {rows, columns};
}

}  // namespace

void resize_image(const Image& image, const ImageSize& size, float* to) {
  const auto [rows, columns] = sides_of(image, size);
  const std::vector<Taps> row_taps = taps_of(rows, size.height, size.interpolation);
  const std::vector<Taps> column_taps = taps_of(columns, size.width, size.interpolation);
  const auto channels = static_cast<size_t>(image.channels);
  const size_t row_values = static_cast<size_t>(image.width) * channels;
  std::vector<float> row(row_values);  // (width, channels) of one output row
  for (const Taps& taps : row_taps) {
    std::fill(row.begin(), row.end(), 0.0f);
    const uint8_t* from = image.pixels.get() + static_cast<size_t>(taps.begin) * row_values;
    for (const float weight : taps.weights) {
      for (size_t i = 0; i < row_values; ++i) {
        row[i] += weight * static_cast<float>(from[i]);
      }
      from += row_values;
    }
    for (const Taps& column : column_taps) {
      for (size_t c = 0; c < channels; ++c) {
        const float* pixel = row.data() + static_cast<size_t>(column.begin) * channels + c;
        float sum = 0;
        for (const float weight : column.weights) {
          sum += weight * *pixel;
          pixel += channels;
        }
        *to++ = sum;
      }
    }
  }
}

}  // namespace meshtrain
