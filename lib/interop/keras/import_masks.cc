#include "interop/keras/import_masks.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "interop/keras/import_json.h"
#include "nn/masks.h"

namespace meshtrain {
namespace {

// The texts: "7" has the steps of call 7 that are not padding, "*" all of them, "7|9" those of one
// or the other, "(7)+(9)" first those of one and then those of the other.
constexpr const char* kAll = "*";

bool are_masks(const std::vector<std::string>& masks) {
  return !masks.empty() && std::find(masks.begin(), masks.end(), "") == masks.end();
}

std::string any_of(const std::vector<std::string>& masks) {
  std::set<std::string> parts;
  for (const std::string& mask : masks) {
    for (const std::string& part : split(mask, '|')) {
      parts.insert(part);
    }
  }
  const std::vector<std::string> sorted(parts.begin(), parts.end());
  return parts.contains(kAll) ? kAll : join(sorted, "|");
}

// Concatenate, along the steps or along the features of (batch, steps, features).
std::string joined(const std::vector<std::string>& masks, const Json& axis) {
  return axis == 1 || axis == -2 ? "(" + join(masks, ")+(") + ")" : any_of(masks);
}

bool flag(const Json& json, const char* name) {
  return json.is_object() && json.value(name, Json()) == true;
}

bool returns_sequences(const KerasLayer& layer) {
  const Json inner = layer.config.value("layer", Json::object());
  const bool is_wrapped = layer.class_name == "Bidirectional" && inner.contains("config");
  return flag(is_wrapped ? inner.at("config") : layer.config, "return_sequences");
}

// As Layer::acting_class().
std::string acting_class(const KerasLayer& layer) {
  if (layer.class_name == "SpectralNormalization") {
    const Json* inner = find_member(layer.config, "layer");
    const Json* name = inner == nullptr ? nullptr : find_member(*inner, "class_name");
    if (name != nullptr && name->is_string()) {
      return name->get<std::string>();
    }
  }
  return layer.class_name;
}

// Each operation once, however often others need it.
class OperationReader {
 public:
  OperationReader(const std::map<NodeKey, KerasNode>& nodes, const ImportedMasks::CallOf& call_of)
      : nodes_(nodes), call_of_(call_of) {}

  std::string mask_of(const NodeKey& key) {
    const auto at = nodes_.find(key);
    if (at == nodes_.end() || depth_ == kMostDepth)
      return "";
    const auto [place, is_new] = masks_.try_emplace(key);
    if (is_new) {
      ++depth_;
      std::string mask = read(at->second);
      --depth_;
      masks_[key] = std::move(mask);
    }
    return masks_[key];
  }

 private:
  static constexpr int kMostDepth = 1000;

  Json class_of(const NodeKey& key) const {
    const auto found = nodes_.find(key);
    return found == nodes_.end() ? Json() : found->second.layer->value("class_name", Json());
  }

  // Under mixed precision a layer casts what it makes its mask of.
  TensorKey before_casts(TensorKey tensor) const {
    for (int i = 0; i < kMostDepth && class_of(tensor.node) == "Cast"; ++i) {
      const KerasNode& cast = nodes_.at(tensor.node);
      if (cast.needs.size() != 1) {
        break;
      }
      tensor = cast.needs[0];
    }
    return tensor;
  }

  std::string read(const KerasNode& node) {
    const Json name = node.layer->value("class_name", Json());
    if (name == "NotEqual") {
      const int call = node.needs.size() == 1 ? call_of_(before_casts(node.needs[0])) : kNone;
      return call == kNone ? "" : std::to_string(call);
    }
    if (name == "OnesLike")
      return kAll;
    std::vector<std::string> masks;
    for (const TensorKey& need : node.needs) {
      if (class_of(need.node) != "ZerosLike")  // widens a mask to the features
        masks.push_back(mask_of(need.node));
    }
    if (!are_masks(masks))
      return "";
    if (name == "LogicalOr")
      return any_of(masks);
    if (name == "Concatenate") {
      const Json config = node.layer->value("config", Json::object());
      return joined(masks, config.value("axis", Json(-1)));
    }
    const bool is_same = name == "Any" || name == "ConvertToTensor" || name == "ExpandDims";
    return is_same && masks.size() == 1 ? masks[0] : "";
  }

  const std::map<NodeKey, KerasNode>& nodes_;
  const ImportedMasks::CallOf& call_of_;
  std::map<NodeKey, std::string> masks_;
  int depth_ = 0;
};

}  // namespace

bool makes_mask(const std::string& class_name, const Json& config) {
  return class_name == "Masking" ||
         (mask_effect(class_name) == MaskEffect::kProduce && flag(config, "mask_zero"));
}

std::string ImportedMasks::of_call(int call) const {
  const auto found = masks_.find(call);
  return found == masks_.end() ? "" : found->second;
}

void ImportedMasks::add(int call, const KerasLayer& layer, const std::vector<int>& inputs) {
  if (inputs.empty()) {
    return;
  }
  std::vector<std::string> masks;
  for (const int input : inputs) {
    masks.push_back(of_call(input));
  }
  std::string& mask = masks_[call];
  switch (mask_effect(acting_class(layer))) {
    case MaskEffect::kProduce:
      mask = makes_mask(layer.class_name, layer.config) ? std::to_string(inputs[0]) : "";
      break;
    case MaskEffect::kPass:
      mask = layer.class_name != "SplitSteps" ? masks[0] : masks.size() > 1 ? masks[1] : "";
      break;
    case MaskEffect::kSteps:
      mask = returns_sequences(layer) ? masks[0] : "";
      break;
    case MaskEffect::kCombine:
      mask = are_masks(masks) ? any_of(masks) : "";
      break;
    case MaskEffect::kConcatenate:
      if (std::any_of(masks.begin(), masks.end(), [](const auto& m) { return !m.empty(); })) {
        std::replace(masks.begin(), masks.end(), std::string(), std::string(kAll));
        mask = joined(masks, layer.config.value("axis", Json(-1)));
      }
      break;
    default:
      break;
  }
}

std::string ImportedMasks::of_operation(const std::map<NodeKey, KerasNode>& nodes,
                                        const NodeKey& key, const CallOf& call_of) const {
  return OperationReader(nodes, call_of).mask_of(key);
}

}  // namespace meshtrain
