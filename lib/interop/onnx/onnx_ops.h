// Each op of a predict graph as nodes of ONNX.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "interop/onnx/onnx_graph.h"
#include "ir/graph.h"
#include "nn/model.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

class OnnxOps {
 public:
  // `graphs`: the same one for two `batches`.
  OnnxOps(const Model& model, std::array<Graph, 2> graphs, std::array<int64_t, 2> batches,
          const std::vector<NamedTensor>& weights, onnx::GraphProto& out);

  // What ONNX does not have of the node; "" where it was added.
  std::string add(const Node& node, NodeId id);
  void add_outputs();

 private:
  // The sizes of a value, those in samples negative: -2 is twice the batch.
  std::vector<int64_t> sizes(ValueId value) const;
  // The same as an int64 tensor; `sizes` without the batch are a constant.
  OnnxTensor shape_tensor(const std::vector<int64_t>& sizes);
  // For Reshape: the one size in samples is -1.
  std::vector<int64_t> reshape_sizes(ValueId value) const;
  const OnnxTensor& in(const Node& node, size_t i) const { return names_[node.inputs[i]]; }
  DType dtype(ValueId value) const { return graphs_[0].dtype(value); }

  OnnxTensor one_result(const Node& node, NodeId id, std::string& problem);
  OnnxTensor gelu(const OnnxTensor& x, bool is_tanh, DType type);
  OnnxTensor elementwise(const Node& node, std::string& problem);
  OnnxTensor number(const Node& node, NodeId id, std::string& problem);
  OnnxTensor source(const Node& node, NodeId id, std::string& problem);
  OnnxTensor gathered(const Node& node);
  OnnxTensor moved(const Node& node, NodeId id, std::string& problem);
  OnnxTensor reduced(const Node& node, std::string& problem);
  OnnxTensor einsum(const Node& node);
  OnnxTensor window(const Node& node, std::string& problem);
  OnnxTensor attention(const Node& node, std::string& problem);
  OnnxTensor allowed_pairs(const Node& node, int64_t queries, int64_t keys);
  OnnxTensor rotary(const Node& node);
  void scan(const Node& node);

  const Model& model_;
  std::array<Graph, 2> graphs_;
  std::array<int64_t, 2> batches_;
  const std::vector<NamedTensor>& weights_;
  onnx::GraphProto& out_;
  OnnxGraph g_;
  std::vector<OnnxTensor> names_;  // of the values
  OnnxTensor batch_;               // the number of samples, int64 (1)
};

}  // namespace meshtrain
