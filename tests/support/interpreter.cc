#include "support/interpreter.h"

#include "base/error.h"
#include "support/interpreter_kernels.h"

namespace meshtrain {

void Coordinates::next() {
  for (size_t dim = at_.size(); dim > 0; --dim) {
    if (++at_[dim - 1] < shape_[dim - 1]) {
      return;
    }
    at_[dim - 1] = 0;
  }
  done_ = true;
}

int64_t index_of(const std::vector<int64_t>& at, const Shape& shape) {
  int64_t index = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    index = index * shape[dim] + at[dim];
  }
  return index;
}

int64_t broadcast_index(const std::vector<int64_t>& at, const Shape& shape) {
  const size_t offset = at.size() - shape.size();
  int64_t index = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    index = index * shape[dim] + (shape[dim] == 1 ? 0 : at[offset + dim]);
  }
  return index;
}

ShardOf ShardOf::whole(const Shape& shape) {
  return {shape, std::vector<int64_t>(shape.size(), 0), shape};
}

namespace {

const KernelTable& kernels() {
  static const KernelTable table = [] {
    KernelTable out;
    add_elementwise_kernels(out);
    add_shape_kernels(out);
    add_reduce_kernels(out);
    add_training_kernels(out);
    add_window_kernels(out);
    add_warp_kernels(out);
    add_attention_kernels(out);
    add_rnn_kernels(out);
    add_head_kernels(out);
    return out;
  }();
  return table;
}

HostTensor fed(const Node& node, const HostTensor* tensor, const Value& value) {
  MESHTRAIN_CHECK(tensor != nullptr, "{} was not given", node.path);
  MESHTRAIN_CHECK(tensor->shape() == value.shape && tensor->dtype() == value.dtype,
                  "{} is {} {}, given {} {}", node.path, dtype_name(value.dtype),
                  shape_string(value.shape), dtype_name(tensor->dtype()),
                  shape_string(tensor->shape()));
  return tensor->clone();
}

}  // namespace

std::vector<HostTensor> interpret_node(const Node& node,
                                       std::span<const HostTensor* const> operands,
                                       std::span<const ShardOf> operand_shards,
                                       std::span<const ShardOf> result_shards,
                                       std::span<const DType> result_dtypes) {
  std::vector<HostTensor> results;
  for (size_t i = 0; i < result_shards.size(); ++i) {
    results.emplace_back(result_dtypes[i], result_shards[i].shape);
  }
  if (node.op->collective) {
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = operands[i]->clone();
    }
    return results;
  }
  const auto kernel = kernels().find(node.op->name);
  MESHTRAIN_CHECK(kernel != kernels().end(), "the interpreter has no kernel for {}", node.op->name);
  kernel->second({node, operands, results, operand_shards, result_shards});
  return results;
}

Interpretation interpret(const Graph& graph, const std::map<std::string, const HostTensor*>& inputs,
                         std::span<const HostTensor* const> variables) {
  Interpretation run;
  run.values.resize(graph.values.size());
  for (const Node& node : graph.nodes) {
    const Value& first = graph.values[node.outputs[0]];
    if (node.op->name == "input") {
      const auto found = inputs.find(node.attr_string("name"));
      run.values[node.outputs[0]] =
          fed(node, found == inputs.end() ? nullptr : found->second, first);
      continue;
    }
    if (node.op->name == "parameter") {
      const auto index = static_cast<size_t>(node.attr_int("variable"));
      run.values[node.outputs[0]] =
          fed(node, index < variables.size() ? variables[index] : nullptr, first);
      continue;
    }
    std::vector<const HostTensor*> operands;
    std::vector<ShardOf> operand_shards, result_shards;
    std::vector<DType> result_dtypes;
    for (ValueId input : node.inputs) {
      operands.push_back(&run.values[input]);
      operand_shards.push_back(ShardOf::whole(graph.shape(input)));
    }
    for (ValueId output : node.outputs) {
      result_shards.push_back(ShardOf::whole(graph.shape(output)));
      result_dtypes.push_back(graph.dtype(output));
    }
    std::vector<HostTensor> results =
        interpret_node(node, operands, operand_shards, result_shards, result_dtypes);
    for (size_t i = 0; i < results.size(); ++i) {
      run.values[node.outputs[i]] = std::move(results[i]);
    }
  }
  return run;
}

}  // namespace meshtrain
