#include "nn/parts.h"

#include <algorithm>
#include <array>

#include "config/cells.h"

namespace meshtrain {

Shape CompositeLayer::build_part(Part& part, const ConfigObject& object,
                                 std::span<const Shape> inputs, LayerUse part_use,
                                 Diagnostics& diagnostics) {
  const bool is_new = part.layer == nullptr;
  if (is_new) {
    LayerConfig config;
    config.object = object;
    config.name.value = name + "/" + part.name;
    part.layer = make_layer(config, {dtype, variable_dtype});
    part.layer->trainable = part.layer->trainable && trainable;
    part.first_weight = static_cast<int>(weights.size());
  }
  part.layer->use = std::move(part_use);
  const Shape out = part.layer->build(inputs, diagnostics);
  if (is_new) {
    weights.insert(weights.end(), part.layer->weights.begin(), part.layer->weights.end());
  }
  return out;
}

bool CompositeLayer::takes_layer(const char* argument, const ConfigObject& layer,
                                 Diagnostics& diagnostics) const {
  bool ok = true;
  for (const char* own : {"inputs", "activity_regularizer"}) {
    if (layer.has(own)) {
      argument_error(diagnostics, argument, fmt::format("has `{}`", own))
          .help(fmt::format("write `{}` beside `{}`", own, argument));
      ok = false;
    }
  }
  const ConfigValue call = value_or_null(layer, "call");
  const bool is_called =
      call.is_dict() && std::any_of(call.dict().begin(), call.dict().end(),
                                    [](const auto& entry) { return !entry.second.is_null(); });
  if (is_called && is_recurrent_class(layer.class_name)) {
    argument_error(diagnostics, argument, "has `call`")
        .help(fmt::format("write `call` beside `{}`", argument));
    ok = false;
  }
  return ok;
}

bool CompositeLayer::is_whole_layer(const char* argument, Diagnostics& diagnostics) const {
  constexpr std::array<std::string_view, 6> kRefused = {"Input",  "Call",       "Repeat",
                                                        "Lambda", "MergeSteps", "SplitSteps"};
  const std::string& given = config_.arg(argument).object().class_name;
  if (std::find(kRefused.begin(), kRefused.end(), given) == kRefused.end() &&
      !is_cell_class(given)) {
    return true;
  }
  argument_error(diagnostics, argument, fmt::format("is {}, which is no layer of its own", given))
      .help("name a class of layers, such as `layer: {Dense: {units: 8}}`");
  return false;
}

ValueId CompositeLayer::call_part(CallContext& context, const Part& part,
                                  std::span<const ValueId> inputs, std::span<const ValueId> masks,
                                  std::vector<ValueId>* further) const {
  Builder& b = context.builder;
  const Layer& layer = *part.layer;
  const Builder::Scope scope = b.scope(part.name);
  CallContext own{.builder = b,
                  .training = context.training,
                  .step = context.step,
                  .seed = context.seed,
                  .compute_dtype = layer.dtype,
                  .masks = masks,
                  .add_loss = context.add_loss,
                  .head_tail = context.head_tail,
                  .generating = context.generating};
  const auto in_own_dtype = [&](ValueId value) {
    const bool cast = value != kNone && layer.casts_weights() && is_floating(b.dtype(value));
    return cast ? b.cast(value, layer.dtype) : value;
  };
  own.weight = [&](int index) { return in_own_dtype(context.weight(part.first_weight + index)); };
  if (context.factored) {
    own.factored = [&](int index) {
      const FactoredWeight whole = context.factored(part.first_weight + index);
      return FactoredWeight{in_own_dtype(whole.base), in_own_dtype(whole.a), in_own_dtype(whole.b),
                            whole.scale};
    };
  }
  own.update = [&](int index, ValueId value) { context.update(part.first_weight + index, value); };
  own.regularize = [](ValueId) {};
  own.pin = [](std::string_view, ValueId value) { return value; };
  own.also = [&](ValueId value) {
    if (further != nullptr) {
      further->push_back(value);
    }
  };
  std::vector<ValueId> arguments;
  for (const ValueId x : inputs) {
    const bool cast = layer.casts_inputs() && is_floating(b.dtype(x));
    arguments.push_back(cast ? b.cast(x, layer.dtype) : x);
  }
  return part.layer->call(own, arguments);
}

}  // namespace meshtrain
