#include "interop/keras/weights_by_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/parse_number.h"
#include "base/text.h"
#include "config/cells.h"
#include "interop/keras/hub.h"
#include "interop/keras/weights.h"
#include "nn/recurrent.h"

namespace meshtrain {
namespace {

// The attribute of a Keras object that holds the sub-layer of this name: files have groups by
// attributes, and variables have paths by names.
std::string attribute_of(std::string_view class_name, size_t depth, const std::string& name) {
  static const std::map<std::string_view, std::string> kAttention = {
      {"query", "query_dense"},
      {"key", "key_dense"},
      {"value", "value_dense"},
      {"gate", "_gate_dense"},
      {"attention_output", "output_dense"}};
  const auto projection = kAttention.find(name);
  const bool is_block = starts_with(class_name, "Transformer");
  if (is_block && depth == 0) {
    return "_" + name +
           (ends_with(name, "self_attention") || ends_with(name, "cross_attention") ? "_layer"
                                                                                    : "");
  }
  if (class_name == "MaskedLMHead") {
    return "_" + name;
  }
  if ((is_block || class_name == "MultiHeadAttention") && projection != kAttention.end()) {
    return projection->second;
  }
  if (class_name == "GroupQueryAttention" && projection != kAttention.end()) {
    const bool is_private = starts_with(projection->second, "_");
    return is_private ? projection->second : "_" + projection->second;
  }
  return ends_with(name, "_cell") ? "cell" : name;
}

// The name under which Keras keeps cell `name` of a stack: its class', counted on.
std::string name_in_list(const ConfigObject& stack, const std::string& name) {
  std::map<std::string, int> used;
  for (const NamedCell& cell : cells_of_stack(stack)) {
    const std::string base = to_snake_case(cell.object->class_name);
    const int count = used[base]++;
    if (cell.name == name) {
      return count == 0 ? base : fmt::format("{}_{}", base, count);
    }
  }
  return name;
}

}  // namespace

std::vector<PartGroup> part_groups(const Layer& layer, const std::string& group) {
  std::vector<PartGroup> out = {{group, layer.name, {}}};
  for (const Weight& weight : layer.weights) {
    if (is_rnn_state(weight.path) || weight.factor_of != kNone) {
      continue;  // Keras keeps it in no file
    }
    std::vector<std::string> parts =
        split(std::string_view(weight.path).substr(layer.name.size() + 1), '/');
    parts.pop_back();
    std::string place = group, name = layer.name, class_name = layer.class_name;
    const ConfigObject* config = layer.config();
    size_t begin = 0;  // where the names of a wrapped layer begin
    for (size_t i = 0; i < parts.size(); ++i) {
      name = parts[i];
      if (class_name == "RNN") {
        place += "/cell";
        config = &config->arg("cell").object();
        class_name = config->class_name;
        continue;
      }
      if (class_name == "StackedRNNCells") {
        place += "/cells/" + name_in_list(*config, name);
        continue;
      }
      const bool wraps_one =
          class_name == "TimeDistributed" || class_name == "SpectralNormalization";
      if (class_name != "Bidirectional" && !wraps_one) {
        place += "/" + attribute_of(class_name, i - begin, name);
        continue;
      }
      if (class_name == "SpectralNormalization" && i + 1 == parts.size() && place == group &&
          out[0].weights.empty()) {
        out[0].weights.push_back(&weight);  // the kernel, which Keras keeps twice
      }
      const bool is_first = layer.weights[0].path.starts_with(
          fmt::format("{}/{}/", layer.name, fmt::join(parts.begin(), parts.begin() + i + 1, "/")));
      place += wraps_one ? "/layer" : is_first ? "/forward_layer" : "/backward_layer";
      config = &config->arg("layer").object();
      class_name = config->class_name;
      begin = i + 1;
    }
    auto found = std::find_if(out.begin(), out.end(),
                              [&](const PartGroup& each) { return each.group == place; });
    if (found == out.end()) {
      found = out.insert(out.end(), {place, name, {}});
    }
    found->weights.push_back(&weight);
  }
  return out;
}

namespace {

// "layers/dense/vars/1" -> ("layers/dense", 1); nothing for other datasets.
std::optional<std::pair<std::string, size_t>> vars_entry(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || !ends_with(path.substr(0, slash), "/vars")) {
    return std::nullopt;
  }
  const auto index = parse_number<size_t>(std::string_view(path).substr(slash + 1));
  return index ? std::optional(std::pair{path.substr(0, slash - 5), *index}) : std::nullopt;
}

// part_groups() with the places that they have in a file with these groups.
std::vector<PartGroup> groups_in_file(const Layer& layer, const KerasGroup& group) {
  std::vector<PartGroup> out = part_groups(layer, group.group);
  if (!group.is_inner) {
    return out;
  }
  out.erase(out.begin());  // a TimeDistributed has no weights of its own
  const std::string within = group.group + "/layer";
  for (PartGroup& each : out) {
    MESHTRAIN_CHECK(starts_with(each.group, within), "{}", each.group);
    each.group = group.group + each.group.substr(within.size());
  }
  return out;
}

bool is_left_out(const std::string& dataset, const std::vector<KerasGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(), [&](const KerasGroup& group) {
    return group.layer.empty() &&
           (dataset == group.group || starts_with(dataset, group.group + "/"));
  });
}

// "lstm_cell" of "lstm_cell_3".
std::string without_count(const std::string& name) {
  const size_t end = name.rfind('_');
  const bool is_counted = end != std::string::npos &&
                          parse_number<size_t>(std::string_view(name).substr(end + 1)).has_value();
  return is_counted ? name.substr(0, end) : name;
}

// How many parts before the last one `path` and `dataset` have in common; but for the numbers that
// Keras gave to classes, which are others in another session.
size_t common_parts(const std::string& path, const std::string& dataset) {
  const std::vector<std::string> a = split(path, '/'), b = split(dataset, '/');
  size_t count = 1;
  while (count < std::min(a.size(), b.size()) &&
         without_count(a[a.size() - 1 - count]) == without_count(b[b.size() - 1 - count])) {
    ++count;
  }
  return count;
}

// The layer whose weight `dataset` is: the file's group, or in a group of a nested model the first
// part of the path that is a layer.
const Layer* layer_of_dataset(const std::string& dataset,
                              const std::map<std::string, const Layer*>& layers) {
  const auto whole = layers.find(dataset.substr(0, dataset.rfind('/')));  // of a nested model
  if (whole != layers.end()) {
    return whole->second;
  }
  std::vector<std::string> parts = split(dataset, '/');
  parts.pop_back();
  for (const std::string& part : parts) {
    if (const auto layer = layers.find(part); layer != layers.end()) {
      return layer->second;
    }
  }
  return nullptr;
}

// The weight that a dataset of a whole model's .h5 or of Keras 2 holds, or null. Files of Keras 2,
// those of keras.applications too, name them "LAYER/LAYER/kernel:0", the oldest
// "LAYER/LAYER_W_1:0", those of Keras 3 "LAYER/MODEL/LAYER/kernel".
const Weight* weight_by_path(const std::string& dataset,
                             const std::map<std::string, const Layer*>& layers) {
  const Layer* const layer = layer_of_dataset(dataset, layers);
  if (layer == nullptr) {
    return nullptr;
  }
  std::string name = dataset.substr(dataset.rfind('/') + 1);
  name.resize(name.size() - (ends_with(name, ":0") ? 2 : 0));
  static constexpr std::pair<std::string_view, std::string_view> kOldest[] = {{"_W_1", "kernel"},
                                                                              {"_b_1", "bias"}};
  for (const auto& [end, now] : kOldest) {
    name = ends_with(name, end) ? std::string(now) : name;
  }
  if (layer->weights.size() == 1 && starts_with(to_lower(name), "variable")) {
    return layer->weights.data();  // LayerScale's has no name in Keras
  }
  const bool is_depthwise = name == "depthwise_kernel";
  const Weight* best = nullptr;
  for (const Weight& weight : layer->weights) {
    const std::string own = weight.path.substr(weight.path.rfind('/') + 1);
    if ((own == name || (is_depthwise && layer->weights.size() <= 2 && own == "kernel")) &&
        (best == nullptr ||
         common_parts(weight.path, dataset) > common_parts(best->path, dataset))) {
      best = &weight;
    }
  }
  return best;
}

// Of a whole model's .h5 only the weights of the model, as a file of weights has them.
void take_model_weights(H5File& file) {
  static constexpr std::string_view kGroup = "model_weights/";
  const auto is_within = [](const NamedTensor& each) { return starts_with(each.name, kGroup); };
  if (std::any_of(file.datasets.begin(), file.datasets.end(), is_within)) {
    std::erase_if(file.datasets, [&](const NamedTensor& each) { return !is_within(each); });
    for (NamedTensor& dataset : file.datasets) {
      dataset.name.erase(0, kGroup.size());
    }
  }
}

}  // namespace

std::vector<NamedTensor> named_by_path(H5File file, const std::vector<KerasGroup>& groups,
                                       const Model& model) {
  rename_vit_blocks(file);
  take_model_weights(file);
  std::map<std::string, const Layer*> layers;  // by name
  for (const auto& layer : model.layers()) {
    layers.emplace(layer->name, layer.get());
  }
  std::map<std::string, std::vector<const Weight*>> by_group;
  for (const KerasGroup& group : groups) {
    const auto layer = layers.find(group.layer);
    if (layer != layers.end()) {
      for (PartGroup& each : groups_in_file(*layer->second, group)) {
        by_group.emplace(std::move(each.group), std::move(each.weights));
      }
    }
  }
  std::vector<NamedTensor> out;
  std::set<const Weight*> found;
  for (NamedTensor& dataset : file.datasets) {
    if (starts_with(dataset.name, "optimizer/") || starts_with(dataset.name, "metrics/") ||
        dataset.name.find("seed_generator/") != std::string::npos ||
        is_left_out(dataset.name, groups)) {
      continue;
    }
    const auto entry = vars_entry(dataset.name);
    const Weight* const weight = entry ? nullptr : weight_by_path(dataset.name, layers);
    if (weight != nullptr) {
      if (found.insert(weight).second) {  // else it keeps its name, and is refused as unexpected
        dataset.name = weight->path;
      }
    } else if (entry) {
      const auto weights = by_group.find(entry->first);
      if (weights != by_group.end() && entry->second < weights->second.size()) {
        if (!found.insert(weights->second[entry->second]).second) {
          continue;  // there a second time
        }
        dataset.name = weights->second[entry->second]->path;
      }
    }
    out.push_back(std::move(dataset));
  }
  return out;
}

}  // namespace meshtrain
