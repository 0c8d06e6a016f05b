#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/ops/window.h"
#include "op/op_case.h"

namespace meshtrain {
namespace {

struct Geometry {
  const char* name;
  Shape x;       // (N, s..., C)
  Shape kernel;  // (k..., C / groups, F); of pools only the cells count
  Window window;
};

Shape y_shape(const Geometry& g) {
  Shape y = g.x;
  for (size_t d = 0; d + 2 < g.x.size(); ++d) {
    y[d + 1] = window_outputs(g.window, d, g.x[d + 1], g.kernel[d]);
  }
  y.back() = g.kernel.back();
  return y;
}

Attrs attrs_of(const Geometry& g) {
  Attrs attrs;
  set_window(attrs, g.window);
  return attrs;
}

// conv and both transposes.
void add_convolutions(std::vector<OpCase>& cases, const Geometry& g) {
  Attrs attrs = attrs_of(g);
  cases.push_back({fmt::format("conv, {}", g.name), "conv", {{g.x}, {g.kernel}}, attrs});
  attrs["shape"] = g.x;
  cases.push_back(
      {fmt::format("conv_dgrad, {}", g.name), "conv_dgrad", {{y_shape(g)}, {g.kernel}}, attrs});
  attrs["shape"] = g.kernel;
  cases.push_back(
      {fmt::format("conv_wgrad, {}", g.name), "conv_wgrad", {{g.x}, {y_shape(g)}}, attrs});
}

void add_pools(std::vector<OpCase>& cases, const Geometry& g) {
  Attrs attrs = attrs_of(g);
  attrs["size"] = std::vector<int64_t>(g.kernel.begin(), g.kernel.end() - 2);
  Shape y = y_shape(g);
  y.back() = g.x.back();
  cases.push_back({fmt::format("max_pool, {}", g.name), "max_pool", {{g.x}}, attrs});
  cases.push_back(
      {fmt::format("max_pool_grad, {}", g.name), "max_pool_grad", {{g.x}, {y}}, attrs, false});
  cases.push_back({fmt::format("avg_pool, {}", g.name), "avg_pool", {{g.x}}, attrs});
  attrs["shape"] = g.x;
  cases.push_back({fmt::format("avg_pool_grad, {}", g.name), "avg_pool_grad", {{y}}, attrs});
}

std::vector<Geometry> geometries() {
  return {
      {"1D", {4, 5, 2}, {3, 2, 4}, {{1}, {1}, {0}, {0}}},
      {"1D of stride 2 padded unevenly", {4, 6, 2}, {3, 2, 2}, {{2}, {1}, {0}, {1}}},
      {"1D dilated and causal", {2, 6, 2}, {2, 2, 3}, {{1}, {2}, {2}, {0}}},
      {"1D whose stride skips cells", {2, 7, 2}, {2, 2, 2}, {{3}, {1}, {0}, {0}}},
      {"2D", {2, 4, 5, 2}, {3, 2, 2, 4}, {{1, 1}, {1, 1}, {0, 0}, {0, 0}}},
      {"2D padded to the same size", {2, 4, 3, 1}, {3, 3, 1, 6}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}},
      {"2D of one cell", {6, 2, 2, 4}, {1, 1, 4, 2}, {{1, 1}, {1, 1}, {0, 0}, {0, 0}}},
      {"2D of strides and uneven pads",
       {2, 5, 4, 2},
       {2, 3, 2, 2},
       {{2, 1}, {1, 1}, {0, 1}, {1, 0}}},
      {"2D dilated", {2, 5, 5, 2}, {2, 2, 2, 2}, {{1, 1}, {2, 3}, {1, 0}, {0, 1}}},
      {"2D with what no window reaches",
       {2, 6, 5, 2},
       {2, 2, 2, 2},
       {{3, 2}, {1, 1}, {0, 0}, {0, 0}}},
      {"3D", {2, 3, 2, 3, 2}, {2, 1, 2, 2, 2}, {{1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}},
      {"3D of strides and pads",
       {2, 3, 4, 2, 2},
       {2, 3, 2, 2, 2},
       {{2, 2, 1}, {1, 1, 1}, {1, 0, 0}, {0, 1, 1}}},
  };
}

std::vector<Geometry> grouped_geometries() {
  return {
      {"two groups", {2, 4, 4}, {2, 2, 4}, {{1}, {1}, {0}, {0}}},
      {"two groups of three filters", {2, 3, 3, 4}, {2, 2, 2, 6}, {{1, 1}, {1, 1}, {1, 0}, {0, 1}}},
      {"depthwise", {2, 3, 4, 6}, {2, 2, 1, 6}, {{1, 2}, {1, 1}, {0, 0}, {0, 0}}},
      {"depthwise with two filters a channel", {2, 5, 4}, {3, 1, 8}, {{1}, {1}, {1}, {1}}},
      {"depthwise in 3D",
       {2, 2, 2, 3, 2},
       {2, 1, 2, 1, 4},
       {{1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}}},
      {"four groups dilated", {2, 5, 8}, {2, 2, 4}, {{2}, {2}, {1}, {0}}},
  };
}

}  // namespace

std::vector<OpCase> window_cases() {
  std::vector<OpCase> cases;
  for (const Geometry& geometry : geometries()) {
    add_convolutions(cases, geometry);
    add_pools(cases, geometry);
  }
  for (const Geometry& geometry : grouped_geometries()) {
    add_convolutions(cases, geometry);
  }
  for (const Shape& shape : {Shape{6}, Shape{4, 6}, Shape{2, 3, 2, 4}}) {
    const std::string text = shape_string(shape);
    cases.push_back({"moments of " + text, "moments", {{shape}}});
    cases.push_back({"channel_sums of " + text, "channel_sums", {{shape}, {shape}}});
    const Shape channels = {shape.back()};
    cases.push_back(
        {"channel_affine of " + text, "channel_affine", {{shape}, {channels}, {channels}}});
  }
  return cases;
}

}  // namespace meshtrain
