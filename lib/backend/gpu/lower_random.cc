// Random bits and dropout: the numbers of base/philox.h, bit by bit those of the CPU.
#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"
#include "base/philox.h"

namespace meshtrain::gpu {
namespace {

constexpr int kLanes = 4;  // numbers of one Philox block

// A thread computes kLanes neighbours of one Philox block where the shard allows it, else one.
class RandomText {
 public:
  explicit RandomText(const RandomShard& shard)
      : shard_(shard), loop_{shard.shape, {row_major_strides(shard.shape), shard.index_strides}} {
    coalesce(loop_);
    const std::vector<int64_t>& strides = loop_.strides[1];
    const auto in_blocks = [](int64_t value) { return value % kLanes == 0; };
    const bool whole_blocks = strides.back() == 1 && shard.first % kLanes == 0 &&
                              std::all_of(strides.begin(), strides.end() - 1, in_blocks);
    // Only a shard that is one run may end within a block.
    lanes_ = whole_blocks && (loop_.rank() == 1 || in_blocks(loop_.sizes.back())) ? kLanes : 1;
  }

  int64_t total() const { return num_elements(loop_.sizes); }
  int lanes() const { return lanes_; }
  uint64_t blocks() const { return blocks_for(total(), lanes_); }

  std::vector<uint64_t> args() const {
    constexpr uint64_t kHalf = 0xffffffffu;  // arguments of 2^40 and more would be addresses
    return {address(shard_.step), shard_.seed & kHalf, shard_.seed >> 32,
            shard_.first & kHalf, shard_.first >> 32,  shard_.stream};
  }

  // A Sharding, its index type and its loop.
  std::string text() const {
    const int64_t step = static_cast<int64_t>(blocks()) * kThreads * lanes_;
    return fmt::format(
        "{}, {}, {}",
        struct_text("Sharding", {{"n", total()}, {"step", step}, {"lanes", int64_t{lanes_}}}),
        index_type(loop_reach(loop_, step)), loop_text(loop_.sizes, loop_.strides[1]));
  }

 private:
  const RandomShard& shard_;
  StridedLoop loop_;  // local places, global indices
  int lanes_ = 1;
};

}  // namespace

void GpuLowering::make(const RandomBitsSpec& spec) {
  const auto& [shard, out] = spec;
  const RandomText random(shard);
  const int64_t total = random.total();
  if (total == 0)
    return;
  Launch launch;
  launch.blocks = random.blocks();
  launch.work = total;
  launch.args = random.args();
  launch.args.push_back(address(out));
  const bool in_blocks = random.lanes() == kLanes && is_aligned(out, 16);
  launch.body = make_body(
      "random_bits", call_text("random_bits", {random.text(), in_blocks ? "true" : "false"}, false),
      0, false, "random");
  add(std::move(launch), std::vector<Use>{{shard.step, 8, false}, {out, total * 4, true}});
}

void GpuLowering::make(const DropoutSpec& spec) {
  const auto& [shard, dtype, rate, x, out] = spec;
  MESHTRAIN_CHECK(is_floating(dtype), "no dropout of {}", dtype_name(dtype));
  const RandomText random(shard);
  const int64_t total = random.total();
  if (total == 0)
    return;
  Launch launch;
  launch.blocks = random.blocks();
  launch.work = 2 * total;
  launch.args = random.args();
  launch.args.push_back(address(x));
  launch.args.push_back(address(out));
  const auto item = static_cast<int64_t>(dtype_size(dtype));
  // Packs of more than 16 bytes are no faster than two accesses, but as right.
  const bool in_blocks =
      random.lanes() == kLanes && is_aligned(x, kLanes * item) && is_aligned(out, kLanes * item);
  launch.body = make_body(
      "dropout",
      call_text("dropout",
                {random.text(), in_blocks ? "true" : "false", std::string(type_name(dtype))}, false,
                fmt::format("{}u, {}", philox_threshold(rate), literal(1.0 / (1.0 - rate), dtype))),
      0, false, "random");
  add(std::move(launch),
      std::vector<Use>{
          {shard.step, 8, false}, {x, total * item, false}, {out, total * item, true}});
}

}  // namespace meshtrain::gpu
