// Attention and its gradient by cuDNN, on GPUs on which it was found to give each run the same
// bits.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/attention_graph.h"

namespace meshtrain::cuda {

// Attentions of one shape: part by part, so that no workspace is too large.
struct AttentionPlan {
  std::unique_ptr<AttentionGraph> graph;
  std::vector<CudnnObject> parts;  // what the plan is made of, and the plan last
  AttentionPart part;
  size_t workspace_bytes = 0;
};

class Attentions {
 public:
  explicit Attentions(Core& core) : core_(core) {}
  ~Attentions();
  Attentions(const Attentions&) = delete;
  Attentions& operator=(const Attentions&) = delete;

  // Made once for each shape; cuDNN compiles its kernel, which takes some tenths of a second. Null
  // where our own kernels compute it: with $MESHTRAIN_CUDNN_ATTENTION=0, on GPUs of other
  // compute capabilities than 9.0, before cuDNN 9.11, and where cuDNN has no engine that gives each
  // run the same bits, or none that it can build.
  const AttentionPlan* find_plan(const gpu::Attention& attention);
  void enqueue(const AttentionPlan& plan, const gpu::Attention& attention, std::byte* workspace,
               CUstream stream) const;

 private:
  std::unique_ptr<AttentionPlan> make_plan(const gpu::Attention& attention);
  // Null where no engine takes the graph.
  std::unique_ptr<AttentionPlan> make_plan(const gpu::Attention& attention, AttentionPart part);

  Core& core_;
  cudnnHandle_t handle_ = nullptr;
  std::map<std::string, std::unique_ptr<AttentionPlan>> plans_;
};

}  // namespace meshtrain::cuda
