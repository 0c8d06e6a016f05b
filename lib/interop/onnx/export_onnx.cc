#include "interop/onnx/export_onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "interop/onnx/onnx_ops.h"
#include "nn/recurrent.h"
#include "passes/simplify.h"

namespace meshtrain {
namespace {

constexpr int64_t kIrVersion = 8, kOperatorSet = 17;
constexpr int64_t kMostBytes = (int64_t{1} << 31) - 1;  // of a message
// Two batches: what differs between their graphs is counted in samples.
constexpr int64_t kBatch = 2, kOtherBatch = 3;

// The layer that an op is of: the path's first part.
std::string layer_of(const std::string& path) {
  return path.substr(0, path.find('/'));
}

void check_consistent(const Graph& a, const Graph& b) {
  MESHTRAIN_CHECK(a.nodes.size() == b.nodes.size(), "{} and {} nodes", a.nodes.size(),
                  b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    MESHTRAIN_CHECK(a.nodes[i].op == b.nodes[i].op, "{} and {}", a.nodes[i].path, b.nodes[i].path);
  }
}

void check_size(const std::vector<NamedTensor>& weights) {
  int64_t bytes = 0;
  for (const NamedTensor& weight : weights) {
    bytes += static_cast<int64_t>(weight.tensor.num_bytes());
  }
  if (bytes >= kMostBytes) {
    throw ConfigError("E417", {},
                      fmt::format("the weights have {} bytes, and an ONNX file ends at 2 GiB",
                                  format_thousands(bytes)))
        .help("write .safetensors or .keras");
  }
}

void check_states(const Model& model) {
  for (const Weight* weight : model.weights()) {
    if (is_rnn_state(weight->path)) {
      throw ConfigError(
          "E417", {},
          fmt::format("layer `{}`: states that outlast a batch cannot be expressed in ONNX",
                      layer_of(weight->path)))
          .help("leave `stateful` out of the config that is exported");
    }
  }
}

void check_inputs(const Model& model) {
  for (const int call : model.inputs()) {
    const Shape& shape = model.calls()[call].output_shape;
    if (std::count(shape.begin() + 1, shape.end(), kUnknownDim) > 0) {
      throw ConfigError("E417", {},
                        fmt::format("input `{}` is {}: all sizes but the batch must be known",
                                    model.calls()[call].name, shape_string(shape)))
          .help("write them in the Input's `shape`; `import` takes them with --shape");
    }
  }
}

// Whether one of the nodes from `first` on, which compute `node`, takes no bfloat16 in this
// operator set.
bool lacks_bfloat16(const Graph& graph, const Node& node, const onnx::GraphProto& out, int first) {
  if (node.inputs.empty() || graph.dtype(node.inputs[0]) != DType::kBFloat16) {
    return false;
  }
  for (int i = first; i < out.node_size(); ++i) {
    const std::string& type = out.node(i).op_type();
    if (type == "Conv" || type == "ConvTranspose" || type == "Einsum") {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string onnx_image(const Setup& setup, const std::vector<NamedTensor>& weights) {
  check_size(weights);
  check_states(setup.model());
  check_inputs(setup.model());
  const Graph graph = simplify(setup.global_graph(StepKind::kPredict, kBatch));
  const Graph other = simplify(setup.global_graph(StepKind::kPredict, kOtherBatch));
  check_consistent(graph, other);

  onnx::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("meshtrain");
  model.add_opset_import()->set_version(kOperatorSet);
  onnx::GraphProto& out = *model.mutable_graph();
  out.set_name(setup.model().name());
  OnnxOps ops(setup.model(), {graph, other}, {kBatch, kOtherBatch}, weights, out);
  Diagnostics problems;
  std::set<std::string> said;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const int first = out.node_size();
    std::string problem = ops.add(node, static_cast<NodeId>(i));
    if (problem.empty() && lacks_bfloat16(graph, node, out, first)) {
      problem = "bfloat16 in a convolution or Einsum";
    }
    if (!problem.empty() && said.insert(layer_of(node.path) + problem).second) {
      Diagnostic& error = problems.error(
          "E417", {},
          fmt::format("layer `{}`: {} cannot be expressed in ONNX", layer_of(node.path), problem));
      if (starts_with(problem, "bfloat16")) {
        error.help("`dtype_policy=float32` behind the command writes the same weights in float32");
      }
    }
  }
  problems.throw_if_errors();
  ops.add_outputs();
  std::string image;
  MESHTRAIN_CHECK(model.SerializeToString(&image), "{} bytes", model.ByteSizeLong());
  return image;
}

}  // namespace meshtrain
