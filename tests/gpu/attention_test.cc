// Attention by cuDNN beside our own kernels, which other tests compare with the processor's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/gpu/epilogue.h"
#include "backend/gpu/lowering.h"
#include "cuda_device.h"
#include "support/splitmix.h"
#include "tensor/half.h"

namespace meshtrain::test {
namespace {

struct Size {
  int64_t batch, queries, keys, heads, groups, head_size;
  bool causal;
};

AttentionShape shape_of(const Size& size, DType dtype) {
  AttentionShape shape;
  shape.dtype = dtype;
  shape.batch = size.batch;
  shape.queries = shape.global_queries = size.queries;
  shape.keys = size.keys;
  shape.heads = shape.global_heads = size.heads;
  shape.groups = size.groups;
  shape.head_size = shape.value_size = size.head_size;
  shape.scale = 1 / std::sqrt(static_cast<double>(size.head_size));
  shape.causal = size.causal;
  return shape;
}

// An attention and its gradient on arrays of one device.
class AttentionRun {
 public:
  AttentionRun(gpu::Device& device, const AttentionShape& n) : device_(device), shape_(n) {
    const int64_t of_queries = n.batch * n.queries * n.heads * n.head_size;
    const int64_t of_keys = n.batch * n.keys * n.groups * n.head_size;
    q_ = uploaded(of_queries, 1);
    k_ = uploaded(of_keys, 2);
    v_ = uploaded(of_keys, 3);
    o_cotangent_ = uploaded(of_queries, 4);
    for (const int64_t count : {of_queries, of_queries, of_keys, of_keys})
      results_.push_back({device.allocate(2 * count), count});
    const int64_t rows = n.batch * n.heads * n.queries;
    lse_ = {device.allocate(4 * rows), rows};
  }

  std::vector<gpu::Command> commands() {
    gpu::GpuLowering lowering([&](int64_t bytes) { return device_.allocate(bytes); });
    lowering.lower(StepSpec{"attention"});
    lowering.lower(AttentionSpec{shape_, q_, k_, v_, {}, results_[0].memory, lse_.memory});
    lowering.lower(StepSpec{"attention_grad"});
    lowering.lower(AttentionGradSpec{shape_,
                                     q_,
                                     k_,
                                     v_,
                                     results_[0].memory,
                                     lse_.memory,
                                     o_cotangent_,
                                     nullptr,
                                     {},
                                     results_[1].memory,
                                     results_[2].memory,
                                     results_[3].memory});
    return lowering.take();
  }

  // The bits of o, dq, dk and dv.
  std::vector<std::vector<uint16_t>> results() {
    std::vector<std::vector<uint16_t>> all;
    for (const Result& result : results_)
      all.push_back(download<uint16_t>(device_, result.memory, static_cast<size_t>(result.count)));
    return all;
  }
  std::vector<float> logarithms() {
    return download<float>(device_, lse_.memory, static_cast<size_t>(lse_.count));
  }

 private:
  struct Result {
    std::byte* memory = nullptr;
    int64_t count = 0;
  };
  std::byte* uploaded(int64_t count, uint64_t seed) {
    std::vector<uint16_t> bits;
    for (int64_t i = 0; i < count; ++i) {
      const float value = 2 * splitmix_signed(seed, static_cast<uint64_t>(i));
      bits.push_back(shape_.dtype == DType::kFloat16 ? float_to_half(value)
                                                     : float_to_bfloat16(value));
    }
    return upload(device_, bits);
  }

  gpu::Device& device_;
  AttentionShape shape_;
  std::byte *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *o_cotangent_ = nullptr;
  std::vector<Result> results_;
  Result lse_;
};

// The norm of the difference as a part of that of `b`.
template <class T, class Number>
double relative(const std::vector<T>& a, const std::vector<T>& b, const Number& number) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = number(a[i]), y = number(b[i]);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / norm);
}

// Milliseconds of forward and gradient, without what comes between them.
std::array<double, 2> times_of(gpu::Plan& plan) {
  std::array<double, 2> best = {1e9, 1e9};
  for (int round = 0; round < 5; ++round) {
    std::array<double, 2> times = {};
    for (const gpu::CallTime& call : plan.run_timed())
      times[call.path == "attention" ? 0 : 1] += 1e3 * (call.end - call.begin);
    for (size_t i = 0; i < 2; ++i)
      best[i] = std::min(best[i], times[i]);
  }
  return best;
}

// Whether cuDNN computed it.
bool compare(gpu::Device& device, const Size& size, DType dtype) {
  AttentionRun run(device, shape_of(size, dtype));
  const std::vector<gpu::Command> commands = run.commands();
  REQUIRE(commands.size() == 2);
  const auto own = device.make_plan(
      gpu::with_parts(commands, [](const gpu::Command&) { return false; }), {}, 0, 1);
  const auto plan = device.make_plan(commands, {}, 0, 1);
  own->run();
  const auto want = run.results();
  const auto want_logarithms = run.logarithms();
  plan->run();
  const auto got = run.results();
  const auto number = [&](uint16_t bits) {
    return static_cast<double>(dtype == DType::kFloat16 ? half_to_float(bits)
                                                        : bfloat16_to_float(bits));
  };
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(relative(got[i], want[i], number) < (dtype == DType::kBFloat16 ? 1e-2 : 2e-3));
  }
  const auto logarithm = [](float value) { return static_cast<double>(value); };
  CHECK(relative(run.logarithms(), want_logarithms, logarithm) < 1e-4);
  for (int round = 0; round < 5; ++round) {
    plan->run();
    CHECK((run.results() == got));
  }
  const std::array<double, 2> with_library = times_of(*plan), ours = times_of(*own);
  const auto calls = plan->run_timed();
  const bool is_library = std::any_of(calls.begin(), calls.end(), [](const gpu::CallTime& call) {
    return call.kind == "attention";
  });
  MESSAGE(fmt::format(
      "{} {} x {} x {}, {}/{} heads of {}{}: {} {:.4f} and {:.4f} ms, own kernels "
      "{:.4f} and {:.4f} ms",
      dtype_name(dtype), size.batch, size.queries, size.keys, size.heads, size.groups,
      size.head_size, size.causal ? ", causal" : "",
      is_library ? "cuDNN" : "no cuDNN:", with_library[0], with_library[1], ours[0], ours[1]));
  return is_library;
}

TEST_CASE("attention by cuDNN is that of our kernels, with the same bits in each run") {
  const auto device = open_cuda_device();
  if (device == nullptr)
    return;
  if (!compare(*device, {1, 256, 256, 2, 1, 8, true}, DType::kBFloat16))
    return;  // nothing more to compare
  constexpr DType kBf16 = DType::kBFloat16, kF16 = DType::kFloat16;
  CHECK(compare(*device, {4, 1024, 1024, 12, 12, 64, true}, kBf16));
  CHECK(compare(*device, {1, 2048, 2048, 16, 4, 128, true}, kF16));
  CHECK(compare(*device, {3, 300, 260, 4, 2, 40, false}, kF16));
  CHECK(compare(*device, {3, 257, 1000, 6, 6, 32, true}, kBf16));
  CHECK(compare(*device, {32, 256, 256, 6, 6, 64, true}, kBf16));
  CHECK(compare(*device, {4, 2048, 2048, 16, 8, 64, true}, kBf16));  // by two samples
  CHECK(compare(*device, {1, 8192, 8192, 4, 4, 32, false}, kF16));   // by two heads
}

}  // namespace
}  // namespace meshtrain::test
