// Launches of device/attention_tiles.cuh and attention_grad_tiles.cuh, and of attention.cuh, which
// computes what those do not: float64, and rows that are too long for registers. What cuDNN can
// compute is one command, with the launches as its parts.
#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/attention.h"
#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"
#include "base/philox.h"

namespace meshtrain::gpu {
namespace {

// As in device/attention_tiles.cuh.
constexpr int64_t kBlockRows = 128;
constexpr int64_t kMostWords = 512;  // of a key and a value

int64_t words_of(DType dtype, int64_t size) {
  const int64_t of_word = 4 / static_cast<int64_t>(dtype_size(dtype));
  return (size + 8 * of_word - 1) / (8 * of_word) * 8;
}

// A kernel of these files: sizes are constants; arrays, and where the shard begins, are arguments.
class AttentionLaunch {
 public:
  AttentionLaunch(const AttentionShape& shape, const AttentionMasks& masks,
                  const std::byte* lse_cotangent)
      : shape_(shape), masks_(masks), lse_cotangent_(lse_cotangent) {}

  // `rows`: of each sample and head, and `heads`: those at work. `arrays`: the first arguments.
  Launch launch(std::string_view kernel, int64_t rows, int64_t heads, int64_t work,
                const std::vector<const std::byte*>& arrays) const {
    const bool has_tiles = uses_tiles(), is_key_grad = kernel == "attention_key_grad";
    const int64_t others = is_key_grad ? shape_.queries : shape_.keys;
    const int64_t tile = has_tiles ? tile_of(is_key_grad, others) : 0;
    Launch out;
    out.blocks =
        has_tiles
            ? static_cast<uint64_t>(shape_.batch * heads * ((rows + kBlockRows - 1) / kBlockRows))
            : blocks_for(shape_.batch * heads * rows, 1);
    out.work = work;
    for (const std::byte* array : arrays)
      out.args.push_back(address(array));
    add_arguments(out.args);
    const std::string name = fmt::format("{}{}", kernel, has_tiles ? "_tiles" : "");
    const int64_t step = has_tiles ? 0 : static_cast<int64_t>(out.blocks) * kThreads;
    out.body = make_body(name,
                         call_text(name,
                                   {attending(step, tile, has_tiles && has_vectors(arrays)),
                                    std::string(type_name(shape_.dtype))},
                                   has_tiles, scales()),
                         has_tiles ? shared_bytes(tile) : 0, has_tiles,
                         !has_tiles              ? "attention"
                         : kernel == "attention" ? "attention_tiles"
                                                 : "attention_grad_tiles");
    return out;
  }

 private:
  int64_t words() const {
    return words_of(shape_.dtype, shape_.head_size) + words_of(shape_.dtype, shape_.value_size);
  }
  bool uses_tiles() const { return shape_.dtype != DType::kFloat64 && words() <= kMostWords; }
  // Rows of the other side that are in shared memory: of 16 .. 128 the fastest of an H200, by the
  // length of rows. Kernels of short rows run two blocks beside each other with 32.
  int64_t tile_of(bool is_key_grad, int64_t rows) const {
    const int64_t tile = words() <= 64    ? (is_key_grad ? 128 : 32)
                         : words() <= 128 ? 64
                         : words() <= 256 ? 32
                                          : 16;
    return std::min(tile, (rows + 15) / 16 * 16);
  }
  // Both rows, each four words longer, and two numbers.
  unsigned shared_bytes(int64_t tile) const {
    return static_cast<unsigned>(tile * (words() + 8 + 2) * 4);
  }
  bool has_vectors(const std::vector<const std::byte*>& arrays) const {
    constexpr int64_t kAccess = 16;
    const auto item = static_cast<int64_t>(dtype_size(shape_.dtype));
    return shape_.head_size * item % kAccess == 0 && shape_.value_size * item % kAccess == 0 &&
           std::all_of(arrays.begin(), arrays.end(),
                       [](const std::byte* array) { return is_aligned(array, kAccess); });
  }

  std::string attending(int64_t step, int64_t tile, bool has_vectors) const {
    const AttentionShape& n = shape_;
    const auto flag = [](std::string_view name, bool value) {
      return Field(name, std::string_view(value ? "true" : "false"));
    };
    return struct_text(
        "Attending",
        {{"batch", n.batch},
         {"queries", n.queries},
         {"keys", n.keys},
         {"heads", n.heads},
         {"groups", n.groups},
         {"head_size", n.head_size},
         {"value_size", n.value_size},
         flag("causal", n.causal),
         {"window", n.window},
         flag("has_query_mask", masks_.query_mask != nullptr),
         flag("has_key_mask", masks_.key_mask != nullptr),
         flag("has_segments", masks_.query_segments != nullptr),
         flag("has_positions", masks_.query_positions != nullptr),
         flag("has_mask", masks_.mask != nullptr),
         flag("has_dropout", n.rate > 0),
         flag("has_lse_cotangent", lse_cotangent_ != nullptr),
         {"mask_batch", n.mask_has_batch ? (n.mask_has_heads ? n.heads : 1) * n.queries : 0},
         {"mask_head", n.mask_has_heads ? n.queries : 0},
         {"global_heads", n.global_heads},
         {"global_queries", n.global_queries},
         {"step", step},
         {"tile", tile},
         flag("vector", has_vectors)});
  }

  std::string scales() const {
    const DType compute = compute_dtype(shape_.dtype);
    return fmt::format("AttentionScales<{}>{{{}, {}, {}u}}", type_name(compute),
                       literal(shape_.scale, compute), literal(1 / (1 - shape_.rate), compute),
                       philox_threshold(shape_.rate));
  }

  // As Pairs of device/attention.cuh has them.
  void add_arguments(std::vector<LaunchArg>& args) const {
    for (const int64_t start : {shape_.batch_start, shape_.head_start, shape_.query_start})
      args.push_back(static_cast<uint64_t>(start));
    for (const std::byte* array :
         {masks_.query_mask, masks_.key_mask, masks_.query_segments, masks_.key_segments,
          masks_.query_positions, masks_.key_positions, masks_.mask, lse_cotangent_}) {
      if (array != nullptr)
        args.push_back(address(array));
    }
    if (shape_.rate > 0) {
      constexpr uint64_t kHalf = 0xffffffffu;
      args.push_back(address(masks_.step));
      args.insert(args.end(), {shape_.seed & kHalf, shape_.seed >> 32, uint64_t{shape_.stream}});
    }
  }

  const AttentionShape& shape_;
  const AttentionMasks& masks_;
  const std::byte* lse_cotangent_;
};

// Bytes of the arrays of an attention.
struct AttentionBytes {
  explicit AttentionBytes(const AttentionShape& n) {
    const auto item = static_cast<int64_t>(dtype_size(n.dtype));
    q = n.batch * n.queries * n.heads * n.head_size * item;
    k = n.batch * n.keys * n.groups * n.head_size * item;
    v = n.batch * n.keys * n.groups * n.value_size * item;
    o = n.batch * n.queries * n.heads * n.value_size * item;
    lse = n.batch * n.heads * n.queries * (n.dtype == DType::kFloat64 ? 8 : 4);
  }
  int64_t q, k, v, o, lse;
};

// Calls use(array, bytes) for the optional operands that are there.
template <class F>
void for_each_mask(const AttentionShape& n, const AttentionMasks& masks, F&& use) {
  const int64_t queries = n.batch * n.queries, keys = n.batch * n.keys;
  use(masks.step, 8);
  use(masks.query_mask, queries);
  use(masks.key_mask, keys);
  use(masks.query_segments, 4 * queries);
  use(masks.key_segments, 4 * keys);
  use(masks.query_positions, 4 * queries);
  use(masks.key_positions, 4 * keys);
  use(masks.mask,
      (n.mask_has_batch ? n.batch : 1) * (n.mask_has_heads ? n.heads : 1) * n.queries * n.keys);
}

bool are_whole_accesses(std::initializer_list<const std::byte*> arrays) {
  return std::all_of(arrays.begin(), arrays.end(),
                     [](const std::byte* array) { return is_aligned(array, 16); });
}

}  // namespace

bool library_takes(const AttentionShape& n, const AttentionMasks& masks) {
  constexpr int64_t kLeastRows = 256, kMostHeadSize = 128;
  return dtype_size(n.dtype) == 2 && n.head_size % 8 == 0 && n.head_size <= kMostHeadSize &&
         n.value_size == n.head_size && n.queries >= kLeastRows && n.keys >= kLeastRows &&
         n.rate == 0 && n.window == 0 && n.query_start == 0 && masks.query_mask == nullptr &&
         masks.key_mask == nullptr && masks.query_segments == nullptr &&
         masks.query_positions == nullptr && masks.mask == nullptr;
}

// The last commands, from `first` on, become the parts of one.
void GpuLowering::join(size_t first, Attention attention) {
  const auto begin = commands_.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<Access> accesses;
  for (auto part = begin; part != commands_.end(); ++part)
    accesses.insert(accesses.end(), part->accesses.begin(), part->accesses.end());
  attention.apart = std::make_shared<const std::vector<Command>>(begin, commands_.end());
  commands_.erase(begin, commands_.end());
  commands_.push_back({std::move(attention), std::move(accesses), path_});
}

void GpuLowering::make(const AttentionSpec& spec) {
  const AttentionShape& n = spec.shape;
  MESHTRAIN_CHECK(is_floating(n.dtype), "{}", dtype_name(n.dtype));
  const int64_t rows = n.batch * n.queries * n.heads;
  if (rows == 0)
    return;
  const AttentionBytes bytes(n);
  std::vector<Use> uses = {{spec.q, bytes.q, false},
                           {spec.k, bytes.k, false},
                           {spec.v, bytes.v, false},
                           {spec.o, bytes.o, true},
                           {spec.lse, bytes.lse, true}};
  for_each_mask(n, spec.masks, [&](const std::byte* data, int64_t size) {
    if (data != nullptr)
      uses.push_back({data, size, false});
  });
  const AttentionLaunch kernel(n, spec.masks, nullptr);
  const size_t first = commands_.size();
  add(kernel.launch("attention", n.queries, n.heads, rows * n.keys * (n.head_size + n.value_size),
                    {spec.q, spec.k, spec.v, spec.o, spec.lse}),
      uses);
  if (library_takes(n, spec.masks) && are_whole_accesses({spec.q, spec.k, spec.v, spec.o}))
    join(first, {n, spec.q, spec.k, spec.v, spec.o, spec.lse});
}

void GpuLowering::make(const AttentionGradSpec& spec) {
  const AttentionShape& n = spec.shape;
  MESHTRAIN_CHECK(is_floating(n.dtype), "{}", dtype_name(n.dtype));
  const int64_t rows = n.batch * n.queries * n.heads, key_rows = n.batch * n.keys * n.groups;
  if (rows == 0 || key_rows == 0)
    return;
  const AttentionBytes bytes(n);
  std::byte* const delta = scratch(bytes.lse);
  std::vector<Use> reads = {{spec.q, bytes.q, false},
                            {spec.k, bytes.k, false},
                            {spec.v, bytes.v, false},
                            {spec.lse, bytes.lse, false},
                            {spec.o_cotangent, bytes.o, false}};
  for_each_mask(n, spec.masks, [&](const std::byte* data, int64_t size) {
    if (data != nullptr)
      reads.push_back({data, size, false});
  });
  const AttentionLaunch kernel(n, spec.masks, spec.lse_cotangent);
  const int64_t pairs = rows * n.keys;
  std::vector<Use> uses = reads;
  uses.push_back({spec.o, bytes.o, false});
  uses.push_back({spec.dq, bytes.q, true});
  uses.push_back({delta, bytes.lse, true});
  const size_t first = commands_.size();
  if (spec.lse_cotangent != nullptr)
    uses.push_back({spec.lse_cotangent, bytes.lse, false});
  add(kernel.launch("attention_query_grad", n.queries, n.heads,
                    pairs * (2 * n.head_size + n.value_size),
                    {spec.q, spec.k, spec.v, spec.o, spec.lse, spec.o_cotangent, spec.dq, delta}),
      uses);
  uses = reads;
  uses.push_back({delta, bytes.lse, false});
  uses.push_back({spec.dk, bytes.k, true});
  uses.push_back({spec.dv, bytes.v, true});
  if (spec.lse_cotangent != nullptr)  // an argument of this text, too
    uses.push_back({spec.lse_cotangent, bytes.lse, false});
  add(kernel.launch("attention_key_grad", n.keys, n.groups,
                    pairs * 2 * (n.head_size + n.value_size),
                    {spec.q, spec.k, spec.v, spec.lse, spec.o_cotangent, delta, spec.dk, spec.dv}),
      uses);
  if (library_takes(n, spec.masks) && spec.lse_cotangent == nullptr &&
      are_whole_accesses(
          {spec.q, spec.k, spec.v, spec.o, spec.o_cotangent, spec.dq, spec.dk, spec.dv})) {
    join(first, {n, spec.q, spec.k, spec.v, spec.o, spec.lse, spec.o_cotangent, spec.dq, spec.dk,
                 spec.dv, delta});
  }
}

void GpuLowering::make(const RotarySpec& spec) {
  const RotaryShape& n = spec.shape;
  MESHTRAIN_CHECK(is_floating(n.dtype), "{}", dtype_name(n.dtype));
  const int64_t half = n.size / 2, pairs = n.batch * n.steps * n.heads * half;
  if (pairs == 0)
    return;
  Launch launch;
  launch.blocks = blocks_for(pairs, 1);
  launch.work = 4 * pairs;
  launch.args = {address(spec.x), address(spec.cosine), address(spec.sine), address(spec.out)};
  const int64_t step = static_cast<int64_t>(launch.blocks) * kThreads;
  launch.body = make_body("rotary",
                          call_text("rotary",
                                    {struct_text("Rotating", {{"pairs", pairs},
                                                              {"step", step},
                                                              {"half", half},
                                                              {"heads", n.heads},
                                                              {"steps", n.steps},
                                                              {"has_batch", int64_t{n.has_batch}},
                                                              {"is_inverse", int64_t{n.inverse}}}),
                                     std::string(type_name(n.dtype))},
                                    false),
                          0, false, "attention");
  const auto item = static_cast<int64_t>(dtype_size(n.dtype));
  const int64_t angles = (n.has_batch ? n.batch : 1) * n.steps * half * item;
  add(std::move(launch), std::vector<Use>{{spec.x, 2 * pairs * item, false},
                                          {spec.cosine, angles, false},
                                          {spec.sine, angles, false},
                                          {spec.out, 2 * pairs * item, true}});
}

}  // namespace meshtrain::gpu
