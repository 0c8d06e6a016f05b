#include "interop/onnx/onnx_graph.h"

#include <fmt/format.h>

#include "base/error.h"

namespace meshtrain {

int onnx_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 1;
    case DType::kUInt8:
      return 2;
    case DType::kInt8:
      return 3;
    case DType::kUInt16:
      return 4;
    case DType::kInt16:
      return 5;
    case DType::kInt32:
      return 6;
    case DType::kInt64:
      return 7;
    case DType::kBool:
      return 9;
    case DType::kFloat16:
      return 10;
    case DType::kFloat64:
      return 11;
    case DType::kUInt32:
      return 12;
    case DType::kUInt64:
      return 13;
    case DType::kBFloat16:
      return 16;
  }
  return 0;
}

std::string OnnxGraph::unique(const std::string& name) {
  const int count = used_[name]++;
  return count == 0 ? prefix_ + name : fmt::format("{}{}_{}", prefix_, name, count);
}

std::vector<OnnxTensor> OnnxGraph::add_several(const char* op,
                                               const std::vector<OnnxTensor>& inputs,
                                               size_t num_outputs, const Attributes& attributes,
                                               const onnx::GraphProto* body) {
  onnx::NodeProto& node = *out_.add_node();
  node.set_op_type(op);
  node.set_name(unique(fmt::format("{}/{}", scope_, op)));
  for (const OnnxTensor& input : inputs) {
    node.add_input(input);
  }
  std::vector<OnnxTensor> outputs;
  for (size_t i = 0; i < num_outputs; ++i) {
    outputs.push_back(fmt::format("{}:{}", node.name(), i));
    node.add_output(outputs.back());
  }
  using Proto = onnx::AttributeProto;
  for (const auto& [name, value] : attributes) {
    Proto& out = *node.add_attribute();
    out.set_name(name);
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      out.set_i(*integer);
      out.set_type(Proto::INT);
    } else if (const auto* number = std::get_if<double>(&value)) {
      out.set_f(static_cast<float>(*number));
      out.set_type(Proto::FLOAT);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      out.set_s(*text);
      out.set_type(Proto::STRING);
    } else {
      for (const int64_t entry : std::get<std::vector<int64_t>>(value)) {
        out.add_ints(entry);
      }
      out.set_type(Proto::INTS);
    }
  }
  if (body != nullptr) {
    Proto& out = *node.add_attribute();
    out.set_name("body");
    *out.mutable_g() = *body;
    out.set_type(Proto::GRAPH);
  }
  return outputs;
}

OnnxTensor OnnxGraph::add(const char* op, const std::vector<OnnxTensor>& inputs,
                          const Attributes& attributes) {
  return add_several(op, inputs, 1, attributes)[0];
}

OnnxTensor OnnxGraph::initializer(const HostTensor& tensor, const std::string& name) {
  onnx::TensorProto& out = *out_.add_initializer();
  for (const int64_t size : tensor.shape()) {
    out.add_dims(size);
  }
  out.set_data_type(onnx_type(tensor.dtype()));
  out.set_name(unique(name));
  out.set_raw_data(tensor.bytes(), tensor.num_bytes());
  return out.name();
}

OnnxTensor OnnxGraph::scalar(double value, DType dtype) {
  const auto key = std::pair(value, static_cast<int>(dtype));
  const auto known = scalars_.find(key);
  if (known != scalars_.end()) {
    return known->second;
  }
  HostTensor tensor(dtype, Shape{});
  tensor.set(0, value);
  const OnnxTensor name = initializer(tensor, "scalar");
  if (value == value) {  // NaN is no key
    scalars_.emplace(key, name);
  }
  return name;
}

OnnxTensor OnnxGraph::integers(const std::vector<int64_t>& values) {
  const auto [known, is_new] = integers_.emplace(values, "");
  if (is_new) {
    HostTensor tensor(DType::kInt64, Shape{static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i) {
      tensor.data<int64_t>()[i] = values[i];
    }
    known->second = initializer(tensor, "integers");
  }
  return known->second;
}

void OnnxGraph::declare(onnx::ValueInfoProto& out, const std::string& name, DType dtype,
                        const std::vector<int64_t>& shape) {
  out.set_name(name);
  auto& type = *out.mutable_type()->mutable_tensor_type();
  type.set_elem_type(onnx_type(dtype));
  type.mutable_shape();
  for (const int64_t size : shape) {
    auto& dim = *type.mutable_shape()->add_dim();
    if (size == -1) {
      dim.set_dim_param("batch");
    } else if (size >= 0) {
      dim.set_dim_value(size);
    }
  }
}

}  // namespace meshtrain
