#include "interop/keras/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "interop/keras/archive.h"
#include "interop/keras/hub.h"
#include "interop/keras/import.h"
#include "interop/keras/layer_order.h"
#include "interop/keras/weights_by_path.h"
#include "tensor/weights.h"

namespace meshtrain {
namespace {

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
