// Convolutions by cuDNN. Its kernels lie (filters, cells..., channels / groups), as it wants them
// beside channels-last images; filters.h turns ours.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/cache.h"
#include "backend/cuda/core.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/tuning.h"

namespace meshtrain::cuda {

// A convolution in cuDNN's order of dimensions: (images, channels, spatial...), with strides that
// say that channels are adjacent. Three spatial dimensions where all are needed, else two.
struct ConvLayout {
  std::vector<int64_t> x, x_strides, kernel, kernel_strides, y, y_strides;
  std::vector<int64_t> steps, dilations, pads_before, pads_after;  // spatial
};
ConvLayout conv_layout(const ConvShape& shape, int64_t images);
// What the convolution writes, rounded up to where a workspace may begin.
size_t result_bytes(const gpu::Conv& conv);

// Convolutions of one shape, with the engine chosen.
struct ConvPlan {
  // The operation, its configuration, the engine, and the plan last.
  std::vector<CudnnObject> parts;
  size_t workspace_bytes = 0;
};

// An engine that may compute a convolution: `place` is its number in what cuDNN recommends.
struct ConvCandidate {
  size_t place = 0;
  CudnnObject config, engine, plan;
  size_t workspace_bytes = 0;
};

class Convs {
 public:
  Convs(Core& core, const Cache& cache) : core_(core), cache_(&cache) {}
  // For a GPU that is not here, by cuDNN's description of it as JSON: plans are made, not run.
  Convs(Core& core, std::string_view description);
  ~Convs();
  Convs(const Convs&) = delete;
  Convs& operator=(const Convs&) = delete;

  // Made once for each shape. The first time it runs into memory of its own, so that kernels are
  // loaded before a capture, and may measure engines: as for products (matmul_tuning.cc), only
  // where the choice can be kept. Throws RuntimeFailure where no deterministic engine computes it.
  const ConvPlan& plan(const gpu::Conv& conv);
  // Later plans take engines with half of the workspace of the largest so far; false where nothing
  // is left to save. Plans that were given out stay valid.
  bool save_workspace();
  // The addresses are the command's own, with the kernel in cuDNN's order.
  void enqueue(const ConvPlan& plan, const std::byte* x, const std::byte* kernel,
               const std::byte* y, std::byte* workspace, CUstream stream) const;

 private:
  // Adds the objects of the operation, itself last.
  void add_operation(const gpu::Conv& conv, std::vector<CudnnObject>& parts) const;
  std::unique_ptr<ConvPlan> choose(const gpu::Conv& conv, const std::string& key);
  std::vector<CudnnObject> engine_configs(const CudnnObject& graph) const;
  // What cuDNN can run and we allow; nothing else. `compiles`: by engines that it compiles now.
  std::optional<ConvCandidate> candidate(const gpu::Conv& conv, CudnnObject& config, size_t place,
                                         bool compiles) const;
  std::vector<ConvCandidate> candidates(const gpu::Conv& conv, std::vector<CudnnObject>& configs,
                                        size_t most) const;
  std::optional<ConvCandidate> kept(const gpu::Conv& conv, std::vector<CudnnObject>& configs,
                                    const std::string& key) const;
  // The number of the fastest, which is kept; 0 where there is no time or memory to find out.
  size_t measure(const gpu::Conv& conv, const std::vector<ConvCandidate>& choices,
                 const std::string& key);
  bool is_measured() const;
  // The largest workspace of an engine. Most of those for float32 copy their operands into another
  // layout; what is left without them computes without tensor cores. Several processes, which
  // cannot do with less where memory is short, have 512 MiB.
  size_t most_workspace(const gpu::Conv& conv) const;
  // With the library, the device and the largest workspace.
  std::string cache_key(const gpu::Conv& conv, const std::string& key) const;
  // The result at `memory`, the workspace behind it.
  void run_trial(const CudnnObject& plan, const gpu::Conv& conv, std::byte* memory) const;
  void enqueue(const CudnnObject& plan, const std::byte* x, const std::byte* kernel,
               const std::byte* y, std::byte* workspace, CUstream stream) const;

  Core& core_;
  const Cache* cache_ = nullptr;
  std::optional<CudnnObject> described_;
  cudnnHandle_t handle_ = nullptr;
  std::map<std::string, std::unique_ptr<ConvPlan>> plans_;
  std::vector<std::unique_ptr<ConvPlan>> replaced_;
  std::optional<size_t> most_workspace_;  // where memory was short
  TuningSeconds tuning_;
};

}  // namespace meshtrain::cuda
