// Each call of the driver and of the libraries fails in turn, and each allocation: the run ends
// with a message that names it or as if nothing had been, and leaves nothing behind.
#include <cstring>

#include "backend/gpu/lowering.h"
#include "base/error.h"
#include "convolution.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

using fake_cuda::Fault;

// Products of kShort rows and columns are for cuBLASLt; those of kLong take so long that their
// algorithm is measured. kConvolution: a convolution instead.
constexpr int64_t kShort = 64, kLong = 1024, kConvolution = 0;

struct Way {
  bool use_graph = true;
  int64_t size = kShort;
};

// c = a b, then s = the sum of the beginning of a + c.
std::vector<gpu::Command> commands(int64_t size, std::byte* a, std::byte* c, std::byte* s) {
  MatmulSpec product;
  product.m = product.n = product.k = size;
  product.a_row = product.b_row = product.c_row = size;
  product.a_column = product.b_column = 1;
  product.a = product.b = a;
  product.c = c;
  product.batches = {{}};
  const Shape few = {kShort * kShort};
  const View x = contiguous_view(a, DType::kFloat32, few);
  const View y = contiguous_view(c, DType::kFloat32, few);
  gpu::GpuLowering lowering([](int64_t) -> std::byte* { return nullptr; });
  lowering.lower(StepSpec{"product"});
  lowering.lower(product);
  lowering.lower(StepSpec{"sum"});
  lowering.lower(TapeSpec{few, {x, y}, {{"add", {0, 1}, DType::kFloat32}}, {{0, y}}});
  lowering.lower(ReduceSpec{Reduction::kSum, y, {true}, contiguous_view(s, DType::kFloat32, {})});
  return lowering.take();
}

float compute(const Way& way) {
  const int64_t bytes = way.size * way.size * 4;
  const TempFolder folder;
  gpu::DeviceOptions options;
  options.use_graph = way.use_graph;
  options.cache_dir = folder.path();
  const auto device = open_fake_gpu(options);
  const Memory a(*device, bytes), c(*device, bytes), s(*device, 4);
  const auto pinned = device->allocate_pinned(bytes), result = device->allocate_pinned(4);
  const std::vector<float> ones(static_cast<size_t>(way.size * way.size), 1);
  std::memcpy(pinned->data(), ones.data(), ones.size() * 4);
  const auto event = device->make_event();
  const auto plan = device->make_plan(commands(way.size, a.data, c.data, s.data), {}, 0, 1);
  device->enqueue_upload(a.data, pinned->data(), bytes);
  plan->run();
  device->enqueue_download(result->data(), s.data, 4);
  event->record();
  event->wait();
  float got = 0;
  std::memcpy(&got, result->data(), 4);
  return got;
}

std::string convolve(const Way& way) {
  gpu::DeviceOptions options;
  options.use_graph = way.use_graph;
  const auto device = open_fake_gpu(options);
  const Convolution convolution(*device);
  device->make_plan({convolution.command()}, {}, 0, 1)->run();
  const auto [corner, inside] = convolution.results();
  return std::pair(corner, inside) == Convolution::kRight
             ? ""
             : fmt::format("{} and {}", corner, inside);
}

// What it did: the message, or "" where it computed the right number all the same. Long products
// are not computed.
std::string outcome(const Way& way) {
  constexpr float kRight = kShort * kShort * (kShort + 1), kIdle = kShort * kShort;
  try {
    if (way.size == kConvolution)
      return convolve(way);
    const float got = compute(way), right = way.size == kShort ? kRight : kIdle;
    return got == right ? "" : fmt::format("{} instead of {}", got, right);
  } catch (const RuntimeFailure& failure) {
    CHECK(failure.exit_code() == ExitCode::kMesh);
    return failure.what();
  }
}

bool is_reported(const std::string& message) {
  return message.rfind("gpu:0 (", 0) == 0 && message.find(" failed: ") != std::string::npos;
}

// What may fail without a word: what frees, what is only tried, what destructors wait for. An
// engine of cuDNN that cannot be finalized is no candidate.
bool may_be_silent(const std::string& name, const Way& way) {
  for (const char* word : {"Destroy", "Free", "Synchronize", "Unload", "cuCtxSetCurrent",
                           "cuMemAlloc", "cudnnBackendFinalize"}) {
    if (name.find(word) != std::string::npos)
      return true;
  }
  return way.size == kLong;
}

void check_faults(const Way& way, Fault fault) {
  CHECK(outcome(way) == "");  // opens the libraries
  int64_t first = fake_cuda::num_calls();
  CHECK(outcome(way) == "");
  const int64_t calls = fake_cuda::num_calls() - first;
  check_clean();
  for (int64_t i = 0; i < calls; ++i) {
    const std::string live = fake_cuda::live_objects();
    first = fake_cuda::num_calls() + i;
    fake_cuda::fail_call(first, fault);
    const std::string message = outcome(way);
    const std::string name = fake_cuda::call_name(first);
    fake_cuda::clear_faults();
    CAPTURE(way.use_graph);
    CAPTURE(way.size);
    CAPTURE(i);
    CAPTURE(name);
    CAPTURE(static_cast<int>(fault));
    const bool is_right = message.empty() ? may_be_silent(name, way) : is_reported(message);
    CHECK_MESSAGE(is_right, message);
    check_clean(live);
  }
}

TEST_CASE("each call that fails is named or does no harm and nothing is left") {
  set_order(0);
  for (const Fault fault : {Fault::kOnce, Fault::kSticky}) {
    check_faults({false, kShort}, fault);
    check_faults({true, kShort}, fault);
    check_faults({false, kConvolution}, fault);
    check_faults({true, kConvolution}, fault);
    ::setenv("MESHTRAIN_FAKE_CUDA_IDLE", "1", 1);
    check_faults({true, kLong}, fault);
    ::unsetenv("MESHTRAIN_FAKE_CUDA_IDLE");
  }
}

TEST_CASE("each allocation that finds no memory is reported and nothing is left") {
  set_order(0);
  for (const Way& way : {Way{true, kShort}, Way{true, kConvolution}}) {
    CAPTURE(way.size);
    fake_cuda::clear_faults();
    CHECK(outcome(way) == "");
    const int64_t allocations = fake_cuda::num_allocations();
    CHECK(allocations >= 5);
    int64_t reported = 0;
    for (int64_t i = 0; i < allocations; ++i) {
      const std::string live = fake_cuda::live_objects();
      fake_cuda::fail_allocation(i);
      const std::string message = outcome(way);
      fake_cuda::clear_faults();
      CAPTURE(i);
      reported += message.find("out of memory") != std::string::npos ? 1 : 0;
      CHECK((message.empty() || message.find("out of memory") != std::string::npos));
      check_clean(live);
    }
    // But for the trial, and the workspace of a convolution, which has engines that need none.
    CHECK(reported == allocations - (way.size == kConvolution ? 2 : 1));
  }
}

}  // namespace
}  // namespace meshtrain::test
