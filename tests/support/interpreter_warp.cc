// Images sampled at affine, projective or given coordinates.
#include <cmath>

#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

// Index of the pixel that stands for `index`, -1 for the fill value.
int64_t pixel_at(int64_t index, int64_t size, const std::string& fill) {
  if (fill == "constant") {
    return index < 0 || index >= size ? -1 : index;
  }
  if (fill == "nearest") {
    return std::min(std::max<int64_t>(index, 0), size - 1);
  }
  // Step by step: a period of the pattern at a time.
  const int64_t period = fill == "wrap" ? size : 2 * size;
  while (index < 0) {
    index += period;
  }
  while (index >= period) {
    index -= period;
  }
  return index < size ? index : 2 * size - 1 - index;
}

// Pixels along an axis and their weights at a place.
std::vector<std::pair<int64_t, double>> pixels(double place, int64_t size, const Node& node) {
  const std::string& fill = node.attr_string("fill");
  if (node.attr_string("interpolation") == "nearest") {
    return {{pixel_at(static_cast<int64_t>(std::lround(place)), size, fill), 1.0}};
  }
  const auto low = static_cast<int64_t>(std::floor(place));
  const double part = place - static_cast<double>(low);
  return {{pixel_at(low, size, fill), 1 - part}, {pixel_at(low + 1, size, fill), part}};
}

void warp(const NodeRun& run) {
  const HostTensor& in = *run.in[0];
  const HostTensor& t = *run.in[1];
  HostTensor& out = run.out[0];
  const Shape& shape = out.shape();
  const bool transposed = run.node.op->name == "affine_warp_transpose";
  std::vector<double> sums(static_cast<size_t>(out.size()), 0.0);
  for (Coordinates at(shape); !at.done(); at.next()) {
    const int64_t n = at[0], c = at[3];
    const bool is_given = t.shape().size() == 4;
    const int64_t terms = t.shape()[1];
    const auto sum = [&](int64_t first, double constant) {
      return t.at(n * terms + first) * static_cast<double>(at[2]) +
             t.at(n * terms + first + 1) * static_cast<double>(at[1]) + constant;
    };
    const auto place = [&](int64_t first) {
      if (is_given) {
        return t.at(index_of({n, at[1], at[2], first / 3}, t.shape()));
      }
      return sum(first, t.at(n * terms + first + 2)) / (terms == 8 ? sum(6, 1) : 1);
    };
    const auto here = static_cast<size_t>(index_of(at.all(), shape));
    for (const auto& [row, row_weight] : pixels(place(3), shape[1], run.node)) {
      for (const auto& [column, column_weight] : pixels(place(0), shape[2], run.node)) {
        const double weight = row_weight * column_weight;
        const bool is_fill = row < 0 || column < 0;
        const int64_t there = is_fill ? 0 : index_of({n, row, column, c}, shape);
        if (transposed) {
          sums[static_cast<size_t>(there)] +=
              is_fill ? 0 : weight * in.at(static_cast<int64_t>(here));
        } else {
          sums[here] += weight * (is_fill ? run.node.attr_double("fill_value") : in.at(there));
        }
      }
    }
  }
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, sums[static_cast<size_t>(i)]);
  }
}

}  // namespace

void add_warp_kernels(KernelTable& table) {
  table["affine_warp"] = warp;
  table["affine_warp_transpose"] = warp;
}

}  // namespace meshtrain
