// Calls of a model as Keras' functional models have them: nodes of layers, and operations.
#pragma once

#include <string>
#include <vector>

#include "interop/keras/export_call.h"
#include "interop/keras/export_model.h"
#include "nn/tensor_program.h"

namespace meshtrain {

class KerasGraph {
 public:
  // `table_dtype`: of constant tables in operations.
  KerasGraph(const Model& model, const KerasNames& names, std::string table_dtype);

  // The operations that a call computes; null where it is a layer of Keras.
  const TensorProgram* program_of(int call) const;
  // Appends the operations of a Lambda, with a node for each of its calls.
  void add_operations(int first, OrderedJson& layers) const;
  // The nodes of a layer, by its first call: the tensors and keywords that each call takes. Throws
  // E417 (exit 6) for tensors that Keras' layer does not take.
  OrderedJson inbound_nodes(int first) const;
  // Results of calls: one alone without names, else a list, or a map by name.
  OrderedJson references(const std::vector<int>& calls,
                         const std::vector<std::string>& names) const;

 private:
  // The result of a call: of a Lambda that of its last operation, or an input.
  OrderedJson reference(int call) const;
  OrderedJson tensor(int call) const;
  OrderedJson layer_node(const CallArguments& call) const;
  std::string operation_name(int call, int tensor) const;
  // Tensor `tensor` of the program of a call.
  OrderedJson operand_reference(int call, int tensor) const;
  OrderedJson operand(int call, const Operand& operand, const std::vector<TensorType>& types) const;
  OrderedJson operation_node(int call, const TensorProgram::Call& operation) const;

  const Model& model_;
  const KerasNames& names_;
  std::string table_dtype_;
  std::vector<int> nodes_;  // of each call: which call of its layer it is
};

}  // namespace meshtrain
