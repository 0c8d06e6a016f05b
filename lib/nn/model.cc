#include "nn/model.h"

#include <algorithm>

#include "nn/layers.h"
#include "nn/lora.h"
#include "nn/masks.h"
#include "nn/regularizers.h"

namespace meshtrain {

const ConfigValue* LayerUse::call_argument(std::string_view name) const {
  if (arguments == nullptr || !arguments->has("call")) {
    return nullptr;
  }
  for (const auto& [key, value] : arguments->arg("call").dict()) {
    if (key == name) {
      return value.is_null() ? nullptr : &value;
    }
  }
  return nullptr;
}

bool LayerUse::call_flag(std::string_view name) const {
  const ConfigValue* value = call_argument(name);
  return value != nullptr && value->boolean();
}

int64_t Model::num_params(bool trainable_only) const {
  int64_t count = 0;
  for (const Weight* weight : weights_) {
    count += trainable_only && !weight->trainable ? 0 : num_elements(weight->shape);
  }
  return count;
}

std::vector<int> Model::factors_of() const {
  std::vector<int> out;
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const Weight& weight : layers_[i]->weights) {
      out.push_back(weight.factor_of == kNone ? kNone : first_weight_[i] + weight.factor_of);
    }
  }
  return out;
}

void Model::set_shards(std::span<const Shape> shards) {
  MESHTRAIN_CHECK(shards.size() == weights_.size(), "shards of {} weights for {}", shards.size(),
                  weights_.size());
  size_t next = 0;
  for (const auto& layer : layers_) {
    for (Weight& weight : layer->weights) {
      weight.shards = shards[next++];
    }
  }
}

// A layer keeps sizes of its inputs, which may be others in each call.
void Model::prepare(Layer& layer, const Call& call) const {
  layer.use = call.use;
  const auto is_of_layer = [&](const Call& other) { return other.layer == call.layer; };
  if (std::count_if(calls_.begin(), calls_.end(), is_of_layer) < 2) {
    return;
  }
  std::vector<Shape> shapes;
  for (const int input : call.inputs) {
    shapes.push_back(calls_[static_cast<size_t>(input)].output_shape);
  }
  Diagnostics reported;  // when the model was made
  layer.build(shapes, reported);
}

std::vector<ValueId> Model::apply(Builder& builder, std::span<const ValueId> inputs,
                                  std::span<const ValueId> parameters, bool training, ValueId step,
                                  int64_t seed,
                                  const std::function<ValueId(const std::string&, ValueId)>& pinned,
                                  std::vector<ValueId>* penalties, std::vector<ValueId>* updates,
                                  std::vector<ValueId>* masks, int64_t head_tail,
                                  bool generating) const {
  MESHTRAIN_CHECK(inputs.size() == inputs_.size(), "{} inputs for {}", inputs.size(),
                  inputs_.size());
  MESHTRAIN_CHECK(parameters.size() == weights_.size(), "{} parameters for {}", parameters.size(),
                  weights_.size());
  std::vector<ValueId> fresh(weights_.size(), kNone);  // given by update()
  std::vector<ValueId> results, result_masks;
  size_t next_input = 0;
  for (const Call& call : calls_) {
    if (call.is_input) {
      results.push_back(builder.cast(inputs[next_input++], call.dtype));
      result_masks.push_back(kNone);
      continue;
    }
    if (call.result_of != kNone) {  // computed with the call before it
      continue;
    }
    Layer& layer = *layers_[call.layer];
    const Builder::Scope scope = builder.scope(layer.name);
    CallContext context{.builder = builder,
                        .training = training,
                        .step = step,
                        .seed = seed,
                        .compute_dtype = layer.dtype,
                        .head_tail = head_tail,
                        .generating = generating};
    const int first = first_weight_[call.layer];
    const auto own_value = [&](const Layer& owner, int at) {
      const ValueId value = fresh[at] != kNone ? fresh[at] : builder.variable_use(parameters[at]);
      const bool cast = owner.casts_weights() && is_floating(builder.dtype(value));
      return cast ? builder.cast(value, layer.dtype) : value;
    };
    const auto factored = [&](const Layer& owner, int owners_first, int index) {
      const Lora& lora = owner.weights[static_cast<size_t>(index)].lora;
      FactoredWeight out{own_value(owner, owners_first + index)};
      if (lora.rank > 0) {
        out.a = own_value(owner, owners_first + lora.a);
        out.b = own_value(owner, owners_first + lora.b);
        out.scale = lora.scale();
      }
      return out;
    };
    context.factored = [&](int index) { return factored(layer, first, index); };
    context.weight = [&](int index) {
      return merged_weight(builder, factored(layer, first, index));
    };
    context.tied_weight = [&](int index) {
      return merged_weight(builder, factored(*layer.tied, first_weight_[layer.tied_index], index));
    };
    context.update = [&](int index, ValueId value) { fresh[first + index] = value; };
    const ConfigObject* config = layer.config();
    const bool penalized =
        penalties != nullptr && config != nullptr && config->has("activity_regularizer");
    context.regularize = [&](ValueId part) {
      if (penalized) {
        penalties->push_back(
            add_activity_penalty(builder, config->arg("activity_regularizer").object(), part));
      }
    };
    context.add_loss = [&](ValueId loss) {
      if (penalties != nullptr) {
        penalties->push_back(loss);
      }
    };
    context.pin = [&](std::string_view key, ValueId value) {
      return pinned ? pinned(fmt::format("{}/{}", layer.name, key), value) : value;
    };
    prepare(layer, call);
    std::vector<ValueId> arguments, input_masks;
    for (const int input : call.inputs) {
      input_masks.push_back(result_masks[input]);
      const ValueId x = results[input];
      const bool cast = layer.casts_inputs() && is_floating(builder.dtype(x));
      arguments.push_back(cast ? builder.cast(x, layer.dtype) : x);
    }
    context.masks = input_masks;
    std::vector<ValueId> further;
    context.also = [&](ValueId value) { further.push_back(value); };
    const ValueId result = layer.call(context, arguments);
    const ValueId mask = propagate_mask(layer, context, arguments, input_masks);
    result_masks.push_back(mask);
    if (layer.regularizes_output()) {
      context.regularize(result);
    }
    results.push_back(pinned ? pinned(layer.name + "/output", result) : result);
    MESHTRAIN_CHECK(further.size() == layer.further_shapes().size(), "{}", layer.name);
    for (size_t i = 0; i < further.size(); ++i) {
      if (layer.regularizes_output()) {
        context.regularize(further[i]);
      }
      results.push_back(further[i]);
      result_masks.push_back(shares_mask(layer, i) ? mask : kNone);
    }
  }
  if (updates != nullptr) {
    *updates = std::move(fresh);
  }
  std::vector<ValueId> outputs;
  for (const int output : outputs_) {
    outputs.push_back(results[output]);
    if (masks != nullptr) {
      masks->push_back(result_masks[output]);
    }
  }
  return outputs;
}

}  // namespace meshtrain
