// Convolutions by the fake cuDNN: which engine is chosen, measured, kept, and what is done where
// memory is short.
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "convolution.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

// Engines of tests/support/fake_cuda/cudnn.cc.
constexpr const char* kTensorCores = "engine 3";
constexpr const char* kFallback = "engine 4";

constexpr std::pair<float, float> kRight = Convolution::kRight;

std::pair<float, float> compute(const gpu::DeviceOptions& options) {
  const auto device = open_fake_gpu(options);
  const Convolution convolution(*device);
  device->make_plan({convolution.command()}, {}, 0, 1)->run();
  return convolution.results();
}

// What the folder keeps of convolutions.
std::string kept(const TempFolder& folder, std::string* file = nullptr) {
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().rfind("conv-", 0) != 0)
      continue;
    if (file != nullptr)
      *file = entry.path().filename();
    return read_file(entry.path(), 1000);
  }
  return "";
}

int64_t measurements() {
  int64_t found = 0;
  for (int64_t call = 0; call < fake_cuda::num_calls(); ++call)
    found += fake_cuda::call_name(call) == "cuEventElapsedTime" ? 1 : 0;
  return found;
}

TEST_CASE("the fastest engine of a convolution is measured once and then read from the cache") {
  set_order(0);
  for (const bool use_tf32 : {true, false}) {
    CAPTURE(use_tf32);
    const TempFolder folder;
    gpu::DeviceOptions options;
    options.use_tf32 = use_tf32;
    options.cache_dir = folder.path();
    int64_t before = measurements();
    CHECK(compute(options) == kRight);
    // Those that are deterministic and in the precision asked for.
    CHECK(measurements() - before == (use_tf32 ? 3 : 2));
    std::string file;
    const std::string entry = kept(folder, &file);
    CHECK(entry.find(use_tf32 ? kTensorCores : kFallback) != std::string::npos);
    before = measurements();
    CHECK(compute(options) == kRight);
    CHECK(measurements() == before);
    CHECK(kept(folder) == entry);
    for (const std::string& damaged : {std::string("7 engine 3"), std::string(), entry + "x"}) {
      folder.write(file, damaged);
      before = measurements();
      CHECK(compute(options) == kRight);
      CHECK(measurements() > before);
      CHECK(kept(folder) == entry);
    }
  }
  check_clean();
}

TEST_CASE("nothing is measured where nothing can be kept or processes must round alike") {
  set_order(0);
  const int64_t before = measurements();
  CHECK(compute({}) == kRight);
  const TempFolder folder;
  gpu::DeviceOptions options;
  options.cache_dir = folder.path();
  options.measure = false;
  CHECK(compute(options) == kRight);
  CHECK(measurements() == before);
  CHECK(kept(folder) == "");
  check_clean();
}

// x, kernel and y; the turned filter; a trial; the workspace.
TEST_CASE("a convolution whose workspace finds no memory does with less") {
  set_order(0);
  constexpr int64_t kWorkspace = 5;
  for (const bool measure : {true, false}) {
    CAPTURE(measure);
    gpu::DeviceOptions options;
    options.measure = measure;
    options.use_tf32 = false;
    CHECK(compute(options) == kRight);  // opens the libraries
    fake_cuda::fail_allocation(kWorkspace);
    std::string text;
    try {
      const auto results = compute(options);
      CHECK(results == kRight);
    } catch (const RuntimeFailure& failure) {
      text = failure.what();
    }
    fake_cuda::clear_faults();
    // Another engine could round otherwise than that of the other processes.
    CHECK(text == (measure ? ""
                           : "gpu:0 (Fake GPU): cuMemAlloc (workspace) failed: out of memory "
                             "(CUDA_ERROR_OUT_OF_MEMORY)"));
  }
  check_clean();
}

}  // namespace
}  // namespace meshtrain::test
