// SparseMoE: a router and feed-forward networks, the experts, of which each step uses its top_k.
// Source: Keras Hub 0.32 models/mixtral/mixtral_decoder.py; dispatch by capacity as in D. Lepikhin
// et al., arXiv:2006.16668, section 2.2.
//
// Letters: b batch, t steps, e features, n experts, k those chosen, c places, f intermediate_dim.
// Without capacity_factor every expert computes every step, and the router's weights, 0 for experts
// that were not chosen, scale what it adds. With it an expert has c places for each sample, which
// the first steps that chose it take; einsums with 0 and 1 bring steps there and back. While text
// is generated, capacity_factor is left out: all steps go to their experts.
//
// Where experts are split over axes that also split the batch, steps move between devices. The pins
// of expert_pins() say where: before the experts the batch is split, within them the experts are.
#include <cmath>

#include "nn/activations.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/graph_parts.h"
#include "nn/layers.h"
#include "nn/masks.h"
#include "nn/random.h"

namespace meshtrain {
namespace {

class SparseMoE final : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics) || !check(inputs, diagnostics)) {
      return failed_shape();
    }
    const int64_t width = inputs[0].back(), inner = config_.integer("intermediate_dim");
    const ConfigValue& initializer = config_.arg("kernel_initializer");
    const auto add = [&](const char* path, Shape shape) {
      return Layer::add_weight(path, std::move(shape), variable_dtype,
                               make_initializer(initializer));
    };
    const auto add_expert = [&](const char* path, int64_t rows, int64_t columns) {
      const int index = add(path, {num_experts(), rows, columns});
      weights[static_cast<size_t>(index)].expert_dim = 0;
      return index;
    };
    router_ = add("sparse_feedforward_gate_dense/kernel", {width, num_experts()});
    gate_ = add_expert("experts/expert_feedforward_gate_dense", width, inner);
    intermediate_ = add_expert("experts/expert_feedforward_intermediate_dense", width, inner);
    output_ = add_expert("experts/expert_feedforward_output_dense", inner, width);
    return inputs[0];
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const bool is_flat = b.shape(inputs[0]).size() == 2;
    const ValueId x = with_jitter(context, is_flat ? b.expand_dims(inputs[0], 1) : inputs[0]);
    const bool is_dispatched = has_capacity() && !context.generating;
    if (is_dispatched) {
      check_order(context);
    }
    const ValueId mask = context.masks.empty() ? kNone : context.masks[0];
    const Routing routing = route(context, x);
    if (context.training && config_.number("router_aux_loss_coef") != 0) {
      context.add_loss(balance_loss(context, routing, mask));
    }
    const ValueId y = is_dispatched ? call_dispatched(context, x, routing, mask)
                                    : call_dense(context, x, routing);
    return is_flat ? b.squeeze(y, 1) : y;
  }

  std::vector<ExpertPin> expert_pins() const override {
    if (!has_capacity()) {
      return {{kWeights, 3, 0}, {kHidden, 4, 0, 2}};
    }
    return {{kWeights, 3, 0},
            {kHidden, 4, 0, 2},  // kHidden: while text is generated
            {kPlaces, 4, 0},
            {kSent, 4, 1, kNone, true},
            {kInputs, 4, 1, 0},
            {kOutputs, 4, 1, 0},
            {kReturned, 4, 1, kNone, true}};
  }

 private:
  static constexpr const char* kWeights = "experts/weights";    // btn
  static constexpr const char* kHidden = "experts/hidden";      // btnf
  static constexpr const char* kPlaces = "experts/places";      // btnc
  static constexpr const char* kSent = "experts/sent";          // nbce, as the batch is split
  static constexpr const char* kInputs = "experts/inputs";      // nbce, as the experts are
  static constexpr const char* kOutputs = "experts/outputs";    // likewise
  static constexpr const char* kReturned = "experts/returned";  // as kSent

  struct Routing {
    ValueId probabilities, chosen;  // btn, at least float32; chosen is 0 or 1
  };

  int64_t num_experts() const { return config_.integer("num_experts"); }
  int64_t top_k() const { return config_.integer("top_k"); }
  bool has_capacity() const { return config_.has("capacity_factor"); }

  // Steps of a sample that an expert takes; no step chooses an expert twice.
  int64_t capacity(int64_t steps) const {
    const double share = config_.number("capacity_factor") * static_cast<double>(steps * top_k()) /
                         static_cast<double>(num_experts());
    return std::max<int64_t>(
        1, static_cast<int64_t>(std::ceil(std::min(share, static_cast<double>(steps)))));
  }

  bool check(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    const Shape& x = inputs[0];
    if ((x.size() != 2 && x.size() != 3) || x.back() == kUnknownDim ||
        (x.size() == 3 && x[1] == kUnknownDim)) {
      shape_error(diagnostics, inputs,
                  "it takes (batch, steps, features) or (batch, features) of known sizes")
          .help("put it behind an Embedding, or reshape its input");
      return false;
    }
    if (has_capacity() && x.size() == 2) {
      shape_error(diagnostics, inputs, "`capacity_factor` counts the steps of a sample")
          .help("leave `capacity_factor` out, or reshape the input to (batch, steps, features)");
      return false;
    }
    if (top_k() > num_experts()) {
      argument_error(diagnostics, "top_k",
                     fmt::format("is {}, more than `num_experts`, {}", top_k(), num_experts()))
          .help(fmt::format("write at most {}, or a larger `num_experts`", num_experts()));
      return false;
    }
    const Shape inner = {x[0], config_.integer("intermediate_dim")};
    const Shape activated = activated_shape(inputs, inner, diagnostics);
    if (is_failed(activated)) {
      return false;
    }
    if (activated != inner) {
      argument_error(diagnostics, "activation", "changes the number of features")
          .help("write one that works element by element, such as silu");
      return false;
    }
    return true;
  }

  // Mixtral's noise: random factors of what router and experts read in training.
  ValueId with_jitter(CallContext& context, ValueId x) const {
    const double noise = config_.number("router_jitter_noise");
    if (!context.training || noise == 0) {
      return x;
    }
    Builder& b = context.builder;
    const Builder::Scope scope = b.scope("router_jitter");
    return b.mul(x, random_uniform(context, b.shape(x), seed(context), 1 - noise, 1 + noise));
  }

  void check_order(const CallContext& context) const {
    Diagnostics diagnostics;
    if (context.head_tail > 1) {
      argument_error(diagnostics, "capacity_factor",
                     fmt::format("gives the places of an expert to the first steps, and "
                                 "`data.head_tail: {}` changes the order of steps",
                                 context.head_tail))
          .help("leave `head_tail` out: context parallelism is right without it");
    }
    diagnostics.throw_if_errors();
  }

  // The choice itself has no gradient, so that the sum over the chosen has the router's.
  Routing route(CallContext& context, ValueId x) const {
    Builder& b = context.builder;
    const Builder::Scope scope = b.scope("router");
    const ValueId logits = b.einsum("bte,en->btn", {x, context.weight(router_)});
    const ValueId probabilities = softmax(b, to_float32(context, logits), {2});
    const ValueId ids = b.top_k(probabilities, top_k())[1];
    const ValueId places = b.one_hot(ids, num_experts(), b.dtype(probabilities));
    return {probabilities, b.reduce_sum(places, {2})};
  }

  // btn: the probabilities of the chosen experts over their sum; 0 for the others.
  ValueId weights_of(CallContext& context, const Routing& routing) const {
    Builder& b = context.builder;
    ValueId shares = routing.chosen;
    if (top_k() > 1) {  // else each is its own sum
      const ValueId kept = b.mul(routing.probabilities, routing.chosen);
      shares = b.div(kept, b.reduce_sum(kept, {2}, true));
    }
    return context.pin(kWeights, to_compute(context, shares));
  }

  // n times the sum over experts of the share of choices times the mean probability: 1 where all
  // experts get alike. One sum over all steps, so that it takes one collective.
  ValueId balance_loss(CallContext& context, const Routing& routing, ValueId mask) const {
    Builder& b = context.builder;
    const Builder::Scope scope = b.scope("balance");
    const DType wide = b.dtype(routing.chosen);
    const Shape shape = b.shape(routing.chosen);
    ValueId count = b.constant(static_cast<double>(shape[0] * shape[1]), wide);
    std::vector<ValueId> rows = {b.expand_dims(routing.chosen, 2),
                                 b.expand_dims(routing.probabilities, 2)};
    if (mask != kNone) {
      const ValueId valid = b.reshape(b.cast(mask, wide), {shape[0], shape[1], 1, 1});
      rows[0] = b.mul(rows[0], valid);
      rows[1] = b.mul(rows[1], valid);
      rows.push_back(b.broadcast_to(valid, {shape[0], shape[1], 1, num_experts()}));
    }
    const ValueId sums = b.reduce_sum(b.concat(rows, 2), {0, 1});
    const auto row = [&](int64_t i) { return b.slice(sums, 0, i, i + 1); };
    if (mask != kNone) {
      count = b.maximum(row(2), 1e-9);  // a batch without a valid step adds nothing
    }
    const ValueId share = b.mul(b.div(row(0), count), 1 / static_cast<double>(top_k()));
    const ValueId loss = b.reduce_sum_all(b.mul(share, b.div(row(1), count)));
    return b.mul(loss, static_cast<double>(num_experts()) * config_.number("router_aux_loss_coef"));
  }

  // act(x * gate) * (x * intermediate) of each expert.
  ValueId hidden(CallContext& context, ValueId x, const char* equation) const {
    Builder& b = context.builder;
    const ValueId gate = to_float32(context, b.einsum(equation, {x, context.weight(gate_)}));
    const ValueId factor = to_compute(context, add_activation(b, config_.arg("activation"), gate));
    return b.mul(factor, b.einsum(equation, {x, context.weight(intermediate_)}));
  }

  // The weights scale the hidden values: the sum over experts is part of the last product then.
  ValueId call_dense(CallContext& context, ValueId x, const Routing& routing) const {
    Builder& b = context.builder;
    const ValueId shares = weights_of(context, routing);
    const Builder::Scope scope = b.scope("experts");
    const ValueId h = context.pin(kHidden, hidden(context, x, "bte,nef->btnf"));
    return b.einsum("btnf,nfe->bte", {b.mul(h, b.expand_dims(shares, 3)), context.weight(output_)});
  }

  ValueId call_dispatched(CallContext& context, ValueId x, const Routing& routing,
                          ValueId mask) const {
    Builder& b = context.builder;
    const ValueId shares = weights_of(context, routing);
    const ValueId places = context.pin(kPlaces, places_of(context, routing, mask));
    const Builder::Scope scope = b.scope("experts");
    ValueId sent = b.einsum("btnc,bte->nbce", {places, x});
    sent = context.pin(kInputs, context.pin(kSent, sent));
    const ValueId h = hidden(context, sent, "nbce,nef->nbcf");
    ValueId y = b.einsum("nbcf,nfe->nbce", {h, context.weight(output_)});
    y = context.pin(kReturned, context.pin(kOutputs, y));
    const ValueId weight = b.einsum("btnc,btn->nbc", {places, shares});
    return b.einsum("btnc,nbce->bte", {places, b.mul(y, b.expand_dims(weight, 3))});
  }

  // btnc: 1 at the place of each step at an expert. Steps count in their order; one behind the last
  // place, or one that the mask leaves out, has none.
  ValueId places_of(CallContext& context, const Routing& routing, ValueId mask) const {
    Builder& b = context.builder;
    const Builder::Scope scope = b.scope("router");
    const ValueId chosen = mask == kNone
                               ? routing.chosen
                               : b.mul(routing.chosen, mask_beside(b, mask, routing.chosen));
    const ValueId place = b.sub(b.mul(b.cumsum(chosen, 1), chosen), 1.0);
    const int64_t steps = b.shape(chosen)[1];
    return b.one_hot(b.cast(place, DType::kInt32), capacity(steps), context.compute_dtype);
  }

  int router_ = kNone, gate_ = kNone, intermediate_ = kNone, output_ = kNone;
};

}  // namespace

std::vector<LayerEntry> mixture_layers() {
  return {{"SparseMoE", make_as<SparseMoE>}};
}

}  // namespace meshtrain
