// Our convolutions beside oneDNN's, shape by shape, on one thread: bench_conv [ROUNDS]. Both sides
// are prepared before, run in turn, and compared by the median; oneDNN may choose the formats of
// its blocks for kernels (`any`), images stay channels last on both sides as a model has them.
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "backend/cpu/conv.h"

using namespace meshtrain;
using namespace meshtrain::cpu;

namespace {

struct Case {
  const char* name;
  int64_t batch, size, channels, kernel, filters, stride;
};

constexpr Case kCases[] = {
    {"c conv 1", 64, 28, 1, 3, 12, 1},        {"c conv 2", 64, 28, 12, 6, 24, 2},
    {"c conv 3", 64, 14, 24, 6, 32, 2},       {"resnet-20 16", 64, 32, 16, 3, 16, 1},
    {"resnet-20 32/2", 64, 32, 16, 3, 32, 2}, {"resnet-20 64", 64, 8, 64, 3, 64, 1},
    {"resnet 128", 16, 28, 128, 3, 128, 1},   {"resnet 256 1x1", 16, 14, 256, 1, 256, 1},
};

class Memory : public ScratchAllocator {
 public:
  std::byte* take(int64_t bytes) override {
    blocks_.push_back(static_cast<std::byte*>(
        std::aligned_alloc(64, static_cast<size_t>(bytes + 127) / 64 * 64)));
    std::fill_n(blocks_.back(), bytes, std::byte{0x3c});
    return blocks_.back();
  }

 private:
  std::deque<std::byte*> blocks_;
};

// Processor time of this thread: a busy neighbour shows less in it than in the time of day.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds(const std::function<void()>& work) {
  const double start = seconds();
  work();
  return seconds() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void run_kernels(const KernelList& kernels, std::byte* scratch) {
  for (const KernelPtr& kernel : kernels) {
    kernel->run(0, kernel->units(), scratch);
  }
}

using Tag = dnnl::memory::format_tag;

struct Side {
  std::function<void()> forward, dgrad, wgrad;
};

// oneDNN with images NHWC. Reorders of the kernel are left out: they are small beside the work.
Side onednn(const Case& c, int64_t out, int64_t before, int64_t after, Memory& memory) {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  const auto f32 = dnnl::memory::data_type::f32;
  const dnnl::memory::desc x({c.batch, c.channels, c.size, c.size}, f32, Tag::nhwc);
  const dnnl::memory::desc y({c.batch, c.filters, out, out}, f32, Tag::nhwc);
  const dnnl::memory::desc any({c.filters, c.channels, c.kernel, c.kernel}, f32, Tag::any);
  const dnnl::memory::dims strides{c.stride, c.stride}, low{before, before}, high{after, after};
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, x, any, y, strides, low, high}, engine);
  const dnnl::convolution_backward_data::primitive_desc dgrad(
      {algorithm, x, any, y, strides, low, high}, engine, forward);
  const dnnl::convolution_backward_weights::primitive_desc wgrad(
      {algorithm, x, any, y, strides, low, high}, engine, forward);
  const auto bind = [&](const dnnl::memory::desc& desc) {
    return dnnl::memory(desc, engine, memory.take(static_cast<int64_t>(desc.get_size()) + 64));
  };
  const auto mx = bind(x), my = bind(y);
  const auto wf = bind(forward.weights_desc()), wd = bind(dgrad.weights_desc()),
             ww = bind(wgrad.diff_weights_desc());
  const dnnl::convolution_forward run_forward(forward);
  const dnnl::convolution_backward_data run_dgrad(dgrad);
  const dnnl::convolution_backward_weights run_wgrad(wgrad);
  return {[=] {
            run_forward.execute(stream,
                                {{DNNL_ARG_SRC, mx}, {DNNL_ARG_WEIGHTS, wf}, {DNNL_ARG_DST, my}});
          },
          [=] {
            run_dgrad.execute(
                stream, {{DNNL_ARG_DIFF_SRC, mx}, {DNNL_ARG_WEIGHTS, wd}, {DNNL_ARG_DIFF_DST, my}});
          },
          [=] {
            run_wgrad.execute(
                stream, {{DNNL_ARG_SRC, mx}, {DNNL_ARG_DIFF_WEIGHTS, ww}, {DNNL_ARG_DIFF_DST, my}});
          }};
}

struct OurKernels {
  KernelList forward, dgrad, wgrad;
  std::byte* scratch = nullptr;
};

OurKernels ours(const Case& c, int64_t out, int64_t before, Memory& memory) {
  ConvShape shape;
  shape.input = {1, c.size, c.size};
  shape.output = {1, out, out};
  shape.cells = {1, c.kernel, c.kernel};
  shape.strides = {1, c.stride, c.stride};
  shape.pads = {0, before, before};
  shape.channels = c.channels;
  shape.filters = c.filters;
  std::byte* x = memory.take(c.batch * shape.input_bytes());
  std::byte* y = memory.take(c.batch * shape.output_bytes());
  std::byte* kernel = memory.take(shape.kernel_elements() * 4);
  std::vector<ConvJob> forward, dgrad;
  WgradJob wgrad{{}, kernel};
  for (int64_t i = 0; i < c.batch; ++i) {
    std::byte* xi = x + i * shape.input_bytes();
    std::byte* yi = y + i * shape.output_bytes();
    forward.push_back({xi, kernel, yi});
    dgrad.push_back({yi, kernel, xi});
    wgrad.images.push_back({xi, yi});
  }
  OurKernels kernels{make_conv(shape, forward, memory), make_conv_dgrad(shape, dgrad, memory),
                     make_conv_wgrad(shape, {wgrad}, memory)};
  size_t bytes = 64;
  for (const KernelList* list : {&kernels.forward, &kernels.dgrad, &kernels.wgrad}) {
    for (const KernelPtr& k : *list) {
      bytes = std::max(bytes, k->scratch_bytes());
    }
  }
  kernels.scratch = memory.take(static_cast<int64_t>(bytes));
  return kernels;
}

void compare(const char* name, const char* what, double flops, int rounds,
             const std::function<void()>& own, const std::function<void()>& other) {
  std::vector<double> own_times, other_times, ratios;
  own();
  other();
  for (int i = 0; i < rounds; ++i) {
    own_times.push_back(seconds(own));
    other_times.push_back(seconds(other));
    ratios.push_back(other_times.back() / own_times.back());
  }
  std::printf(
      "%-15s %-8s ours %8.0f us %6.1f GFLOP/s   oneDNN %8.0f us %6.1f GFLOP/s   ratio %5.2f\n",
      name, what, 1e6 * median(own_times), 1e-9 * flops / median(own_times),
      1e6 * median(other_times), 1e-9 * flops / median(other_times), median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 30;
  omp_set_num_threads(1);
  for (const Case& c : kCases) {
    const int64_t out = (c.size + c.stride - 1) / c.stride;
    const int64_t pad = std::max<int64_t>((out - 1) * c.stride + c.kernel - c.size, 0);
    Memory memory;
    const Side other = onednn(c, out, pad / 2, pad - pad / 2, memory);
    const OurKernels own = ours(c, out, pad / 2, memory);
    const double flops = 2.0 * c.batch * out * out * c.filters * c.kernel * c.kernel * c.channels;
    compare(
        c.name, "forward", flops, rounds, [&] { run_kernels(own.forward, own.scratch); },
        other.forward);
    compare(
        c.name, "dgrad", flops, rounds, [&] { run_kernels(own.dgrad, own.scratch); }, other.dgrad);
    compare(
        c.name, "wgrad", flops, rounds, [&] { run_kernels(own.wgrad, own.scratch); }, other.wgrad);
  }
}
