// Nodes of an ONNX graph, and the tensors between them.
#pragma once

#include <onnx.pb.h>

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

using OnnxTensor = std::string;  // its name

// The number of a dtype in ONNX' TensorProto.
int onnx_type(DType dtype);

class OnnxGraph {
 public:
  using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
  using Attributes = std::vector<std::pair<std::string, Attribute>>;

  // Names of nodes and tensors begin with `prefix`, which is empty but in the body of a loop.
  OnnxGraph(onnx::GraphProto& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}

  // What the next nodes belong to: "d1/einsum".
  void set_scope(std::string scope) { scope_ = std::move(scope); }

  OnnxTensor add(const char* op, const std::vector<OnnxTensor>& inputs,
                 const Attributes& attributes = {});
  std::vector<OnnxTensor> add_several(const char* op, const std::vector<OnnxTensor>& inputs,
                                      size_t num_outputs, const Attributes& attributes = {},
                                      const onnx::GraphProto* body = nullptr);
  // Constants; equal lists of integers are one.
  OnnxTensor initializer(const HostTensor& tensor, const std::string& name);
  OnnxTensor scalar(double value, DType dtype);
  OnnxTensor integers(const std::vector<int64_t>& values);  // int64, of rank 1

  OnnxTensor cast(const OnnxTensor& x, DType dtype) {
    return add("Cast", {x}, {{"to", int64_t{onnx_type(dtype)}}});
  }
  // `shape` may have one -1, and 0 for a dimension that stays.
  OnnxTensor reshape(const OnnxTensor& x, const std::vector<int64_t>& shape) {
    return add("Reshape", {x, integers(shape)});
  }
  OnnxTensor transpose(const OnnxTensor& x, std::vector<int64_t> permutation) {
    return add("Transpose", {x}, {{"perm", std::move(permutation)}});
  }
  // Elements begin, begin + stride, ... before `end` along one axis.
  OnnxTensor slice(const OnnxTensor& x, int64_t axis, int64_t begin, int64_t end,
                   int64_t stride = 1) {
    return add("Slice",
               {x, integers({begin}), integers({end}), integers({axis}), integers({stride})});
  }

  // Inputs and outputs; a dimension of -1 is called "batch", of other negative sizes nothing is
  // said.
  static void declare(onnx::ValueInfoProto& out, const std::string& name, DType dtype,
                      const std::vector<int64_t>& shape);

 private:
  std::string unique(const std::string& name);

  onnx::GraphProto& out_;
  std::string prefix_, scope_;
  std::map<std::string, int> used_;
  std::map<std::vector<int64_t>, OnnxTensor> integers_;
  std::map<std::pair<double, int>, OnnxTensor> scalars_;
};

}  // namespace meshtrain
