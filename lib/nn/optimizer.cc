// What every optimizer shares: its members, slots and paths, and the loss scale. Source: Keras 3
// optimizers/multi_optimizer.py and loss_scale_optimizer.py.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "config/optimizer_members.h"
#include "mesh/layout_map.h"
#include "nn/arguments.h"
#include "nn/optimizer_rules.h"
#include "nn/schedules.h"

namespace meshtrain {
namespace {

constexpr size_t kScaleScalars = 3;  // steps tried, step_counter, dynamic_scale

std::string name_of(const ConfigObject& config) {
  return string_or(config, "name", to_snake_case(config.class_name));
}

}  // namespace

Optimizer::Optimizer(const ConfigObject& given) {
  const bool scales = given.class_name == "LossScaleOptimizer";
  const ConfigObject& config = scales ? given.arg("inner_optimizer").object() : given;
  if (scales) {
    scale_name_ = name_of(given);
    initial_scale_ = given.number("initial_scale");
    growth_steps_ = given.integer("dynamic_growth_steps");
  }
  name_ = name_of(config);
  if (config.has("loss_scale_factor")) {
    loss_factor_ = config.number("loss_scale_factor");
  }
  std::set<std::string> names;
  for (const OptimizerMember& member : optimizer_members(config)) {
    find_rule(*member.config);
    Member& added = members_.emplace_back();
    added.config = *member.config;
    added.key = member.key;
    added.pattern = std::make_shared<const Pattern>(member.key, member.loc);
    added.name = name_of(added.config);
    for (int n = 1; !names.insert(added.name).second; ++n) {  // as Keras counts them
      added.name = fmt::format("{}_{}", name_of(added.config), n);
    }
  }
}

// A key that is the path comes before the patterns; the first member has all others.
size_t Optimizer::member_of(std::string_view weight_path) const {
  size_t found = 0;
  for (size_t m = 1; m < members_.size(); ++m) {
    if (members_[m].key == weight_path) {
      return m;
    }
    if (members_[m].pattern->full_match(weight_path)) {
      found = m;
    }
  }
  return found;
}

std::vector<SlotSpec> Optimizer::slots(std::string_view weight_path, size_t rank) const {
  const ConfigObject& config = members_[member_of(weight_path)].config;
  std::vector<SlotSpec> slots;
  if (config.boolean("use_ema")) {
    slots.push_back({"average"});
  }
  if (accumulation_steps() > 1) {
    slots.push_back({"gradient_accumulator"});
  }
  for (SlotSpec& slot : find_rule(config).slots(config, {weight_path, rank})) {
    slots.push_back(std::move(slot));
  }
  return slots;
}

std::string Optimizer::slot_path(std::string_view weight_path, std::string_view slot) const {
  std::string reference(weight_path);
  std::replace(reference.begin(), reference.end(), '/', '_');
  return fmt::format("{}/{}_{}", members_[member_of(weight_path)].name, reference, slot);
}

std::vector<OptimizerScalar> Optimizer::scalars(DType dtype) const {
  std::vector<OptimizerScalar> out;
  if (scales_loss()) {
    out = {{scale_name_ + "/iteration", DType::kInt64, 0},
           {scale_name_ + "/step_counter", DType::kInt64, 0},
           {scale_name_ + "/dynamic_scale", dtype, initial_scale_}};
  }
  for (const Member& member : members_) {
    for (OptimizerScalar& scalar : scalars_of(member, dtype)) {
      out.push_back(std::move(scalar));
    }
  }
  return out;
}

std::vector<OptimizerScalar> Optimizer::scalars_of(const Member& member, DType dtype) {
  const OptimizerDef& rule = find_rule(member.config);
  std::vector<OptimizerScalar> out;
  if (rule.scalars != nullptr) {
    out = rule.scalars(member.config, dtype);
  }
  for (OptimizerScalar& scalar : out) {
    scalar.path = member.name + "/" + scalar.path;
  }
  return out;
}

double Optimizer::learning_rate(int64_t iteration, size_t member) const {
  const ConfigValue& rate = members_[member].config.arg("learning_rate");
  return rate.is_object() ? schedule_rate(rate.object(), iteration) : rate.number();
}

Shape Optimizer::rates_shape() const {
  return members_.size() == 1 ? Shape() : Shape{std::ssize(members_)};
}

bool Optimizer::has_schedule() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.config.arg("learning_rate").is_object();
  });
}

int64_t Optimizer::accumulation_steps() const {
  return meshtrain::accumulation_steps(members_[0].config);
}

bool Optimizer::uses_ema(std::string_view weight_path) const {
  return members_[member_of(weight_path)].config.boolean("use_ema");
}

const ConfigObject* Optimizer::whole_rule(std::string_view weight_path, size_t rank) const {
  const ConfigObject& config = members_[member_of(weight_path)].config;
  return depends_on_size(config, {weight_path, rank}) ? &config : nullptr;
}

ValueId Optimizer::scaled_loss(Builder& b, ValueId loss, std::span<const ValueId> scalars) const {
  if (scales_loss()) {
    return b.mul(loss, b.cast(scalars[kScaleScalars - 1], b.dtype(loss)));
  }
  return loss_factor_ ? b.mul(loss, *loss_factor_) : loss;
}

ValueId Optimizer::unscaled(Builder& b, ValueId value, std::span<const ValueId> scalars) const {
  if (scales_loss()) {
    return b.div(value, b.cast(scalars[kScaleScalars - 1], b.dtype(value)));
  }
  return loss_factor_ ? b.div(value, *loss_factor_) : value;
}

Optimizer::Result Optimizer::apply(Builder& builder, std::vector<WeightUpdate> weights, State state,
                                   ValueId rates, bool apply_now) const {
  const Builder::Scope scope = builder.scope(name_);
  if (scales_loss()) {
    return apply_if_finite(builder, std::move(weights), std::move(state), rates, apply_now);
  }
  for (WeightUpdate& weight : weights) {
    if (loss_factor_ && weight.grad != kNone) {
      weight.grad = builder.div(weight.grad, *loss_factor_);
    }
  }
  return apply_members(builder, weights, state, rates, apply_now);
}

// Each member on its own weights and scalars.
Optimizer::Result Optimizer::apply_members(Builder& b, const std::vector<WeightUpdate>& weights,
                                           const State& state, ValueId rates,
                                           bool apply_now) const {
  if (members_.size() == 1) {
    return apply_rule(b, members_[0].config, weights, state, rates, apply_now);
  }
  Result result;
  result.params.resize(weights.size());
  result.slots.resize(weights.size());
  std::vector<std::vector<size_t>> places_of(members_.size());
  for (size_t w = 0; w < weights.size(); ++w) {
    places_of[member_of(weights[w].path)].push_back(w);
  }
  auto scalar = state.scalars.begin();
  for (size_t m = 0; m < members_.size(); ++m) {
    const std::vector<size_t>& places = places_of[m];
    std::vector<WeightUpdate> own;
    for (const size_t w : places) {
      own.push_back(weights[w]);
    }
    const Builder::Scope scope = b.scope(members_[m].name);
    const auto place = static_cast<int64_t>(m);
    const ValueId rate = b.reshape(b.slice(rates, 0, place, place + 1), {});
    const auto end = scalar + std::ssize(scalars_of(members_[m], DType::kFloat32));
    const Result part =
        apply_rule(b, members_[m].config, own, {state.iteration, {scalar, end}}, rate, apply_now);
    scalar = end;
    for (size_t i = 0; i < places.size(); ++i) {
      result.params[places[i]] = part.params[i];
      result.slots[places[i]] = part.slots[i];
    }
    result.state.iteration = part.state.iteration;
    result.state.scalars.insert(result.state.scalars.end(), part.state.scalars.begin(),
                                part.state.scalars.end());
  }
  return result;
}

// The step on the gradients divided by the scale, or none at all. One non-finite element anywhere
// makes the sum of all elements times 0 a NaN, on every device alike.
Optimizer::Result Optimizer::apply_if_finite(Builder& b, std::vector<WeightUpdate> weights,
                                             State state, ValueId rates, bool apply_now) const {
  const ValueId tried = state.scalars[0], counter = state.scalars[1], scale = state.scalars[2];
  const DType dtype = b.dtype(scale);
  ValueId sum = b.constant(0, dtype);
  for (WeightUpdate& weight : weights) {
    if (weight.grad != kNone) {
      sum = b.add(sum, b.cast(b.reduce_sum_all(b.mul(weight.grad, 0.0)), dtype));
      weight.grad = b.div(weight.grad, b.cast(scale, b.dtype(weight.grad)));
    }
  }
  const ValueId is_finite = b.unary("is_finite", sum);
  const auto choose = [&](ValueId& fresh, ValueId old) {
    fresh = fresh == old ? old : b.select(is_finite, fresh, old);
  };
  State inner{state.iteration, {state.scalars.begin() + kScaleScalars, state.scalars.end()}};
  Result result = apply_members(b, weights, inner, rates, apply_now);
  for (size_t i = 0; i < weights.size(); ++i) {
    choose(result.params[i], weights[i].param);
    for (size_t s = 0; s < weights[i].slots.size(); ++s) {
      choose(result.slots[i][s], weights[i].slots[s]);
    }
  }
  choose(result.state.iteration, state.iteration);
  for (size_t s = 0; s < inner.scalars.size(); ++s) {
    choose(result.state.scalars[s], inner.scalars[s]);
  }
  const ValueId zero = b.constant(0, DType::kInt64), one = b.constant(1, DType::kInt64);
  const ValueId next = b.add(counter, one);
  const ValueId grows =
      b.binary("eq", next, b.constant(static_cast<double>(growth_steps_), DType::kInt64));
  const ValueId new_scale =
      b.select(is_finite, b.select(grows, b.mul(scale, 2.0), scale), b.mul(scale, 0.5));
  const ValueId new_counter = b.select(is_finite, b.select(grows, zero, next), zero);
  result.state.scalars.insert(result.state.scalars.begin(),
                              {b.add(tried, one), new_counter, new_scale});
  return result;
}

}  // namespace meshtrain
