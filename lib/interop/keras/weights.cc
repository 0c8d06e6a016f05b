#include "interop/keras/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/text.h"
#include "interop/keras/archive.h"
#include "interop/keras/hub.h"
#include "interop/keras/import.h"
#include "interop/keras/weights_by_path.h"
#include "nn/tensor_program.h"
#include "tensor/weights.h"

namespace meshtrain {
namespace {

// What is called: a layer, or an input, which is a layer of its own in Keras.
struct Operations {
  std::vector<int> of_call;     // call -> operation
  std::vector<int> first_call;  // operation -> call
};

Operations operations_of(const Model& model) {
  Operations out;
  std::map<int, int> of_layer;
  for (size_t i = 0; i < model.calls().size(); ++i) {
    const Model::Call& call = model.calls()[i];
    if (call.result_of != kNone) {
      out.of_call.push_back(out.of_call[call.result_of]);
      continue;
    }
    const int next = static_cast<int>(out.first_call.size());
    const int operation = call.is_input ? next : of_layer.emplace(call.layer, next).first->second;
    if (operation == next) {
      out.first_call.push_back(static_cast<int>(i));
    }
    out.of_call.push_back(operation);
  }
  return out;
}

// Calls that are outputs in the order in which Keras looks at them: a map's by name.
std::vector<int> flattened_outputs(const Model& model) {
  std::vector<int> order(model.outputs().size());
  std::iota(order.begin(), order.end(), 0);
  const bool named = has_named_outputs(model);
  if (named) {
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return model.output_names()[a] < model.output_names()[b]; });
  }
  for (int& entry : order) {
    entry = model.computing(model.outputs()[entry]);
  }
  return order;
}

// What a call takes, in the order of Keras' walk, and how many operations lie between: one, but for
// a Lambda, which Keras has as several.
std::vector<std::pair<int, int>> steps_to_inputs(const Model& model, int call) {
  const Model::Call& entry = model.calls()[call];
  std::vector<std::pair<int, int>> out;
  const TensorProgram* program = entry.is_input ? nullptr : model.layers()[entry.layer]->program();
  if (program != nullptr) {
    for (const UsedInput& used : used_inputs(*program)) {
      out.emplace_back(model.computing(entry.inputs[static_cast<size_t>(used.input)]), used.depth);
    }
    return out;
  }
  for (const int input : entry.inputs) {
    out.emplace_back(model.computing(input), 1);
  }
  return out;
}

// A walk from the outputs towards the inputs, arguments in order, without recursion.
class Traversal {
 public:
  Traversal(const Model& model, const Operations& operations)
      : model_(model),
        operations_(operations),
        state_(model.calls().size(), State::kNew),
        index_(operations.first_call.size(), -1) {
    for (const int output : flattened_outputs(model)) {
      visit(output);
    }
  }
  const std::vector<int>& finished() const { return finished_; }  // calls, inputs first
  const std::vector<int>& index() const { return index_; }  // operation -> when it was first met

 private:
  enum class State : uint8_t { kNew, kOpen, kDone };

  void open(int call, std::vector<std::pair<int, size_t>>& stack) {
    int& index = index_[operations_.of_call[call]];
    index = index < 0 ? met_++ : index;
    state_[call] = State::kOpen;
    stack.emplace_back(call, 0);
  }

  void visit(int output) {
    std::vector<std::pair<int, size_t>> stack;  // call, next argument
    if (state_[output] == State::kNew) {
      open(output, stack);
    }
    while (!stack.empty()) {
      auto& [call, next] = stack.back();
      const std::vector<std::pair<int, int>> inputs = steps_to_inputs(model_, call);
      if (next < inputs.size()) {
        const int input = inputs[next++].first;
        if (state_[input] == State::kNew) {
          open(input, stack);
        }
        continue;
      }
      state_[call] = State::kDone;
      finished_.push_back(call);
      stack.pop_back();
    }
  }

  const Model& model_;
  const Operations& operations_;
  std::vector<State> state_;
  std::vector<int> index_;
  std::vector<int> finished_;
  int met_ = 0;
};

std::string class_of(const Model& model, int call) {
  const Model::Call& entry = model.calls()[call];
  return entry.is_input ? "InputLayer" : model.layers()[entry.layer]->class_name;
}

// The groups under the names of the model's layers, which a named Repeat makes longer than those in
// the file: `stem/conv` is Keras' `conv` in a Sequential `stem`. Empty when a layer with weights is
// not among them.
std::vector<KerasGroup> groups_by_name(const Model& model, std::vector<KerasGroup> groups) {
  std::map<std::string_view, KerasGroup*> by_name;
  for (KerasGroup& group : groups) {
    by_name.emplace(group.layer, &group);
  }
  std::map<KerasGroup*, const std::string*> names;
  for (const auto& layer : model.layers()) {
    if (layer->weights.empty()) {
      continue;
    }
    auto group = by_name.find(layer->name);
    if (group == by_name.end()) {
      group = by_name.find(std::string_view(layer->name).substr(layer->name.rfind('/') + 1));
    }
    if (group == by_name.end() || !names.emplace(group->second, &layer->name).second) {
      return {};  // the second: two layers end in the same name
    }
  }
  for (const auto& [group, name] : names) {
    group->layer = *name;
  }
  return groups;
}

// The layers of the model in a .weights.h5, by the names that they had.
std::vector<KerasGroup> named_groups_of(const H5File& file) {
  std::vector<KerasGroup> out;
  for (const auto& [vars, name] : file.names) {
    const std::vector<std::string> parts = split(vars, '/');  // "layers/dense_1/vars"
    if (parts.size() == 3 && parts[0] == "layers" && parts[2] == "vars") {
      out.push_back({name, "layers/" + parts[1]});
    }
  }
  return out;
}

}  // namespace

std::string group_name(const std::string& class_name) {
  // Keras exports its GroupedQueryAttention under this name.
  return to_snake_case(class_name == "GroupQueryAttention" ? "GroupedQueryAttention" : class_name);
}

bool has_named_outputs(const Model& model) {
  for (size_t i = 0; i < model.outputs().size(); ++i) {
    if (model.output_names()[i] != model.calls()[model.outputs()[i]].name) {
      return true;
    }
  }
  return false;
}

std::vector<int> keras_layer_order(const Model& model) {
  const Operations operations = operations_of(model);
  const Traversal traversal(model, operations);
  std::vector<int> call_depth(model.calls().size(), 0);
  std::vector<int> depth(operations.first_call.size(), 0);
  const std::vector<int>& finished = traversal.finished();
  for (auto it = finished.rbegin(); it != finished.rend(); ++it) {
    int& of_operation = depth[operations.of_call[*it]];
    of_operation = std::max(of_operation, call_depth[*it]);
    call_depth[*it] = of_operation;
    for (const auto& [input, steps] : steps_to_inputs(model, *it)) {
      call_depth[input] = std::max(call_depth[input], of_operation + steps);
    }
  }
  std::vector<int> order(operations.first_call.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return depth[a] != depth[b] ? depth[a] > depth[b] : traversal.index()[a] < traversal.index()[b];
  });
  for (int& entry : order) {
    entry = operations.first_call[entry];
  }
  return order;
}

namespace {

// Names of groups: classes counted within the model, or within a model in it.
class GroupNames {
 public:
  // `container`: what Keras calls models in the model; "": layers have no models around them.
  explicit GroupNames(std::string container) : container_(std::move(container)) {}

  // "layers/sequential_1/layers/conv2d" of the layer `down_1/conv`.
  std::string next(const std::string& layer, const std::string& class_name) {
    std::string within;
    for (size_t end = layer.find('/'); !container_.empty() && end != std::string::npos;
         end = layer.find('/', end + 1)) {
      const auto [known, is_new] = containers_.emplace(layer.substr(0, end), "");
      if (is_new) {
        known->second = counted(within, container_);
      }
      within = known->second + "/";
    }
    return counted(within, group_name(class_name));
  }

 private:
  std::string counted(const std::string& within, const std::string& base) {
    const std::string group = within + "layers/" + base;
    const int count = used_[group]++;
    return count == 0 ? group : fmt::format("{}_{}", group, count);
  }

  std::string container_;
  std::map<std::string, std::string> containers_;  // prefix of names -> group
  std::map<std::string, int> used_;
};

std::vector<KerasGroup> named_groups(const Model& model, GroupNames names) {
  std::vector<KerasGroup> out;
  for (const int call : keras_layer_order(model)) {
    const Model::Call& entry = model.calls()[call];
    const std::string& name = entry.is_input ? entry.name : model.layers()[entry.layer]->name;
    out.push_back({name, names.next(name, class_of(model, call))});
  }
  return out;
}

}  // namespace

std::vector<KerasGroup> keras_groups(const Model& model) {
  return named_groups(model, GroupNames(""));
}

std::vector<KerasGroup> keras_groups(const Model& model, const H5File& file) {
  if (std::vector<KerasGroup> groups = hub_groups(model, file); !groups.empty()) {
    return groups;
  }
  for (const std::string container : {"sequential", "functional"}) {
    const std::string group = "layers/" + container;
    for (const NamedTensor& dataset : file.datasets) {
      if (starts_with(dataset.name, group + "/layers/")) {
        return named_groups(model, GroupNames(container));
      }
    }
  }
  return keras_groups(model);
}

std::vector<NamedTensor> read_model_weights(const std::string& path, const Model& model) {
  const std::string name = to_lower(path);
  if (ends_with(name, ".keras")) {
    KerasArchive archive = read_keras_archive(path);
    ImportOptions options;
    options.file = path;
    options.weights = &archive.weights;
    ImportedModel imported = import_keras(archive.config, options);
    // Layers by their names where these are the same, else in Keras' order.
    std::vector<KerasGroup> groups = groups_by_name(model, std::move(imported.groups));
    if (groups.empty()) {
      groups = keras_groups(model, archive.weights);
    }
    return named_by_path(std::move(archive.weights), groups, model);
  }
  if (ends_with(name, ".h5") || ends_with(name, ".hdf5")) {
    H5File file = read_h5(path);
    std::vector<KerasGroup> groups = groups_by_name(model, named_groups_of(file));
    if (groups.empty()) {
      groups = keras_groups(model, file);
    }
    return named_by_path(std::move(file), groups, model);
  }
  return read_weights(path);
}

std::vector<H5Vars> keras_vars(const Model& model, const std::vector<NamedTensor>& values,
                               bool is_sequential) {
  std::map<std::string_view, const HostTensor*> by_path;
  for (const NamedTensor& value : values) {
    by_path.emplace(value.name, &value.tensor);
  }
  std::map<std::string, const Layer*> layers;
  for (const auto& layer : model.layers()) {
    layers.emplace(layer->name, layer.get());
  }
  std::vector<H5Vars> out = {{"vars", model.name(), {}}};
  for (const KerasGroup& group : keras_groups(model)) {
    const auto layer = layers.find(group.layer);
    if (layer == layers.end()) {
      if (!is_sequential) {
        out.push_back({group.group + "/vars", group.layer, {}});
      }
      continue;
    }
    for (const PartGroup& each : part_groups(*layer->second, group.group)) {
      H5Vars vars{each.group + "/vars", each.name, {}};
      for (const Weight* weight : each.weights) {
        const auto value = by_path.find(weight->path);
        MESHTRAIN_CHECK(value != by_path.end(), "{}", weight->path);
        vars.tensors.push_back(value->second);
      }
      out.push_back(std::move(vars));
    }
  }
  return out;
}

}  // namespace meshtrain
