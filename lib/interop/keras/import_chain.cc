#include "interop/keras/import_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "interop/keras/import_masks.h"
#include "interop/keras/import_nodes.h"
#include "interop/keras/import_ops.h"
#include "interop/keras/weights.h"

namespace meshtrain {
namespace {

constexpr int kMaxChainDepth = 32;

class ChainReader {
 public:
  explicit ChainReader(KerasJson& json) : json_(json) {}

  // False: the model is no chain.
  bool add_model(const Json& model, const std::string& path, int depth) {
    if (depth > kMaxChainDepth) {
      json_.malformed(fmt::format("models are nested deeper than {}", kMaxChainDepth));
    }
    const Json& config = json_.need(model, "config", "a nested model");
    const Json& layers = json_.need(config, "layers", "a nested model");
    if (!layers.is_array()) {
      json_.malformed("`layers` of a nested model is no list");
    }
    const std::vector<std::string> groups = groups_of_layers(layers, path, json_);
    const std::optional<std::vector<size_t>> order =
        model.at("class_name") == "Sequential" ? in_order(layers) : order_of(config, layers);
    return order && std::all_of(order->begin(), order->end(),
                                [&](size_t i) { return add_layer(layers[i], groups[i], depth); });
  }
  std::vector<ChainLayer>& layers() { return layers_; }

 private:
  bool add_layer(const Json& layer, const std::string& group, int depth) {
    const std::string class_name = json_.need_text(layer, "class_name", "a layer");
    if (is_keras_model(class_name)) {
      return add_model(layer, group + "/", depth + 1);
    }
    if (class_name != "InputLayer") {
      layers_.push_back({&layer, group});
    }
    // Between two TimeDistributed layers there is no mask of a step's own steps.
    return !is_operation(layer) && !makes_mask(class_name, layer.value("config", Json()));
  }

  static std::vector<size_t> in_order(const Json& layers) {
    std::vector<size_t> out(layers.size());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = i;
    }
    return out;
  }

  // Positions of a Functional model's layers from the input to the output.
  std::optional<std::vector<size_t>> order_of(const Json& config, const Json& layers) {
    const auto ends = [&](const char* key) {
      return read_references(json_.need(config, key, "a nested model"), key, json_);
    };
    const auto inputs = ends("input_layers"), outputs = ends("output_layers");
    if (inputs.size() != 1 || outputs.size() != 1) {
      return std::nullopt;
    }
    const KerasNodes found = read_nodes(layers, json_);
    std::vector<size_t> out;
    TensorKey at = outputs[0].second;
    at.node.second -= found.functional.contains(at.node.first) ? 1 : 0;  // see collect_outputs()
    while (at.node != inputs[0].second.node) {
      const auto node = found.nodes.find(at.node);
      if (node == found.nodes.end() || at.tensor != 0 || node->second.needs.size() != 1 ||
          !node->second.keywords.flags.empty() || out.size() > found.nodes.size()) {
        return std::nullopt;
      }
      out.push_back(node->second.position);
      at = node->second.needs[0];
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  KerasJson& json_;
  std::vector<ChainLayer> layers_;
};

}  // namespace

std::vector<std::string> groups_of_layers(const Json& layers, const std::string& path,
                                          const KerasJson& json) {
  std::map<std::string, int> used;
  std::vector<std::string> out;
  for (const Json& layer : layers) {
    const std::string class_name = json.need_text(layer, "class_name", "a layer");
    if (is_operation(layer)) {
      out.emplace_back();
      continue;
    }
    const std::string base = group_name(class_name);
    const int count = used[base]++;
    out.push_back(
        fmt::format("{}layers/{}{}", path, base, count == 0 ? "" : fmt::format("_{}", count)));
  }
  return out;
}

std::optional<std::vector<ChainLayer>> layers_of_chain(const Json& model, const std::string& path,
                                                       KerasJson& json) {
  ChainReader reader(json);
  if (!reader.add_model(model, path, 0) || reader.layers().empty()) {
    return std::nullopt;
  }
  return std::move(reader.layers());
}

}  // namespace meshtrain
