// Convolutions, pools and per-channel sums against the interpreter, on every split.
#include <doctest/doctest.h>

#include "check_op.h"
#include "ir/ops/window.h"

namespace meshtrain::testing {
namespace {

struct Geometry {
  Shape x, kernel;
  Window window;
};

Window plain(size_t dims) {
  const std::vector<int64_t> ones(dims, 1), zeros(dims, 0);
  return {ones, ones, zeros, zeros};
}

Shape y_shape(const Geometry& g) {
  Shape y = g.x;
  for (size_t d = 0; d + 2 < g.x.size(); ++d) {
    y[d + 1] = window_outputs(g.window, d, g.x[d + 1], g.kernel[d]);
  }
  y.back() = g.kernel.back();
  return y;
}

// conv and both transposes, on every split.
void check_convolutions(const Geometry& g) {
  Attrs attrs;
  set_window(attrs, g.window);
  check_everywhere({"conv", {{g.x}, {g.kernel}}, attrs, 1e-5});
  attrs["shape"] = g.x;
  check_everywhere({"conv_dgrad", {{y_shape(g)}, {g.kernel}}, attrs, 1e-5});
  attrs["shape"] = g.kernel;
  check_everywhere({"conv_wgrad", {{g.x}, {y_shape(g)}}, attrs, 1e-5});
}

TEST_CASE("convolutions of one dimension equal the interpreter on every split") {
  check_convolutions({{8, 7, 2}, {3, 2, 8}, plain(1)});
  check_convolutions({{8, 9, 8}, {2, 8, 16}, {{2}, {1}, {1}, {0}}});
  check_convolutions({{8, 12, 3}, {3, 3, 5}, {{1}, {2}, {4}, {0}}});
  check_convolutions({{4, 70, 1}, {5, 1, 8}, {{3}, {1}, {2}, {2}}});
}

TEST_CASE("convolutions of two dimensions equal the interpreter on every split") {
  check_convolutions({{8, 6, 5, 4}, {3, 3, 4, 8}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}});
  check_convolutions({{8, 9, 8, 3}, {6, 6, 3, 24}, {{2, 2}, {1, 1}, {2, 2}, {2, 2}}});
  check_convolutions({{8, 7, 6, 8}, {1, 1, 8, 40}, plain(2)});
  check_convolutions({{8, 7, 6, 2}, {1, 1, 2, 8}, {{2, 3}, {1, 1}, {0, 0}, {0, 0}}});
  check_convolutions({{8, 6, 7, 2}, {2, 3, 2, 8}, {{1, 2}, {2, 2}, {0, 3}, {1, 1}}});
  check_convolutions({{8, 4, 4, 2}, {4, 4, 2, 8}, plain(2)});
}

TEST_CASE("convolutions of one cell and an odd number of filters equal the interpreter") {
  check_convolutions({{8, 5, 6, 3}, {1, 1, 3, 1}, plain(2)});
  check_convolutions({{8, 5, 6, 16}, {1, 1, 16, 5}, plain(2)});
  check_convolutions({{4, 5, 6, 20}, {1, 1, 20, 13}, {{2, 2}, {1, 1}, {0, 0}, {0, 0}}});
}

TEST_CASE("convolutions that are products equal the interpreter on every split") {
  check_convolutions({{8, 5, 6, 16}, {1, 1, 16, 40}, plain(2)});
  check_convolutions({{4, 3, 2, 3, 32}, {1, 1, 1, 32, 16}, plain(3)});
  check_convolutions({{8, 9, 24}, {1, 24, 16}, plain(1)});
  // Images of a few pixels: products of patches.
  check_convolutions({{8, 7, 6, 16}, {3, 2, 16, 24}, {{2, 3}, {1, 2}, {1, 0}, {1, 1}}});
  check_convolutions({{5, 4, 4, 24}, {3, 3, 24, 16}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}});
  check_convolutions({{8, 11, 16}, {4, 16, 16}, {{1}, {2}, {2}, {3}}});
}

TEST_CASE("convolutions of three dimensions equal the interpreter on every split") {
  check_convolutions(
      {{8, 3, 4, 5, 2}, {2, 3, 2, 2, 8}, {{1, 2, 1}, {1, 1, 2}, {1, 0, 1}, {0, 1, 1}}});
  check_convolutions({{4, 2, 3, 2, 4}, {1, 1, 1, 4, 3}, plain(3)});
}

TEST_CASE("grouped convolutions equal the interpreter on every split") {
  check_convolutions({{8, 7, 16}, {3, 4, 8}, {{1}, {1}, {1}, {1}}});
  check_convolutions({{8, 5, 6, 8}, {3, 2, 4, 24}, {{2, 1}, {1, 1}, {1, 0}, {1, 1}}});
  check_convolutions({{8, 5, 6, 16}, {3, 3, 1, 16}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}});
  check_convolutions({{8, 5, 6, 24}, {3, 3, 1, 24}, {{2, 2}, {1, 1}, {0, 1}, {1, 0}}});
  check_convolutions({{8, 5, 6, 8}, {3, 2, 1, 24}, {{1, 2}, {1, 2}, {1, 1}, {1, 1}}});
}

// Larger than a box of the source, a share of images, a tile of rows, a panel of columns.
TEST_CASE("large images and many channels are cut as small ones are not") {
  check_convolutions({{4, 24, 20, 4}, {3, 3, 4, 8}, {{2, 1}, {1, 1}, {0, 1}, {1, 1}}});
  check_convolutions({{24, 2, 2, 20}, {3, 3, 20, 40}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}});
  check_convolutions({{2, 20000, 8}, {3, 8, 4}, {{8}, {1}, {1}, {1}}});
}

// Batches that leave a remainder, channels in whole blocks, in parts of them, and of 12.
TEST_CASE("convolutions of any number of images equal the interpreter on every split") {
  check_convolutions({{7, 6, 5, 16}, {3, 3, 16, 32}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}});
  check_convolutions({{11, 9, 8, 12}, {6, 6, 12, 24}, {{2, 2}, {1, 1}, {2, 2}, {2, 2}}});
  check_convolutions({{35, 5, 5, 18}, {3, 3, 18, 20}, {{1, 1}, {2, 2}, {2, 2}, {2, 2}}});
  check_convolutions({{40, 9, 9, 3}, {7, 7, 3, 16}, {{2, 2}, {1, 1}, {3, 3}, {3, 3}}});
  check_convolutions({{3, 6, 5, 16}, {3, 3, 16, 16}, {{1, 1}, {1, 1}, {1, 1}, {1, 1}}});
}

void check_pools(const Shape& x, const std::vector<int64_t>& size, const Window& window) {
  Attrs attrs;
  set_window(attrs, window);
  attrs["size"] = size;
  Shape kernel = size;
  kernel.insert(kernel.end(), {1, x.back()});
  const Shape y = y_shape({x, kernel, window});
  check_everywhere({"max_pool", {{x}}, attrs});
  check_everywhere({"avg_pool", {{x}}, attrs});
  check_everywhere({"max_pool_grad", {{x}, {y}}, attrs});
  attrs["shape"] = x;
  check_everywhere({"avg_pool_grad", {{y}}, attrs});
}

TEST_CASE("pools equal the interpreter on every split") {
  check_pools({8, 9, 16}, {2}, {{2}, {1}, {0}, {0}});
  check_pools({8, 6, 7, 5}, {3, 2}, {{2, 2}, {1, 1}, {1, 0}, {1, 1}});
  check_pools({8, 6, 7, 72}, {2, 2}, {{1, 2}, {2, 1}, {1, 0}, {0, 1}});
  check_pools({8, 4, 5, 4, 8}, {2, 2, 3}, {{2, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 0, 1}});
}

TEST_CASE("the gradient of a pool goes to the first of equals") {
  Attrs attrs;
  set_window(attrs, {{1, 1}, {1, 1}, {0, 0}, {0, 0}});
  attrs["size"] = std::vector<int64_t>{2, 2};
  const Operand x{{8, 5, 5, 8}, DType::kFloat32, Values::kSmallIntegers};
  check_everywhere({"max_pool_grad", {x, {{8, 4, 4, 8}}}, attrs});
}

TEST_CASE("per-channel sums and scales equal the interpreter on every split") {
  for (const Shape& shape : {Shape{16, 8}, Shape{8, 3, 5, 24}, Shape{200, 12}, Shape{16, 40, 7},
                             Shape{64, 130}, Shape{4000, 10}}) {
    check_everywhere({"moments", {{shape}}, {}, 1e-12});
    check_everywhere({"channel_sums", {{shape}, {shape}}, {}, 1e-12});
    const Shape channels = {shape.back()};
    check_everywhere({"channel_affine", {{shape}, {channels}, {channels}}});
  }
}

}  // namespace
}  // namespace meshtrain::testing
