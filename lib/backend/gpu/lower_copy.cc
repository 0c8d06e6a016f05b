// Elements moved as they are: copies between strided views, fills, running numbers.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

constexpr int64_t kEdge = 32;          // edge of a transposed tile
constexpr int64_t kSmallestPlane = 8;  // below, tiles would be mostly empty

// Bytes side by side on both sides: words, and the bytes behind the last whole word.
Launch straight_copy(const std::byte* from, std::byte* to, int64_t bytes) {
  const int64_t word = common_word(
      {static_cast<int64_t>(address(from) % 16), static_cast<int64_t>(address(to) % 16)});
  const int64_t words = bytes / word;
  Launch launch;
  launch.blocks = blocks_for(words, kSpread);
  launch.args = {address(from), address(to), static_cast<uint64_t>(words),
                 static_cast<uint64_t>(bytes % word), launch.blocks * kThreads * kSpread};
  launch.body =
      make_body("copy", call_text("copy_straight", {word_type(word)}, false), 0, false, "copy");
  return launch;
}

// Dimensions in the memory order of `to`, so that neighbouring threads write neighbours.
StridedLoop in_order_of_result(const View& from, const View& to) {
  std::vector<size_t> order(to.rank());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&to](size_t a, size_t b) {
    return std::abs(to.strides[a]) > std::abs(to.strides[b]);
  });
  StridedLoop loop;
  loop.strides.resize(2);
  for (size_t d : order) {
    loop.sizes.push_back(to.shape[d]);
    loop.strides[0].push_back(from.strides[d]);
    loop.strides[1].push_back(to.strides[d]);
  }
  coalesce(loop);
  return loop;
}

// Where both sides are side by side in the last dimension: that one in words instead of elements,
// as wide as all rows allow. Returns the bytes of a word.
int64_t widen(StridedLoop& loop, const std::byte* from, const std::byte* to, int64_t item) {
  if (loop.strides[0].back() != 1 || loop.strides[1].back() != 1)
    return item;
  std::vector<int64_t> bytes = {static_cast<int64_t>(address(from) % 16),
                                static_cast<int64_t>(address(to) % 16), loop.sizes.back() * item};
  for (const std::vector<int64_t>& strides : loop.strides) {
    for (size_t d = 0; d + 1 < loop.rank(); ++d)
      bytes.push_back(std::abs(strides[d]) * item);
  }
  const int64_t word = common_word(std::move(bytes));
  if (word <= item)
    return item;
  loop.sizes.back() /= word / item;
  for (std::vector<int64_t>& strides : loop.strides) {
    for (size_t d = 0; d + 1 < loop.rank(); ++d)
      strides[d] /= word / item;
  }
  return word;
}

// Element by element in the order of the result, each thread kSpread of them, kThreads apart.
Launch strided_copy(StridedLoop loop, const std::byte* from, std::byte* to, int64_t item) {
  const std::string type = word_type(widen(loop, from, to, item));
  const int64_t total = num_elements(loop.sizes);
  Launch launch;
  launch.blocks = blocks_for(total, kSpread);
  launch.args = {address(from), address(to)};
  const int64_t step = static_cast<int64_t>(launch.blocks) * kThreads * kSpread;
  launch.body = make_body(
      "copy_strided",
      call_text(
          "copy_strided",
          {index_type(loop_reach(loop, step)), type, loop_text(loop.sizes, loop.strides[0]),
           loop_text(loop.sizes, loop.strides[1]), std::to_string(total), std::to_string(step)},
          false),
      0, false, "copy");
  return launch;
}

// `from` is side by side in dimension `d`, `to` in the last: tiles of these two, read along one and
// written along the other. A block takes one tile after the other.
Launch tiled_copy(const StridedLoop& loop, size_t d, const std::byte* from, std::byte* to,
                  int64_t item) {
  const int64_t rows = loop.sizes[d], columns = loop.sizes.back();
  StridedLoop tiles;
  tiles.strides.resize(2);
  const auto add_dimension = [&](int64_t size, int64_t from_stride, int64_t to_stride) {
    tiles.sizes.push_back(size);
    tiles.strides[0].push_back(from_stride);
    tiles.strides[1].push_back(to_stride);
  };
  for (size_t other = 0; other + 1 < loop.rank(); ++other) {
    if (other != d)
      add_dimension(loop.sizes[other], loop.strides[0][other], loop.strides[1][other]);
  }
  const int64_t row_tiles = (rows + kEdge - 1) / kEdge,
                column_tiles = (columns + kEdge - 1) / kEdge;
  add_dimension(row_tiles, kEdge, kEdge * loop.strides[1][d]);
  add_dimension(column_tiles, kEdge * loop.strides[0].back(), kEdge);
  const int64_t count = num_elements(tiles.sizes);
  Launch launch;
  launch.blocks = static_cast<uint64_t>(std::min<int64_t>(count, kMaxBlocks));
  launch.args = {address(from), address(to)};
  const std::string tiling = struct_text("Tiling", {{"edge", kEdge},
                                                    {"count", count},
                                                    {"blocks", static_cast<int64_t>(launch.blocks)},
                                                    {"rows", rows},
                                                    {"columns", columns},
                                                    {"from_column", loop.strides[0].back()},
                                                    {"to_row", loop.strides[1][d]}});
  launch.body = make_body("copy_tiled",
                          call_text("copy_tiled",
                                    {tiling, index_type(loop_reach(loop, 0)), word_type(item),
                                     loop_text(tiles.sizes, tiles.strides[0]),
                                     loop_text(tiles.sizes, tiles.strides[1])},
                                    true),
                          static_cast<unsigned>(kEdge * (kEdge + 1) * item), true, "copy");
  return launch;
}

Launch copy_launch(const View& from, const View& to) {
  const StridedLoop loop = in_order_of_result(from, to);
  const bool reads_runs = loop.strides[0].back() == 1, writes_runs = loop.strides[1].back() == 1;
  if (loop.rank() == 1 && ((reads_runs && writes_runs) || loop.sizes[0] == 1))
    return straight_copy(from.data, to.data, loop.sizes[0] * from.item_size());
  if (!reads_runs && writes_runs && loop.sizes.back() >= kSmallestPlane) {
    for (size_t d = 0; d + 1 < loop.rank(); ++d) {
      if (loop.strides[0][d] == 1 && loop.sizes[d] >= kSmallestPlane)
        return tiled_copy(loop, d, from.data, to.data, from.item_size());
    }
  }
  return strided_copy(loop, from.data, to.data, from.item_size());
}

// The 64 bits of `value`, from which an element is made.
uint64_t bits_of(DType dtype, double value) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16)
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  return dispatch_compute(dtype, [&]<class T>(T) {
    const T element = dtype == DType::kBool ? static_cast<T>(value != 0) : static_cast<T>(value);
    uint64_t bits = 0;
    std::memcpy(&bits, &element, sizeof(T));
    return bits;
  });
}

}  // namespace

void GpuLowering::make(const CopySpec& spec) {
  const auto& [from, to] = spec;
  MESHTRAIN_CHECK(from.shape == to.shape && from.dtype == to.dtype, "copy of {} to {}",
                  shape_string(from.shape), shape_string(to.shape));
  const int64_t total = num_elements(to.shape);
  if (total == 0)
    return;
  if (row_calls_) {
    row_calls_->push_back({RowCall::Kind::kCopy, path_, to.shape, {from}, {}, {{0, to}}});
    return;
  }
  Launch launch = copy_launch(from, to);
  launch.work = 2 * total;
  add(std::move(launch), {whole_access(from, false), whole_access(to, true)});
}

void GpuLowering::make(const FillSpec& spec) {
  const auto& [to, value] = spec;
  MESHTRAIN_CHECK(is_contiguous(to));
  const int64_t total = num_elements(to.shape), bytes = total * to.item_size();
  if (total == 0)
    return;
  const int64_t word =
      common_word({static_cast<int64_t>(address(to.data) % 16), bytes, int64_t{8}});
  const int64_t words = bytes / word;
  const uint64_t bits = bits_of(to.dtype, value);
  Launch launch;
  launch.blocks = blocks_for(words, kSpread);
  launch.work = total;
  // In halves: arguments of 2^40 and more would be taken for addresses.
  launch.args = {address(to.data), static_cast<uint64_t>(words), bits & 0xffffffffu, bits >> 32,
                 launch.blocks * kThreads};
  launch.body = make_body(
      "fill", call_text("fill", {word_type(word), std::string(type_name(to.dtype))}, false), 0,
      false, "copy");
  add(std::move(launch), {whole_access(to, true)});
}

void GpuLowering::make(const IotaSpec& spec) {
  const auto& [to, axis, start] = spec;
  MESHTRAIN_CHECK(is_contiguous(to) && axis < to.rank() && start >= 0);
  const int64_t total = num_elements(to.shape);
  if (total == 0)
    return;
  int64_t inner = 1;
  for (size_t d = axis + 1; d < to.rank(); ++d)
    inner *= to.shape[d];
  Launch launch;
  launch.blocks = blocks_for(total, 1);
  launch.work = total;
  launch.args = {address(to.data), static_cast<uint64_t>(start)};
  launch.body = make_body("iota",
                          call_text("iota",
                                    {std::string(type_name(to.dtype)), std::to_string(total),
                                     std::to_string(launch.blocks * kThreads),
                                     std::to_string(inner), std::to_string(to.shape[axis])},
                                    false),
                          0, false, "copy");
  add(std::move(launch), {whole_access(to, true)});
}

}  // namespace meshtrain::gpu
