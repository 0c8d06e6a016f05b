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

// The kernel of a shard, in which `bits[e]` are the numbers of the elements that a thread computes:
// kLanes neighbours of one Philox block where the shard allows it, else one. Arguments 0..5: step,
// seed, first (in halves), stream; then the arrays.
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

  // for (i...) { unsigned bits[lanes] = ...; INNER }
  std::string loop(std::string_view inner) const {
    const int64_t step = static_cast<int64_t>(blocks()) * kThreads * lanes_;
    std::string text = loop_types(loop_, step) +
                       offset_line("index_of", loop_.sizes, loop_.strides[1]) +
                       constant_line("U", "n", total());
    text += fmt::format(
        "const unsigned step = (unsigned)*(const long long*)arg[0];\n"
        "const unsigned k0 = (unsigned)arg[1], k1 = (unsigned)arg[2];\n"
        "const unsigned long long first = arg[4] << 32 | arg[3];\n"
        "for (U i = ((U)block * kThreads + threadIdx.x) * {}u; i < n; i += {}u) {{\n"
        "const unsigned long long index = first + index_of(i);\n"
        "const mt::PhiloxBlock bits = mt::philox(index / 4u, (unsigned)arg[5], step, k0, k1);\n",
        lanes_, step);
    if (lanes_ == 1)
      text += "const unsigned lane = (unsigned)index % 4u;\n";
    return text + std::string(inner) + "}\n";
  }
  // The bits of element e; in a loop over e < lanes.
  std::string_view bits() const {
    return lanes_ == 1 ? "mt::philox_lane(bits, lane)" : "bits.v[e]";
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
  std::string text = "unsigned* to = (unsigned*)arg[6];\n";
  if (random.lanes() == kLanes && is_aligned(out, 16)) {
    text += random.loop("mt::write(to, i, n, bits.v);\n");
  } else {
    text += random.loop(
        fmt::format("#pragma unroll\nfor (int e = 0; e < {}; ++e) if (i + e < n) to[i + e] = {};\n",
                    random.lanes(), random.bits()));
  }
  launch.body = make_body("random_bits", std::move(text), 0, false);
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
  const int lanes = random.lanes();
  const auto item = static_cast<int64_t>(dtype_size(dtype));
  std::string text = fmt::format("const {0}* x = (const {0}*)arg[6];\n{0}* to = ({0}*)arg[7];\n",
                                 type_name(dtype));
  const std::string value =
      fmt::format("{} < {}u ? {}(0) : {{}} * {}", random.bits(), philox_threshold(rate),
                  compute_type(dtype), literal(1.0 / (1.0 - rate), dtype));
  // Packs of more than 16 bytes are no faster than two accesses, but as right.
  if (lanes == kLanes && is_aligned(x, kLanes * item) && is_aligned(out, kLanes * item)) {
    text +=
        random.loop(fmt::format("{0} v[4];\nmt::read(v, x, i, n);\n#pragma unroll\nfor (int e = 0; "
                                "e < 4; ++e) v[e] = {1};\n"
                                "mt::write(to, i, n, v);\n",
                                compute_type(dtype), fmt::format(fmt::runtime(value), "v[e]")));
  } else {
    text += random.loop(fmt::format(
        "#pragma unroll\nfor (int e = 0; e < {}; ++e) if (i + e < n) mt::store(to + i + e, {});\n",
        lanes, fmt::format(fmt::runtime(value), "mt::load(x + i + e)")));
  }
  launch.body = make_body("dropout", std::move(text), 0, false);
  add(std::move(launch),
      std::vector<Use>{
          {shard.step, 8, false}, {x, total * item, false}, {out, total * item, true}});
}

}  // namespace meshtrain::gpu
