// Attention on a shard, through the loops of simd/attention.cc. A unit of the forward pass is one
// query head, of the gradient one key head with the query heads that read it.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"
#include "base/philox.h"

namespace meshtrain::cpu {
namespace {

constexpr double kAttentionFlopsRate = 30;
constexpr int64_t kLeastSize = 16;           // of bfloat16
constexpr double kNanosecondsOfScore = 0.5;  // mask, exponential, packing

class Attention : public Kernel {
 public:
  // `stored`: the type of the arrays that those of the shape's type were widened from.
  Attention(const AttentionShape& shape, const AttentionMasks& masks, DType stored)
      : shape_(shape),
        masks_(masks),
        item_(static_cast<int64_t>(dtype_size(shape.dtype))),
        type_(type_index(stored)) {
    // Loops of pairs have little to gain below a vector's width.
    const bool is_small = std::min({shape.head_size, shape.value_size, shape.keys}) < kLeastSize;
    if (kernels().attention[type_] == nullptr || is_small)
      type_ = type_index(shape.dtype);
    MESHTRAIN_CHECK(kernels().attention[type_] != nullptr, "no attention of {}",
                    dtype_name(shape.dtype));
  }

 protected:
  int64_t q_item() const { return shape_.queries * shape_.heads * shape_.head_size; }
  int64_t k_item() const { return shape_.keys * shape_.groups * shape_.head_size; }
  int64_t v_item() const { return shape_.keys * shape_.groups * shape_.value_size; }
  int64_t o_item() const { return shape_.queries * shape_.heads * shape_.value_size; }
  int64_t lse_item() const { return shape_.heads * shape_.queries; }

  // The arguments of `readers` query heads from head h of batch item b on, without arrays.
  AttentionArgs args_of(int64_t b, int64_t h, int64_t readers) const {
    const AttentionShape& n = shape_;
    AttentionArgs a;
    a.queries = n.queries;
    a.keys = n.keys;
    a.readers = readers;
    a.head_size = n.head_size;
    a.value_size = n.value_size;
    a.q_row = n.heads * n.head_size;
    a.k_row = n.groups * n.head_size;
    a.v_row = n.groups * n.value_size;
    a.o_row = n.heads * n.value_size;
    a.scale = n.scale;
    a.causal = n.causal;
    a.window = n.window;
    a.query_start = n.query_start;
    const auto flags = [&](const std::byte* data, int64_t size) {
      return data == nullptr ? nullptr : reinterpret_cast<const uint8_t*>(data) + b * size;
    };
    const auto numbers = [&](const std::byte* data, int64_t size) {
      return data == nullptr ? nullptr : reinterpret_cast<const int32_t*>(data) + b * size;
    };
    a.query_mask = flags(masks_.query_mask, n.queries);
    a.key_mask = flags(masks_.key_mask, n.keys);
    a.query_segments = numbers(masks_.query_segments, n.queries);
    a.key_segments = numbers(masks_.key_segments, n.keys);
    a.query_positions = numbers(masks_.query_positions, n.queries);
    a.key_positions = numbers(masks_.key_positions, n.keys);
    if (masks_.mask != nullptr) {
      const int64_t pairs = n.queries * n.keys;
      a.mask_reader = n.mask_has_heads ? pairs : 0;
      const int64_t of_item = n.mask_has_heads ? n.heads * pairs : pairs;
      a.mask = reinterpret_cast<const uint8_t*>(masks_.mask) +
               (n.mask_has_batch ? b * of_item : 0) + h * a.mask_reader;
    }
    if (n.rate > 0) {
      int64_t step;
      std::memcpy(&step, masks_.step, sizeof(step));
      a.threshold = philox_threshold(n.rate);
      a.factor = 1 / (1 - n.rate);
      a.stream = {n.seed, n.stream, static_cast<uint32_t>(step)};
      a.first_index = n.first_index(b, h);
      a.reader_index = static_cast<uint64_t>(n.global_queries * n.keys);
      a.random_bits = kernels().random_bits;
    }
    return a;
  }

  double cost_of(double flops_of_pair) const {
    const double pairs = static_cast<double>(shape_.batch * shape_.heads * shape_.queries) *
                         static_cast<double>(shape_.keys) * (shape_.causal ? 0.6 : 1);
    return pairs * (flops_of_pair / kAttentionFlopsRate + kNanosecondsOfScore);
  }

  // Whole batch items of an array with `elements` in each; of what is absent nothing.
  static void add_access(const std::byte* data, int64_t bytes, int64_t first, int64_t last,
                         bool is_write, std::vector<Access>& out) {
    if (data != nullptr)
      out.push_back({data + first * bytes, data + last * bytes, is_write});
  }
  void add_mask_accesses(int64_t first, int64_t last, std::vector<Access>& out) const {
    const AttentionShape& n = shape_;
    add_access(masks_.step, sizeof(int64_t), 0, 1, false, out);
    add_access(masks_.query_mask, n.queries, first, last, false, out);
    add_access(masks_.key_mask, n.keys, first, last, false, out);
    add_access(masks_.query_segments, 4 * n.queries, first, last, false, out);
    add_access(masks_.key_segments, 4 * n.keys, first, last, false, out);
    add_access(masks_.query_positions, 4 * n.queries, first, last, false, out);
    add_access(masks_.key_positions, 4 * n.keys, first, last, false, out);
    const int64_t mask = (n.mask_has_heads ? n.heads : 1) * n.queries * n.keys;
    add_access(masks_.mask, mask, n.mask_has_batch ? first : 0, n.mask_has_batch ? last : 1, false,
               out);
  }

  AttentionShape shape_;
  AttentionMasks masks_;
  int64_t item_;
  TypeIndex type_;
};

class AttentionForward final : public Attention {
 public:
  AttentionForward(const AttentionSpec& spec, DType stored)
      : Attention(spec.shape, spec.masks, stored), spec_(spec) {}
  int64_t units() const override { return shape_.batch * shape_.heads; }
  size_t scratch_bytes() const override {
    AttentionArgs a;
    a.keys = shape_.keys;
    a.head_size = shape_.head_size;
    a.value_size = shape_.value_size;
    return static_cast<size_t>(kernels().attention_scratch[type_](a, false));
  }
  double cost() const override {
    return cost_of(2 * static_cast<double>(shape_.head_size + shape_.value_size));
  }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t b = unit / shape_.heads, h = unit % shape_.heads, g = h / shape_.readers();
      AttentionArgs a = args_of(b, h, 1);
      a.q = spec_.q + (b * q_item() + h * shape_.head_size) * item_;
      a.k = spec_.k + (b * k_item() + g * shape_.head_size) * item_;
      a.v = spec_.v + (b * v_item() + g * shape_.value_size) * item_;
      a.o = spec_.o + (b * o_item() + h * shape_.value_size) * item_;
      a.lse = spec_.lse + unit * shape_.queries * item_;
      kernels().attention[type_](a, scratch);
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t first = begin / shape_.heads, last = (end - 1) / shape_.heads + 1;
    add_mask_accesses(first, last, out);
    add_access(spec_.q, q_item() * item_, first, last, false, out);
    add_access(spec_.k, k_item() * item_, first, last, false, out);
    add_access(spec_.v, v_item() * item_, first, last, false, out);
    add_access(spec_.o, o_item() * item_, first, last, true, out);
    add_access(spec_.lse, lse_item() * item_, first, last, true, out);
  }

 private:
  AttentionSpec spec_;
};

class AttentionGradient final : public Attention {
 public:
  AttentionGradient(const AttentionGradSpec& spec, DType stored)
      : Attention(spec.shape, spec.masks, stored), spec_(spec) {}
  int64_t units() const override { return shape_.batch * shape_.groups; }
  size_t scratch_bytes() const override {
    AttentionArgs a;
    a.keys = shape_.keys;
    a.head_size = shape_.head_size;
    a.value_size = shape_.value_size;
    return static_cast<size_t>(kernels().attention_scratch[type_](a, true));
  }
  double cost() const override {
    return cost_of(2 * static_cast<double>(3 * shape_.head_size + 2 * shape_.value_size));
  }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t readers = shape_.readers();
      const int64_t b = unit / shape_.groups, g = unit % shape_.groups, h = g * readers;
      AttentionArgs a = args_of(b, h, readers);
      const int64_t q = (b * q_item() + h * shape_.head_size) * item_;
      const int64_t k = (b * k_item() + g * shape_.head_size) * item_;
      const int64_t v = (b * v_item() + g * shape_.value_size) * item_;
      const int64_t o = (b * o_item() + h * shape_.value_size) * item_;
      const int64_t lse = (b * lse_item() + h * shape_.queries) * item_;
      a.q = spec_.q + q;
      a.k = spec_.k + k;
      a.v = spec_.v + v;
      a.o = const_cast<std::byte*>(spec_.o) + o;
      a.lse = const_cast<std::byte*>(spec_.lse) + lse;
      a.o_cotangent = spec_.o_cotangent + o;
      a.lse_cotangent = spec_.lse_cotangent == nullptr ? nullptr : spec_.lse_cotangent + lse;
      a.dq = spec_.dq + q;
      a.dk = spec_.dk + k;
      a.dv = spec_.dv + v;
      kernels().attention_grad[type_](a, scratch);
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t first = begin / shape_.groups, last = (end - 1) / shape_.groups + 1;
    add_mask_accesses(first, last, out);
    add_access(spec_.q, q_item() * item_, first, last, false, out);
    add_access(spec_.k, k_item() * item_, first, last, false, out);
    add_access(spec_.v, v_item() * item_, first, last, false, out);
    add_access(spec_.o, o_item() * item_, first, last, false, out);
    add_access(spec_.o_cotangent, o_item() * item_, first, last, false, out);
    add_access(spec_.lse, lse_item() * item_, first, last, false, out);
    add_access(spec_.lse_cotangent, lse_item() * item_, first, last, false, out);
    add_access(spec_.dq, q_item() * item_, first, last, true, out);
    add_access(spec_.dk, k_item() * item_, first, last, true, out);
    add_access(spec_.dv, v_item() * item_, first, last, true, out);
  }

 private:
  AttentionGradSpec spec_;
};

// Elements of the arrays of q, k, v and o.
struct AttentionElements {
  explicit AttentionElements(const AttentionShape& n)
      : q(n.batch * n.queries * n.heads * n.head_size),
        k(n.batch * n.keys * n.groups * n.head_size),
        v(n.batch * n.keys * n.groups * n.value_size),
        o(n.batch * n.queries * n.heads * n.value_size) {}
  int64_t q, k, v, o;
};

}  // namespace

void CpuLowering::make(const AttentionSpec& spec) {
  const DType dtype = spec.shape.dtype;
  const AttentionElements n(spec.shape);
  AttentionSpec wide = spec;
  wide.shape = computed(spec.shape);
  wide.q = read(dtype, spec.q, n.q);
  wide.k = read(dtype, spec.k, n.k);
  wide.v = read(dtype, spec.v, n.v);
  wide.o = written(dtype, spec.o, n.o);
  add(std::make_unique<AttentionForward>(wide, dtype));
}

void CpuLowering::make(const AttentionGradSpec& spec) {
  const DType dtype = spec.shape.dtype;
  const AttentionElements n(spec.shape);
  AttentionGradSpec wide = spec;
  wide.shape = computed(spec.shape);
  wide.q = read(dtype, spec.q, n.q);
  wide.k = read(dtype, spec.k, n.k);
  wide.v = read(dtype, spec.v, n.v);
  wide.o = read(dtype, spec.o, n.o);
  wide.o_cotangent = read(dtype, spec.o_cotangent, n.o);
  wide.dq = written(dtype, spec.dq, n.q);
  wide.dk = written(dtype, spec.dk, n.k);
  wide.dv = written(dtype, spec.dv, n.v);
  add(std::make_unique<AttentionGradient>(wide, dtype));
}

}  // namespace meshtrain::cpu
