// Attention and rotary positions (formulas: ir/ops/attention.cc): one thread computes a row of
// queries, or one of keys. Nothing of queries x keys is stored, and sums have one order.
#include <fmt/format.h>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "base/philox.h"

namespace meshtrain::gpu {
namespace {

// What the kernels of an attention begin with: sizes, and whether a pair takes part.
constexpr std::string_view kAllowed = R"(
const auto allowed = [=](long long b, long long h, long long i, long long j) -> bool {
if (has_query_mask && query_mask[b * queries + i] == 0) return false;
if (has_key_mask && key_mask[b * keys + j] == 0) return false;
if (has_segments && query_segments[b * queries + i] != key_segments[b * keys + j]) return false;
if (has_mask && mask[(b * mask_batch + h * mask_head + i) * keys + j] == 0) return false;
const long long x = has_positions ? (long long)query_positions[b * queries + i] : i + query_start;
const long long y = has_positions ? (long long)key_positions[b * keys + j] : j;
if (causal && x < y) return false;
return window == 0 || (x - y < window && y - x < window);
};
const auto kept = [=](long long b, long long h, long long i, long long j) -> T {
if (!has_dropout) return T(1);
const unsigned long long row = (unsigned long long)(((b + batch_start) * global_heads + h + head_start) *
global_queries + i + query_start);
const unsigned long long index = row * (unsigned long long)keys + (unsigned long long)j;
const mt_philox_block bits = mt_philox(index / 4u, stream, step, k0, k1);
return mt_philox_lane(bits, (unsigned)index % 4u) < threshold ? T(0) : factor;
};
)";

constexpr std::string_view kAttend = R"(
const E* q = (const E*)arg[0];
const E* k = (const E*)arg[1];
const E* v = (const E*)arg[2];
E* o = (E*)arg[3];
T* lse = (T*)arg[4];
for (long long row = (long long)block * kThreads + threadIdx.x; row < batch * queries * heads; row += step_of_rows) {
const long long h = row % heads, i = row / heads % queries, b = row / (heads * queries);
T sums[value_size];
for (int e = 0; e < value_size; ++e) sums[e] = 0;
T largest = minus_infinity, total = 0;
for (long long j = 0; j < keys; ++j) {
if (!allowed(b, h, i, j)) continue;
const long long at = (b * keys + j) * groups + h / readers;
T score = 0;
for (int d = 0; d < head_size; ++d) score += mt_load(q + row * head_size + d) * mt_load(k + at * head_size + d);
score *= scale;
if (score > largest) {
const T old = mt_exp(largest - score);
total *= old;
for (int e = 0; e < value_size; ++e) sums[e] *= old;
largest = score;
}
const T p = mt_exp(score - largest);
total += p;
const T weight = p * kept(b, h, i, j);
for (int e = 0; e < value_size; ++e) sums[e] += weight * mt_load(v + at * value_size + e);
}
for (int e = 0; e < value_size; ++e) mt_store(o + row * value_size + e, total == T(0) ? T(0) : sums[e] / total);
lse[(b * heads + h) * queries + i] = largest + mt_log(total);
}
)";

// dq of a row of queries, and sum(o do) - the cotangent of lse, which the other kernel reads.
constexpr std::string_view kQueryGrad = R"(
const E* q = (const E*)arg[0];
const E* k = (const E*)arg[1];
const E* v = (const E*)arg[2];
const E* o = (const E*)arg[3];
const T* lse = (const T*)arg[4];
const E* g = (const E*)arg[5];
E* dq = (E*)arg[6];
T* delta = (T*)arg[7];
for (long long row = (long long)block * kThreads + threadIdx.x; row < batch * queries * heads; row += step_of_rows) {
const long long h = row % heads, i = row / heads % queries, b = row / (heads * queries);
const long long at_lse = (b * heads + h) * queries + i;
T own = has_lse_cotangent ? -lse_cotangent[at_lse] : T(0);
for (int e = 0; e < value_size; ++e) own += mt_load(o + row * value_size + e) * mt_load(g + row * value_size + e);
delta[at_lse] = own;
T sums[head_size];
for (int d = 0; d < head_size; ++d) sums[d] = 0;
for (long long j = 0; j < keys && lse[at_lse] != minus_infinity; ++j) {
if (!allowed(b, h, i, j)) continue;
const long long at = (b * keys + j) * groups + h / readers;
T score = 0, dp = 0;
for (int d = 0; d < head_size; ++d) score += mt_load(q + row * head_size + d) * mt_load(k + at * head_size + d);
for (int e = 0; e < value_size; ++e) dp += mt_load(g + row * value_size + e) * mt_load(v + at * value_size + e);
const T ds = mt_exp(score * scale - lse[at_lse]) * (dp * kept(b, h, i, j) - own) * scale;
for (int d = 0; d < head_size; ++d) sums[d] += ds * mt_load(k + at * head_size + d);
}
for (int d = 0; d < head_size; ++d) mt_store(dq + row * head_size + d, sums[d]);
}
)";

// dk and dv of a row of keys, over the query heads that read it.
constexpr std::string_view kKeyGrad = R"(
const E* q = (const E*)arg[0];
const E* k = (const E*)arg[1];
const E* v = (const E*)arg[2];
const T* lse = (const T*)arg[3];
const E* g = (const E*)arg[4];
const T* delta = (const T*)arg[5];
E* dk = (E*)arg[6];
E* dv = (E*)arg[7];
for (long long at = (long long)block * kThreads + threadIdx.x; at < batch * keys * groups; at += step_of_rows) {
const long long group = at % groups, j = at / groups % keys, b = at / (groups * keys);
T key_sums[head_size], value_sums[value_size];
for (int d = 0; d < head_size; ++d) key_sums[d] = 0;
for (int e = 0; e < value_size; ++e) value_sums[e] = 0;
for (long long h = group * readers; h < (group + 1) * readers; ++h)
for (long long i = 0; i < queries; ++i) {
const long long at_lse = (b * heads + h) * queries + i;
if (lse[at_lse] == minus_infinity || !allowed(b, h, i, j)) continue;
const long long row = (b * queries + i) * heads + h;
T score = 0, dp = 0;
for (int d = 0; d < head_size; ++d) score += mt_load(q + row * head_size + d) * mt_load(k + at * head_size + d);
for (int e = 0; e < value_size; ++e) dp += mt_load(g + row * value_size + e) * mt_load(v + at * value_size + e);
const T p = mt_exp(score * scale - lse[at_lse]), weight = kept(b, h, i, j);
const T ds = p * (dp * weight - delta[at_lse]) * scale;
for (int d = 0; d < head_size; ++d) key_sums[d] += ds * mt_load(q + row * head_size + d);
for (int e = 0; e < value_size; ++e) value_sums[e] += p * weight * mt_load(g + row * value_size + e);
}
for (int d = 0; d < head_size; ++d) mt_store(dk + at * head_size + d, key_sums[d]);
for (int e = 0; e < value_size; ++e) mt_store(dv + at * value_size + e, value_sums[e]);
}
)";

// Launches of one attention: sizes are constants of the text; arrays, and where the shard begins,
// are arguments.
class AttentionText {
 public:
  AttentionText(const AttentionShape& shape, const AttentionMasks& masks,
                const std::byte* lse_cotangent)
      : shape_(shape), masks_(masks), lse_cotangent_(lse_cotangent) {}

  // `rows`: threads at work. `arrays`: what `text` calls arg[0], arg[1], ...
  Launch launch(std::string_view kind, std::string_view text, int64_t rows, int64_t work,
                const std::vector<const std::byte*>& arrays) const {
    Launch out;
    out.blocks = blocks_for(rows, 1);
    out.work = work;
    for (const std::byte* array : arrays)
      out.args.push_back(address(array));
    std::string head = constants(static_cast<int64_t>(out.blocks) * kThreads);
    add_arguments(head, out.args);
    out.body = make_body(kind, head + std::string(kAllowed) + std::string(text), 0, false);
    return out;
  }

 private:
  std::string constants(int64_t step) const {
    const AttentionShape& n = shape_;
    const DType compute = n.dtype == DType::kFloat64 ? n.dtype : DType::kFloat32;
    return fmt::format(
        "typedef {} E;\ntypedef {} T;\n"
        "constexpr long long batch = {}, queries = {}, keys = {}, heads = {}, groups = {}, readers "
        "= {};\n"
        "constexpr int head_size = {}, value_size = {};\n"
        "constexpr bool causal = {}, has_dropout = {};\n"
        "constexpr long long window = {}, mask_batch = {}, mask_head = {};\n"
        "constexpr long long global_heads = {}, global_queries = {}, step_of_rows = {};\n"
        "const T scale = {}, factor = {}, minus_infinity = {};\nconst unsigned threshold = {}u;\n",
        type_name(n.dtype), compute_type(n.dtype), n.batch, n.queries, n.keys, n.heads, n.groups,
        n.readers(), n.head_size, n.value_size, n.causal, n.rate > 0, n.window,
        n.mask_has_batch ? (n.mask_has_heads ? n.heads : 1) * n.queries : 0,
        n.mask_has_heads ? n.queries : 0, n.global_heads, n.global_queries, step,
        literal(n.scale, compute), literal(1 / (1 - n.rate), compute),
        literal(-std::numeric_limits<double>::infinity(), compute), philox_threshold(n.rate));
  }

  // Names for the arguments behind the arrays of the text.
  void add_arguments(std::string& text, std::vector<uint64_t>& args) const {
    const auto number = [&](std::string_view name, int64_t value) {
      text += fmt::format("const long long {} = (long long)arg[{}];\n", name, args.size());
      args.push_back(static_cast<uint64_t>(value));
    };
    number("batch_start", shape_.batch_start);
    number("head_start", shape_.head_start);
    number("query_start", shape_.query_start);
    const auto array = [&](std::string_view type, std::string_view name, const std::byte* data) {
      if (data == nullptr) {
        text += fmt::format("const {0}* {1} = (const {0}*)0;\n", type, name);
        return;
      }
      text += fmt::format("const {0}* {1} = (const {0}*)arg[{2}];\n", type, name, args.size());
      args.push_back(address(data));
    };
    const auto has = [&](std::string_view name, const std::byte* data) {
      text += fmt::format("constexpr bool has_{} = {};\n", name, data != nullptr);
    };
    has("query_mask", masks_.query_mask);
    has("key_mask", masks_.key_mask);
    has("segments", masks_.query_segments);
    has("positions", masks_.query_positions);
    has("mask", masks_.mask);
    has("lse_cotangent", lse_cotangent_);
    array("unsigned char", "query_mask", masks_.query_mask);
    array("unsigned char", "key_mask", masks_.key_mask);
    array("int", "query_segments", masks_.query_segments);
    array("int", "key_segments", masks_.key_segments);
    array("int", "query_positions", masks_.query_positions);
    array("int", "key_positions", masks_.key_positions);
    array("unsigned char", "mask", masks_.mask);
    array("T", "lse_cotangent", lse_cotangent_);
    if (shape_.rate == 0) {
      text += "const unsigned step = 0, k0 = 0, k1 = 0, stream = 0;\n";
      return;
    }
    array("long long", "step_at", masks_.step);
    text += "const unsigned step = (unsigned)*step_at;\n";
    constexpr uint64_t kHalf = 0xffffffffu;  // arguments of 2^40 and more would be addresses
    for (const auto& [name, value] :
         {std::pair("k0", shape_.seed & kHalf), std::pair("k1", shape_.seed >> 32),
          std::pair("stream", uint64_t{shape_.stream})}) {
      text += fmt::format("const unsigned {} = (unsigned)arg[{}];\n", name, args.size());
      args.push_back(value);
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

}  // namespace

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
  const AttentionText text(n, spec.masks, nullptr);
  add(text.launch("attention", kAttend, rows, rows * n.keys * (n.head_size + n.value_size),
                  {spec.q, spec.k, spec.v, spec.o, spec.lse}),
      uses);
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
  const AttentionText text(n, spec.masks, spec.lse_cotangent);
  const int64_t pairs = rows * n.keys;
  std::vector<Use> uses = reads;
  uses.push_back({spec.o, bytes.o, false});
  uses.push_back({spec.dq, bytes.q, true});
  uses.push_back({delta, bytes.lse, true});
  if (spec.lse_cotangent != nullptr)
    uses.push_back({spec.lse_cotangent, bytes.lse, false});
  add(text.launch("attention_query_grad", kQueryGrad, rows,
                  pairs * (2 * n.head_size + n.value_size),
                  {spec.q, spec.k, spec.v, spec.o, spec.lse, spec.o_cotangent, spec.dq, delta}),
      uses);
  uses = reads;
  uses.push_back({delta, bytes.lse, false});
  uses.push_back({spec.dk, bytes.k, true});
  uses.push_back({spec.dv, bytes.v, true});
  if (spec.lse_cotangent != nullptr)  // an argument of this text, too
    uses.push_back({spec.lse_cotangent, bytes.lse, false});
  add(text.launch("attention_key_grad", kKeyGrad, key_rows,
                  pairs * 2 * (n.head_size + n.value_size),
                  {spec.q, spec.k, spec.v, spec.lse, spec.o_cotangent, delta, spec.dk, spec.dv}),
      uses);
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
  std::string text = fmt::format(
      "typedef {} E;\ntypedef {} T;\n"
      "const E* x = (const E*)arg[0];\nconst E* cosine = (const E*)arg[1];\n"
      "const E* sine = (const E*)arg[2];\nE* out = (E*)arg[3];\n"
      "for (unsigned long long pair = (unsigned long long)block * kThreads + threadIdx.x; "
      "pair < {}ull; pair += {}ull) {{\n"
      "const unsigned long long head = pair / {}ull, step = head / {}ull;\n"
      "const unsigned long long i = pair % {}ull, angle = {} * {}ull + i;\n"
      "const unsigned long long at = head * {}ull + i;\n",
      type_name(n.dtype), compute_type(n.dtype), pairs, launch.blocks * kThreads, half, n.heads,
      half, n.has_batch ? "step" : fmt::format("(step % {}ull)", n.steps), half, n.size);
  text += fmt::format(
      "const T a = mt_load(x + at), b = mt_load(x + at + {0}), c = mt_load(cosine + angle), "
      "s = {1}mt_load(sine + angle);\n"
      "mt_store(out + at, a * c - b * s);\nmt_store(out + at + {0}, b * c + a * s);\n}}\n",
      half, n.inverse ? "-" : "");
  launch.body = make_body("rotary", std::move(text), 0, false);
  const auto item = static_cast<int64_t>(dtype_size(n.dtype));
  const int64_t angles = (n.has_batch ? n.batch : 1) * n.steps * half * item;
  add(std::move(launch), std::vector<Use>{{spec.x, 2 * pairs * item, false},
                                          {spec.cosine, angles, false},
                                          {spec.sine, angles, false},
                                          {spec.out, 2 * pairs * item, true}});
}

}  // namespace meshtrain::gpu
