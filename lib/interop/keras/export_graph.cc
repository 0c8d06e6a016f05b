#include "interop/keras/export_graph.h"

#include <algorithm>
#include <map>

#include "interop/keras/export_objects.h"
#include "interop/keras/weights.h"
#include "nn/arguments.h"
#include "nn/operations.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

OrderedJson constant(const ExprValue& value) {
  if (const auto* list = std::get_if<std::vector<ExprValue>>(&value.data)) {
    OrderedJson out = OrderedJson::array();
    for (const ExprValue& entry : *list) {
      out.push_back(constant(entry));
    }
    return out;
  }
  return std::visit(
      [](const auto& plain) -> OrderedJson {
        using T = std::decay_t<decltype(plain)>;
        if constexpr (std::is_same_v<T, std::monostate> ||
                      std::is_same_v<T, std::vector<ExprValue>>) {
          return nullptr;
        } else {
          return plain;
        }
      },
      value.data);
}

// Slices and `...` of an index as Keras wraps them.
OrderedJson index(const ExprValue& key) {
  OrderedJson out = OrderedJson::array();
  for (const ExprValue& entry : std::get<std::vector<ExprValue>>(key.data)) {
    if (const auto* slice = std::get_if<std::vector<ExprValue>>(&entry.data)) {
      out.push_back({{"class_name", "__slice__"},
                     {"config",
                      {{"start", constant((*slice)[0])},
                       {"stop", constant((*slice)[1])},
                       {"step", constant((*slice)[2])}}}});
    } else if (std::holds_alternative<std::string>(entry.data)) {
      out.push_back({{"class_name", "__ellipsis__"}, {"config", OrderedJson::object()}});
    } else {
      out.push_back(constant(entry));
    }
  }
  return out;
}

OrderedJson tensor_json(const Shape& shape, DType dtype, OrderedJson history) {
  return {{"class_name", "__keras_tensor__"},
          {"config",
           {{"shape", shape_json(shape)},
            {"dtype", std::string(dtype_name(dtype))},
            {"keras_history", std::move(history)}}}};
}

}  // namespace

KerasGraph::KerasGraph(const Model& model, const KerasNames& names, std::string table_dtype)
    : model_(model), names_(names), table_dtype_(std::move(table_dtype)) {
  std::map<int, int> calls_of_layer;
  for (const auto& call : model.calls()) {
    nodes_.push_back(call.is_input             ? 0
                     : call.result_of != kNone ? nodes_[call.result_of]
                                               : calls_of_layer[call.layer]++);
  }
}

const TensorProgram* KerasGraph::program_of(int call) const {
  const Model::Call& entry = model_.calls()[call];
  return entry.is_input ? nullptr : model_.layers()[entry.layer]->program();
}

OrderedJson KerasGraph::reference(int call) const {
  const TensorProgram* program = program_of(call);
  const Model::Call& entry = model_.calls()[call];
  const int tensor = entry.result_of == kNone ? 0 : 1 + entry.result;
  return program != nullptr ? operand_reference(call, program->result)
                            : OrderedJson::array({names_.of_call(call), nodes_[call], tensor});
}

OrderedJson KerasGraph::references(const std::vector<int>& calls,
                                   const std::vector<std::string>& names) const {
  if (calls.size() == 1 && names.empty()) {
    return reference(calls[0]);
  }
  OrderedJson out = names.empty() ? OrderedJson::array() : OrderedJson::object();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (names.empty()) {
      out.push_back(reference(calls[i]));
    } else {
      out[names[i]] = reference(calls[i]);
    }
  }
  return out;
}

OrderedJson KerasGraph::tensor(int call) const {
  const Model::Call& from = model_.calls()[call];
  return tensor_json(from.output_shape, from.dtype, reference(call));
}

// --- operations ----------------------------------------------------------------------------------

// The operation that gives the result has the Lambda's name; the others follow it.
std::string KerasGraph::operation_name(int call, int tensor) const {
  const TensorProgram& program = *program_of(call);
  const size_t index = static_cast<size_t>(tensor) - program.inputs.size();
  return tensor == program.result ? names_.of_call(call)
                                  : fmt::format("{}_{}_{}", names_.of_call(call),
                                                program.calls[index].operation->name, index + 1);
}

OrderedJson KerasGraph::operand_reference(int call, int tensor) const {
  const auto num_inputs = static_cast<int>(program_of(call)->inputs.size());
  if (tensor < num_inputs) {
    return reference(model_.calls()[call].inputs[tensor]);
  }
  const int64_t part = program_of(call)->calls[static_cast<size_t>(tensor - num_inputs)].part;
  return OrderedJson::array({operation_name(call, tensor), nodes_[call], part});
}

OrderedJson KerasGraph::operand(int call, const Operand& operand,
                                const std::vector<TensorType>& types) const {
  if (operand.is_tensor()) {
    const TensorType& type = types[static_cast<size_t>(operand.tensor)];
    return tensor_json(type.shape, type.dtype, operand_reference(call, operand.tensor));
  }
  if (!operand.is_list) {
    const bool is_table = std::holds_alternative<std::vector<ExprValue>>(operand.constant.data);
    return is_table
               ? OrderedJson{{"class_name", "__numpy__"},
                             {"config",
                              {{"value", constant(operand.constant)}, {"dtype", table_dtype_}}}}
               : constant(operand.constant);
  }
  OrderedJson out = OrderedJson::array();
  for (const Operand& entry : operand.list) {
    out.push_back(this->operand(call, entry, types));
  }
  return out;
}

void KerasGraph::add_operations(int first, OrderedJson& layers) const {
  const TensorProgram& program = *program_of(first);
  const int layer = model_.calls()[first].layer;
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const TensorProgram::Call& operation = program.calls[i];
    const std::string name = operation_name(first, static_cast<int>(program.inputs.size() + i));
    OrderedJson config = {{"name", name}};
    for (const auto& [key, value] : operation.arguments) {
      if (!operation.operation->is_call_argument(key)) {
        config[key] = constant(value);
      }
    }
    const std::string class_name(operation.operation->class_name);
    OrderedJson entry = serialized(fmt::format("keras.src.ops.{}", operation.operation->module),
                                   class_name, std::move(config));
    entry["registered_name"] = class_name;
    entry["name"] = name;
    entry["inbound_nodes"] = OrderedJson::array();
    for (size_t call = 0; call < model_.calls().size(); ++call) {
      if (!model_.calls()[call].is_input && model_.calls()[call].layer == layer) {
        entry["inbound_nodes"].push_back(operation_node(static_cast<int>(call), operation));
      }
    }
    layers.push_back(std::move(entry));
  }
}

OrderedJson KerasGraph::operation_node(int call, const TensorProgram::Call& operation) const {
  const Model::Call& entry = model_.calls()[call];
  std::vector<TensorType> inputs;
  for (size_t i = 0; i < program_of(call)->inputs.size(); ++i) {
    const Model::Call& input = model_.calls()[entry.inputs[i]];
    inputs.push_back({input.output_shape, input.dtype, true, input.rows});
  }
  const std::vector<TensorType> types =
      infer_tensors(*program_of(call), inputs, model_.layers()[entry.layer]->variable_dtype);
  OrderedJson args = OrderedJson::array();
  for (const Operand& one : operation.operands) {
    args.push_back(operand(call, one, types));
  }
  for (const auto& [key, is_required, otherwise] : operation.operation->parameters()) {
    if (operation.operation->is_call_argument(key)) {
      const ExprValue& value = operation.arguments.at(key);
      args.push_back(key == "key" ? index(value) : constant(value));
    }
  }
  return {{"args", std::move(args)}, {"kwargs", OrderedJson::object()}};
}

// --- layers --------------------------------------------------------------------------------------

OrderedJson KerasGraph::inbound_nodes(int first) const {
  OrderedJson out = OrderedJson::array();
  const Model::Call& call = model_.calls()[first];
  for (size_t i = 0; !call.is_input && i < model_.calls().size(); ++i) {
    const Model::Call& other = model_.calls()[i];
    if (other.is_input || other.result_of != kNone || other.layer != call.layer) {
      continue;
    }
    out.push_back(layer_node(call_arguments(model_, static_cast<int>(i))));
  }
  return out;
}

OrderedJson KerasGraph::layer_node(const CallArguments& call) const {
  const auto list_of = [&](const std::vector<int>& calls) {
    OrderedJson tensors = OrderedJson::array();
    for (const int one : calls) {
      tensors.push_back(tensor(one));
    }
    return tensors;
  };
  OrderedJson keywords = OrderedJson::object();
  for (const auto& [name, from] : call.tensors) {
    keywords[name] = tensor(from);
  }
  for (const auto& [name, is_set] : call.flags) {
    keywords[name] = is_set;
  }
  for (const std::vector<int>& states : call.initial_state) {
    const OrderedJson tensors = list_of(states);
    keywords["initial_state"].push_back(states.size() == 1 ? tensors[0] : tensors);
  }
  OrderedJson args = list_of(call.args);
  return {{"args", call.as_list ? OrderedJson::array({std::move(args)}) : std::move(args)},
          {"kwargs", std::move(keywords)}};
}

}  // namespace meshtrain
