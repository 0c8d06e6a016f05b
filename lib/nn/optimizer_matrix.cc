// Rules that look at a weight as a whole: Lamb, Adafactor, Muon. Their norms, means and products
// are those of the global tensors, however these are split.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "mesh/layout_map.h"
#include "nn/arguments.h"
#include "nn/optimizer_rules.h"

namespace meshtrain {
namespace {

using Values = std::vector<ValueId>;

ValueId norm(Builder& b, ValueId x) {
  return b.sqrt(b.reduce_sum_all(b.square(x)));
}

// The root of the mean square.
ValueId rms(Builder& b, ValueId x) {
  const auto count = static_cast<double>(num_elements(b.shape(x)));
  return b.sqrt(b.mul(b.reduce_sum_all(b.square(x)), 1 / count));
}

// You et al. 2019: Adam's direction, as long as the weight is large.
Values lamb(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const DType dtype = b.dtype(w.param);
  const double beta_1 = step.number("beta_1"), beta_2 = step.number("beta_2");
  const ValueId param = decayed(step, w);
  const ValueId m = step.towards(w.slots[0], w.grad, 1 - beta_1);
  const ValueId v = step.towards(w.slots[1], b.square(w.grad), 1 - beta_2);
  const ValueId root = step.unbiased_root(v, beta_2);
  const ValueId change = b.div(b.div(m, step.rest(beta_1, dtype)), root);
  const ValueId param_norm = norm(b, param), change_norm = norm(b, change);
  const ValueId both = b.binary("logical_and", b.binary("gt", param_norm, b.constant(0, dtype)),
                                b.binary("gt", change_norm, b.constant(0, dtype)));
  const ValueId ratio = b.select(both, b.div(param_norm, change_norm), b.constant(1, dtype));
  return {b.sub(param, b.mul(change, b.mul(ratio, step.rate(dtype)))), m, v};
}

// Keras also stores the velocity of matrices, which follows from row and column at every step.
std::vector<SlotSpec> adafactor_slots(const ConfigObject&, const WeightKind& weight) {
  const int rank = static_cast<int>(weight.rank);
  if (rank < 2) {
    return {{"velocity"}};
  }
  return {{.name = "row", .factored_dim = rank - 1}, {.name = "column", .factored_dim = rank - 2}};
}

// Shazeer and Stern 2018: the mean square of a matrix from those of its rows and columns.
Values adafactor(RuleStep& step, const RuleWeight& w) {
  Builder& b = step.b;
  const DType dtype = b.dtype(w.param);
  const int64_t rank = static_cast<int64_t>(b.shape(w.param).size());
  const ValueId one = b.constant(1, dtype);
  const ValueId kept = step.shared("adafactor kept", dtype, [&] {
    const ValueId decay = b.constant(step.number("beta_2_decay"), dtype);
    return b.sub(one, b.binary("pow", step.t(dtype), decay));
  });
  const ValueId added = step.shared("adafactor added", dtype, [&] { return b.sub(one, kept); });
  const ValueId rho = step.shared("adafactor rho", dtype, [&] {
    // min(min(rate, 1 / sqrt(t)), 1 / sqrt(t)), with or without `relative_step`.
    return b.minimum(step.rate(dtype), b.unary("rsqrt", step.t(dtype)));
  });
  const auto running = [&](ValueId old, ValueId fresh) {
    return b.add(b.mul(old, kept), b.mul(fresh, added));
  };
  const ValueId square = b.add(b.square(w.grad), step.number("epsilon_1"));
  Values slots;
  ValueId velocity = kNone;
  if (rank < 2) {
    velocity = running(w.slots[0], square);
    slots = {velocity};
  } else {
    const ValueId row = running(w.slots[0], b.reduce_mean(square, {rank - 1}));
    const ValueId column = running(w.slots[1], b.reduce_mean(square, {rank - 2}));
    const ValueId share = b.div(row, b.reduce_mean(row, {rank - 2}, true));
    velocity = b.mul(b.expand_dims(share, static_cast<int>(rank - 1)),
                     b.expand_dims(column, static_cast<int>(rank - 2)));
    slots = {row, column};
  }
  const ValueId param = decayed(step, w);
  const ValueId change = b.div(w.grad, b.sqrt(velocity));
  const ValueId alpha = b.mul(b.maximum(rms(b, param), step.number("epsilon_2")), rho);
  const ValueId clip = b.maximum(b.mul(rms(b, change), 1 / step.number("clip_threshold")), 1.0);
  Values out = {b.sub(param, b.mul(change, b.div(alpha, clip)))};
  out.insert(out.end(), slots.begin(), slots.end());
  return out;
}

// Whether Muon leaves the weight to Adam.
bool is_left_to_adam(const ConfigObject& config, const WeightKind& weight) {
  if (weight.rank != 2) {
    return true;
  }
  const bool embedding = to_lower(weight.path).find("embedding") != std::string::npos;
  if (embedding && config.boolean("exclude_embeddings")) {
    return true;
  }
  const ConfigValue& patterns = value_or_null(config, "exclude_layers");
  return patterns.is_list() &&
         std::any_of(patterns.list().begin(), patterns.list().end(), [&](const ConfigValue& p) {
           return Pattern(p.string(), p.loc).search(weight.path);
         });
}

std::vector<SlotSpec> muon_slots(const ConfigObject& config, const WeightKind& weight) {
  return is_left_to_adam(config, weight) ? moment_slots(config, weight)
                                         : std::vector<SlotSpec>{{"momentum"}};
}

const char* muon_decay(const ConfigObject& config, const WeightKind& weight) {
  return is_left_to_adam(config, weight) ? "adam_weight_decay" : "weight_decay";
}

// Steps of Newton and Schulz towards the orthogonal matrix nearest to x: a x + b (x x') x +
// c (x x')^2 x, on the side where x x' is the smaller.
ValueId orthogonalized(RuleStep& step, ValueId x) {
  Builder& b = step.b;
  const bool is_tall = b.shape(x)[0] > b.shape(x)[1];
  const std::string_view square = is_tall ? "ki,kj->ij" : "ik,jk->ij";
  const std::string_view product = is_tall ? "kj,ji->ki" : "ij,jk->ik";
  x = b.div(x, b.add(norm(b, x), 1e-7));
  for (int64_t i = 0; i < step.config.integer("ns_steps"); ++i) {
    const ValueId xx = b.einsum(square, {x, x});
    const ValueId xxxx = b.einsum("ij,jk->ik", {xx, xx});
    const ValueId mix = b.add(b.mul(xx, step.number("muon_b")), b.mul(xxxx, step.number("muon_c")));
    const ValueId turned = is_tall ? b.einsum(product, {x, mix}) : b.einsum(product, {mix, x});
    x = b.add(b.mul(x, step.number("muon_a")), turned);
  }
  return x;
}

// Jordan et al. 2024; the factor on the rate is that of Liu et al. 2025 (Moonlight).
Values muon(RuleStep& step, const RuleWeight& w) {
  if (w.slots.size() == 2) {
    return adam_update(step, w, step.number("adam_beta_1"), step.number("adam_beta_2"),
                       step.number("adam_lr_ratio"), false);
  }
  Builder& b = step.b;
  const double momentum = step.number("momentum");
  const ValueId m = b.add(b.mul(w.slots[0], momentum), w.grad);
  const ValueId direction = step.config.boolean("nesterov") ? b.add(w.grad, b.mul(m, momentum)) : m;
  ValueId change = b.mul(orthogonalized(step, direction), step.rate(b.dtype(w.param)));
  if (step.config.has("rms_rate")) {
    const Shape& shape = b.shape(w.param);
    const auto longest = static_cast<double>(std::max(shape[0], shape[1]));
    change = b.mul(change, std::sqrt(longest) * step.number("rms_rate"));
  }
  return {b.sub(decayed(step, w), change), m};
}

}  // namespace

bool depends_on_size(const ConfigObject& config, const WeightKind& weight) {
  return config.class_name == "Adafactor" ||
         (config.class_name == "Muon" && !is_left_to_adam(config, weight));
}

std::vector<OptimizerDef> matrix_rules() {
  return {{"Lamb", moment_slots, lamb},
          {"Adafactor", adafactor_slots, adafactor},
          {"Muon", muon_slots, muon, muon_decay}};
}

}  // namespace meshtrain
