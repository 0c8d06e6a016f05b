#include "interop/keras/call_nodes.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/cells.h"
#include "interop/keras/export_call.h"
#include "nn/masks.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

class NodeBuilder {
 public:
  explicit NodeBuilder(const Model& model) : model_(model) {
    std::map<int, int> of_layer;
    for (size_t i = 0; i < model.calls().size(); ++i) {
      const Model::Call& entry = model.calls()[i];
      if (entry.result_of != kNone) {
        out_.of_call.push_back(out_.of_call[entry.result_of]);
        mask_of_.push_back(entry.has_mask ? mask_of_[entry.result_of] : kNone);
        continue;
      }
      const auto call = static_cast<int>(i);
      const int next = static_cast<int>(out_.first_call.size());
      const int operation =
          entry.is_input ? next : of_layer.emplace(entry.layer, next).first->second;
      if (operation == next) {
        out_.first_call.push_back(call);
      }
      std::vector<CallStep> takes = entry.is_input ? std::vector<CallStep>() : steps_of(call);
      out_.of_call.push_back(add(operation, std::move(takes)));
      mask_of_.push_back(entry.is_input ? kNone : mask_after(call));
    }
  }

  CallNodes take() { return std::move(out_); }

 private:
  int add(int operation, std::vector<CallStep> takes) {
    out_.nodes.push_back({operation, std::move(takes)});
    return static_cast<int>(out_.nodes.size()) - 1;
  }
  int add_operation(std::vector<CallStep> takes) {
    out_.first_call.push_back(kNone);
    return add(static_cast<int>(out_.first_call.size()) - 1, std::move(takes));
  }

  const Layer& layer_of(int call) const { return *model_.layers()[model_.calls()[call].layer]; }

  // What a mask is made of: the result of `from` as the layer sees it. Under mixed precision Keras
  // casts that; the layer's own node has the result as it was before.
  CallStep cast_step(const Layer& layer, int from) const {
    const DType given = model_.calls()[from].dtype;
    const bool is_cast = layer.casts_inputs() && is_floating(given) && given != layer.dtype;
    return {out_.of_call[from], is_cast ? 2 : 1};
  }

  std::vector<CallStep> steps_of(int call) const {
    const Model::Call& entry = model_.calls()[call];
    const Layer& layer = layer_of(call);
    std::vector<CallStep> out;
    if (const TensorProgram* program = layer.program(); program != nullptr) {
      for (const UsedInput& used : used_inputs(*program)) {
        out.push_back({out_.of_call[entry.inputs[static_cast<size_t>(used.input)]], used.depth});
      }
      return out;
    }
    const CallArguments given = call_arguments(model_, call);
    std::vector<std::pair<std::string, int>> named = given.tensors;
    for (const std::vector<int>& states : given.initial_state) {
      for (const int state : states) {
        named.emplace_back("initial_state", state);
      }
    }
    std::stable_sort(named.begin(), named.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const int from : given.args) {
      out.push_back({out_.of_call[from]});
    }
    for (const auto& [name, from] : named) {
      out.push_back({out_.of_call[from]});
    }
    if (takes_mask(layer, entry) && mask_of_[entry.inputs[0]] != kNone) {
      out.push_back({mask_of_[entry.inputs[0]]});
    }
    return out;
  }

  // Whether the node of a call has the mask of its input. Keras adds it to the arguments, and keeps
  // these only where the layer is called with one tensor of its own dtype, and nothing beside it.
  bool takes_mask(const Layer& layer, const Model::Call& entry) const {
    static constexpr std::string_view kNames[] = {"BatchNormalization", "TimeDistributed",
                                                  "GlobalAveragePooling1D"};
    return entry.inputs.size() == 1 && model_.calls()[entry.inputs[0]].dtype == layer.dtype &&
           (is_one_of(layer.class_name, kNames) || is_recurrent_class(layer.class_name));
  }

  // The node of the mask that Keras' graph has of the call's result: compute_mask of the layer.
  int mask_after(int call) {
    const Model::Call& entry = model_.calls()[call];
    const Layer& layer = layer_of(call);
    std::vector<int> masks;
    for (const int input : entry.inputs) {
      masks.push_back(mask_of_[input]);
    }
    const bool all = std::find(masks.begin(), masks.end(), kNone) == masks.end();
    const bool any = std::any_of(masks.begin(), masks.end(), [](int m) { return m != kNone; });
    switch (layer.program() != nullptr ? MaskEffect::kDrop : mask_effect(layer.class_name)) {
      case MaskEffect::kProduce:
        return mask_made(call);
      case MaskEffect::kPass: {
        const size_t from = layer.masked_input();
        const int mask = from < masks.size() ? masks[from] : kNone;
        const bool is_converted =
            layer.class_name == "Attention" || layer.class_name == "AdditiveAttention";
        return mask != kNone && is_converted ? add_operation({{mask}}) : mask;
      }
      case MaskEffect::kSteps:
        return entry.has_mask ? masks[0] : kNone;
      case MaskEffect::kCombine: {
        int mask = all ? masks[0] : kNone;
        for (size_t i = 1; mask != kNone && i < masks.size(); ++i) {
          mask = add_operation({{mask}, {masks[i]}});  // LogicalOr
        }
        return mask;
      }
      case MaskEffect::kConcatenate:
        return any && entry.has_mask ? mask_joined(call, masks) : kNone;
      default:
        return kNone;
    }
  }

  // Embedding: NotEqual; Masking: Any of NotEqual. Others make their mask within the call.
  int mask_made(int call) {
    const Layer& layer = layer_of(call);
    if (!layer.makes_mask() || (layer.class_name != "Embedding" && layer.class_name != "Masking")) {
      return kNone;
    }
    const int unequal = add_operation({cast_step(layer, model_.calls()[call].inputs[0])});
    return layer.class_name == "Masking" ? add_operation({{unequal}}) : unequal;
  }

  // Concatenate: each mask made as wide as its input, or one of ones; joined; Any.
  int mask_joined(int call, const std::vector<int>& masks) {
    const Layer& layer = layer_of(call);
    std::vector<CallStep> parts;
    for (size_t i = 0; i < masks.size(); ++i) {
      const int like = add_operation({cast_step(layer, model_.calls()[call].inputs[i])});
      if (masks[i] == kNone) {
        parts.push_back({like});  // OnesLike
        continue;
      }
      const int expanded = add_operation({{masks[i]}});
      parts.push_back({add_operation({{expanded}, {like}})});  // LogicalOr with ZerosLike
    }
    return add_operation({{add_operation(std::move(parts))}});
  }

  const Model& model_;
  CallNodes out_;
  std::vector<int> mask_of_;  // call -> node, or kNone
};

}  // namespace

CallNodes call_nodes(const Model& model) {
  return NodeBuilder(model).take();
}

}  // namespace meshtrain
