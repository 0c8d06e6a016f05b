// Convolutions by cuDNN. Its kernels lie (filters, cells..., channels / groups), as it wants them
// beside channels-last images; filters.h turns ours.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/core.h"
#include "backend/cuda/cudnn.h"

namespace meshtrain::cuda {

// A convolution in cuDNN's order of dimensions: (images, channels, spatial...), with strides that
// say that channels are adjacent. Three spatial dimensions where all are needed, else two.
struct ConvLayout {
  std::vector<int64_t> x, x_strides, kernel, kernel_strides, y, y_strides;
  std::vector<int64_t> steps, dilations, pads_before, pads_after;  // spatial
};
ConvLayout conv_layout(const ConvShape& shape, int64_t images);

// Convolutions of one shape, with the engine chosen.
struct ConvPlan {
  std::vector<CudnnObject> parts;  // what the plan is made of, and it last
  size_t workspace_bytes = 0;
};

class Convs {
 public:
  explicit Convs(Core& core) : core_(core) {}
  // For a GPU that is not here, by cuDNN's description of it as JSON: plans are made, not run.
  Convs(Core& core, std::string_view description);
  ~Convs();
  Convs(const Convs&) = delete;
  Convs& operator=(const Convs&) = delete;

  // Made once for each shape. The first time it runs into memory of its own, so that kernels are
  // loaded before a capture. Throws RuntimeFailure where no deterministic engine computes it.
  const ConvPlan& plan(const gpu::Conv& conv);
  // The addresses are the command's own, with the kernel in cuDNN's order.
  void enqueue(const ConvPlan& plan, const std::byte* x, const std::byte* kernel,
               const std::byte* y, std::byte* workspace, CUstream stream) const;

 private:
  // Adds the objects of the operation, itself last.
  void add_operation(const gpu::Conv& conv, std::vector<CudnnObject>& parts) const;
  std::unique_ptr<ConvPlan> choose(const gpu::Conv& conv, const std::string& key) const;
  std::vector<CudnnObject> engine_configs(const CudnnObject& graph) const;
  void run_once(const ConvPlan& plan, const gpu::Conv& conv) const;

  Core& core_;
  std::optional<CudnnObject> described_;
  cudnnHandle_t handle_ = nullptr;
  std::map<std::string, std::unique_ptr<ConvPlan>> plans_;
};

}  // namespace meshtrain::cuda
