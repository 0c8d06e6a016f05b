// Products by cuBLASLt and convolutions by cuDNN against loops on the host.
#include <algorithm>
#include <cmath>

#include "backend/gpu/lowering.h"
#include "cuda_device.h"
#include "support/epilogue_tape.h"
#include "support/splitmix.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

std::vector<float> numbers(int64_t count, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = splitmix_signed(seed, i);
  return values;
}

// The largest difference as a part of `scale`.
double difference(const std::vector<float>& got, const std::vector<double>& want, double scale) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]) / scale);
  return worst;
}

std::vector<double> product(const MatmulSpec& s, const std::vector<float>& a,
                            const std::vector<float>& b) {
  std::vector<double> c(static_cast<size_t>(s.m * s.n));
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < s.k; ++p)
        sum += static_cast<double>(a[static_cast<size_t>(i * s.a_row + p * s.a_column)]) *
               static_cast<double>(b[static_cast<size_t>(p * s.b_row + j * s.b_column)]);
      c[static_cast<size_t>(i * s.n + j)] = sum;
    }
  }
  return c;
}

MatmulSpec product_spec(int64_t m, int64_t n, int64_t k, bool turn_a, bool turn_b) {
  MatmulSpec s;
  s.m = m;
  s.n = n;
  s.k = k;
  s.a_row = turn_a ? 1 : k;
  s.a_column = turn_a ? m : 1;
  s.b_row = turn_b ? 1 : n;
  s.b_column = turn_b ? k : 1;
  s.c_row = n;
  s.batches = {{}};
  return s;
}

TEST_CASE("products equal loops in every order of the operands and both precisions") {
  for (const bool use_tf32 : {false, true}) {
    gpu::DeviceOptions options;
    options.use_tf32 = use_tf32;
    const auto device = open_cuda_device(options);
    if (device == nullptr)
      return;
    for (const bool turn_a : {false, true}) {
      for (const bool turn_b : {false, true}) {
        MatmulSpec s = product_spec(130, 70, 257, turn_a, turn_b);
        const std::vector<float> a = numbers(s.m * s.k, 1), b = numbers(s.k * s.n, 2);
        std::byte* c = device->allocate(s.m * s.n * 4);
        s.a = upload(*device, a);
        s.b = upload(*device, b);
        s.c = c;
        gpu::GpuLowering lowering([&](int64_t bytes) { return device->allocate(bytes); });
        lowering.lower(StepSpec{"product"});
        lowering.lower(s);
        const auto plan = device->make_plan(lowering.take(), {}, 0, 1);
        plan->run();
        const auto got = download<float>(*device, c, static_cast<size_t>(s.m * s.n));
        const double scale = std::sqrt(static_cast<double>(s.k));
        CHECK(difference(got, product(s, a, b), scale) < (use_tf32 ? 2e-3 : 1e-5));
        for (int round = 0; round < 5; ++round) {
          plan->run();
          CHECK(download<float>(*device, c, got.size()) == got);
        }
      }
    }
  }
}

TEST_CASE("the algorithm that was measured is used again from the cache") {
  const TempFolder folder;
  gpu::DeviceOptions options;
  options.cache_dir = folder.path();
  std::vector<float> first;
  for (int round = 0; round < 3; ++round) {
    const auto device = open_cuda_device(options);
    if (device == nullptr)
      return;
    MatmulSpec s = product_spec(2048, 2048, 1024, false, true);
    std::byte* c = device->allocate(s.m * s.n * 4);
    s.a = upload(*device, numbers(s.m * s.k, 3));
    s.b = upload(*device, numbers(s.k * s.n, 4));
    s.c = c;
    gpu::GpuLowering lowering([&](int64_t bytes) { return device->allocate(bytes); });
    lowering.lower(StepSpec{"product"});
    lowering.lower(s);
    device->make_plan(lowering.take(), {}, 0, 1)->run();
    const auto got = download<float>(*device, c, static_cast<size_t>(s.m * s.n));
    if (round == 0)
      first = got;
    CHECK(got == first);
    CHECK(folder.num_files() == 1);  // no kernels, one algorithm
  }
}

// What the model's tapes compute behind a product.
double activated(gpu::Activation activation, double x) {
  switch (activation) {
    case gpu::Activation::kNone:
      return x;
    case gpu::Activation::kRelu:
      return std::max(x, 0.0);
    case gpu::Activation::kGelu:
      break;
  }
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

struct WithEpilogue {
  std::vector<float> got;
  std::vector<double> want;
};

// activation(a b + bias) by one command, whichever way the device computes it. `want` has the first
// rows only: loops on the host take a minute for a long product.
WithEpilogue run_epilogue(gpu::Device& device, MatmulSpec s, gpu::Activation activation,
                          bool adds_bias, int64_t checked_rows) {
  const std::vector<float> a = numbers(s.m * s.k, 1), b = numbers(s.k * s.n, 2);
  const std::vector<float> bias = numbers(s.n, 8);
  s.a = upload(device, a);
  s.b = upload(device, b);
  s.c = device.allocate(s.m * s.n * 4);
  std::byte* const to = device.allocate(s.m * s.n * 4);
  const Shape shape{s.m, s.n};
  std::vector<View> operands{contiguous_view(s.c, DType::kFloat32, shape)};
  if (adds_bias)
    operands.push_back({upload(device, bias), DType::kFloat32, shape, {0, 1}});
  const auto tape = epilogue_tape(DType::kFloat32, activation, adds_bias);
  gpu::GpuLowering lowering([&](int64_t bytes) { return device.allocate(bytes); });
  lowering.lower(StepSpec{"product"});
  lowering.lower(s);
  lowering.lower(StepSpec{"activation", {{s.c, s.c + s.m * s.n * 4}}});
  lowering.lower(
      TapeSpec{shape,
               operands,
               tape,
               {{static_cast<int>(tape.size()) - 1, contiguous_view(to, DType::kFloat32, shape)}}});
  const auto commands = lowering.take();
  REQUIRE(commands.size() == 1);
  REQUIRE(std::get<gpu::Matmul>(commands[0].what).epilogue);
  const auto plan = device.make_plan(commands, {}, 0, 1);
  plan->run();
  MatmulSpec few = s;
  few.m = std::min(s.m, checked_rows);
  WithEpilogue out{download<float>(device, to, static_cast<size_t>(s.m * s.n)), product(few, a, b)};
  for (size_t i = 0; i < out.want.size(); ++i) {
    const double added = adds_bias ? bias[i % static_cast<size_t>(s.n)] : 0.0;
    out.want[i] = activated(activation, out.want[i] + added);
  }
  plan->run();
  CHECK(download<float>(device, to, out.got.size()) == out.got);
  return out;
}

TEST_CASE("products with each epilogue equal loops in every order of the operands") {
  using gpu::Activation;
  for (const bool use_tf32 : {false, true}) {
    gpu::DeviceOptions options;
    options.use_tf32 = use_tf32;
    const auto device = open_cuda_device(options);
    if (device == nullptr)
      return;
    for (const int turned : {0, 1, 2, 3}) {
      for (const Activation activation :
           {Activation::kNone, Activation::kRelu, Activation::kGelu}) {
        for (const bool adds_bias : {true, false}) {
          if (!adds_bias && activation == Activation::kNone)
            continue;
          CAPTURE(turned);
          CAPTURE(static_cast<int>(activation));
          CAPTURE(adds_bias);
          const MatmulSpec s = product_spec(130, 72, 257, turned % 2 == 1, turned / 2 == 1);
          const WithEpilogue done = run_epilogue(*device, s, activation, adds_bias, s.m);
          CHECK(difference(done.got, done.want, std::sqrt(257.0)) < (use_tf32 ? 2e-3 : 1e-5));
        }
      }
    }
  }
}

TEST_CASE("whether a long product computes its epilogue is measured once and kept") {
  const TempFolder folder;
  gpu::DeviceOptions options;
  options.cache_dir = folder.path();
  std::vector<float> first;
  size_t files = 0;
  for (int round = 0; round < 3; ++round) {
    const auto device = open_cuda_device(options);
    if (device == nullptr)
      return;
    const MatmulSpec s = product_spec(2048, 1024, 1024, false, false);
    const WithEpilogue done = run_epilogue(*device, s, gpu::Activation::kGelu, true, 8);
    CHECK(difference(done.got, done.want, 32) < 2e-3);
    if (round == 0) {
      first = done.got;
      files = folder.num_files();
      // Two algorithms and which way it is, and the launch where there was time to measure it.
      CHECK((files == 3 || files == 4));
    }
    CHECK(done.got == first);
    CHECK(folder.num_files() == files);
  }
}

TEST_CASE("a convolution and its gradients equal loops") {
  for (const bool use_tf32 : {false, true}) {
    gpu::DeviceOptions options;
    options.use_tf32 = use_tf32;
    const auto device = open_cuda_device(options);
    if (device == nullptr)
      return;
    ConvShape s;
    s.input = {1, 9, 11};
    s.cells = {1, 3, 3};
    s.strides = {1, 2, 1};
    s.pads = {0, 1, 1};
    s.output = {1, 5, 11};
    s.channels = 8;
    s.filters = 12;
    constexpr int64_t kImages = 3;
    const auto count = [](const std::array<int64_t, 3>& sizes) { return sizes[1] * sizes[2]; };
    const auto x = numbers(kImages * count(s.input) * s.channels, 5);
    const auto w = numbers(s.kernel_elements(), 6);
    const auto dy = numbers(kImages * count(s.output) * s.filters, 7);
    std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
    for (int64_t n = 0; n < kImages; ++n) {
      for (int64_t o = 0; o < count(s.output); ++o) {
        for (int64_t cell = 0; cell < 9; ++cell) {
          const int64_t i = o / s.output[2] * s.strides[1] + cell / 3 - s.pads[1];
          const int64_t j = o % s.output[2] * s.strides[2] + cell % 3 - s.pads[2];
          if (i < 0 || i >= s.input[1] || j < 0 || j >= s.input[2])
            continue;
          for (int64_t c = 0; c < s.channels; ++c) {
            for (int64_t f = 0; f < s.filters; ++f) {
              const size_t from =
                  static_cast<size_t>(((n * s.input[1] + i) * s.input[2] + j) * s.channels + c);
              const size_t kernel = static_cast<size_t>((cell * s.channels + c) * s.filters + f);
              const size_t to = static_cast<size_t>((n * count(s.output) + o) * s.filters + f);
              y[to] += static_cast<double>(x[from]) * static_cast<double>(w[kernel]);
              dx[from] += static_cast<double>(dy[to]) * static_cast<double>(w[kernel]);
              dw[kernel] += static_cast<double>(dy[to]) * static_cast<double>(x[from]);
            }
          }
        }
      }
    }
    std::byte* const x_at = upload(*device, x);
    std::byte* const w_at = upload(*device, w);
    std::byte* const dy_at = upload(*device, dy);
    std::byte* const y_at = device->allocate(static_cast<int64_t>(y.size()) * 4);
    std::byte* const dx_at = device->allocate(static_cast<int64_t>(dx.size()) * 4);
    std::byte* const dw_at = device->allocate(static_cast<int64_t>(dw.size()) * 4);
    gpu::GpuLowering lowering([&](int64_t bytes) { return device->allocate(bytes); });
    lowering.lower(StepSpec{"conv"});
    std::vector<ConvJob> forward, backward;
    WgradJob sums{{}, dw_at};
    for (int64_t n = 0; n < kImages; ++n) {
      const int64_t in = n * s.input_bytes(), out = n * s.output_bytes();
      forward.push_back({x_at + in, w_at, y_at + out});
      backward.push_back({dy_at + out, w_at, dx_at + in});
      sums.images.push_back({x_at + in, dy_at + out});
    }
    lowering.lower(ConvSpec{s, forward});
    lowering.lower(ConvDgradSpec{s, backward});
    lowering.lower(ConvWgradSpec{s, {sums}});
    const auto commands = lowering.take();
    const auto is_conv = [](const gpu::Command& command) {
      return std::holds_alternative<gpu::Conv>(command.what);
    };
    CHECK(std::count_if(commands.begin(), commands.end(), is_conv) == 3);
    const auto plan = device->make_plan(commands, {}, 0, 1);
    plan->run();
    const double bound = use_tf32 ? 2e-3 : 1e-5, scale = 9;
    const auto got_y = download<float>(*device, y_at, y.size());
    const auto got_dw = download<float>(*device, dw_at, dw.size());
    CHECK(difference(got_y, y, scale) < bound);
    CHECK(difference(download<float>(*device, dx_at, dx.size()), dx, scale) < bound);
    CHECK(difference(got_dw, dw, scale) < bound);
    plan->run();
    CHECK(download<float>(*device, y_at, y.size()) == got_y);
    CHECK(download<float>(*device, dw_at, dw.size()) == got_dw);
  }
}

}  // namespace
}  // namespace meshtrain::test
