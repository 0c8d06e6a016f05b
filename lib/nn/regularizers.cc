#include "nn/regularizers.h"

#include <algorithm>

#include "nn/arguments.h"
#include "nn/graph_parts.h"

namespace meshtrain {
namespace {

// factor times the mean |cosine| of two different rows (or columns) of a matrix.
ValueId orthogonal_penalty(Builder& b, const ConfigObject& config, ValueId w) {
  const bool rows = config.string("mode") == "rows";
  const ValueId unit = l2_normalized(b, w, rows ? 1 : 0);
  const ValueId products = b.einsum(rows ? "ik,jk->ij" : "ki,kj->ij", {unit, unit});
  const Shape shape = b.shape(products);
  const ValueId differ =
      b.binary("ne", b.iota(shape, 0, DType::kInt32), b.iota(shape, 1, DType::kInt32));
  const auto size = static_cast<double>(shape[0]);
  const double pairs = std::max(1.0, size * (size - 1) / 2);  // of one row there are none
  const ValueId sum = b.reduce_sum_all(b.unary("abs", b.mul(products, b.cast(differ, b.dtype(w)))));
  return b.mul(sum, config.number("factor") * 0.5 / pairs);
}

}  // namespace

ValueId add_penalty(Builder& b, const ConfigObject& config, ValueId weight) {
  if (config.class_name == "OrthogonalRegularizer") {
    return orthogonal_penalty(b, config, weight);
  }
  ValueId penalty = kNone;
  const auto add_term = [&](const char* factor, const char* function) {
    if (number_or(config, factor, 0) != 0) {
      const ValueId sum = b.reduce_sum_all(b.unary(function, weight));
      const ValueId term = b.mul(sum, config.number(factor));
      penalty = penalty == kNone ? term : b.add(penalty, term);
    }
  };
  add_term("l1", "abs");
  add_term("l2", "square");
  return penalty == kNone ? b.constant(0, b.dtype(weight)) : penalty;
}

ValueId add_activity_penalty(Builder& b, const ConfigObject& config, ValueId output) {
  const Builder::Scope scope = b.scope("activity_regularizer");
  return b.mul(add_penalty(b, config, output), 1 / static_cast<double>(b.shape(output)[0]));
}

ValueId add_constraint(Builder& b, const ConfigObject& config, ValueId weight) {
  if (config.class_name == "NonNeg") {
    return b.maximum(weight, 0.0);
  }
  std::vector<int64_t> axes = integers_of(config.arg("axis"));
  for (int64_t& axis : axes) {
    axis = axis_in(axis, b.shape(weight).size()).value();
  }
  const ValueId norm = b.sqrt(b.reduce_sum(b.square(weight), std::move(axes), true));
  const ValueId divisor = b.add(norm, kEpsilon);
  if (config.class_name == "UnitNorm") {
    return b.div(weight, divisor);
  }
  if (config.class_name == "MaxNorm") {
    return b.mul(weight, b.div(b.clamp(norm, 0, config.number("max_value")), divisor));
  }
  MESHTRAIN_CHECK(config.class_name == "MinMaxNorm", "no constraint {}", config.class_name);
  const double rate = config.number("rate");
  const ValueId inside = b.clamp(norm, config.number("min_value"), config.number("max_value"));
  const ValueId wanted = b.add(b.mul(inside, rate), b.mul(norm, 1 - rate));
  return b.mul(weight, b.div(wanted, divisor));
}

void check_regularizer(const ConfigObject& config, std::string_view weight, const Shape& shape,
                       Diagnostics& diagnostics) {
  if (config.class_name == "OrthogonalRegularizer" && shape.size() != 2) {
    diagnostics
        .error("E113", config.loc,
               fmt::format("OrthogonalRegularizer takes a matrix; {} has shape {}", weight,
                           shape_string(shape)))
        .help("use it on the kernel of a Dense layer");
  }
}

void check_constraint(const ConfigObject& config, std::string_view weight, const Shape& shape,
                      Diagnostics& diagnostics) {
  if (config.has("axis")) {
    const auto rank = static_cast<int64_t>(shape.size());
    for (const int64_t axis : integers_of(config.arg("axis"))) {
      if (!axis_in(axis, shape.size())) {
        diagnostics
            .error("E113", config.loc_of("axis"),
                   fmt::format("`axis` {} of {} is outside of {}, which has shape {}", axis,
                               config.class_name, weight, shape_string(shape)))
            .help(rank == 0 ? "leave the constraint out"
                            : fmt::format("write axes from {} to {}", -rank, rank - 1));
      }
    }
  }
  if (config.class_name == "MinMaxNorm" &&
      config.number("min_value") > config.number("max_value")) {
    diagnostics
        .error("E113", config.loc_of("min_value"),
               fmt::format("`min_value` {} of MinMaxNorm is above its `max_value` {}",
                           config.number("min_value"), config.number("max_value")))
        .help("exchange them, or write one number for both");
  }
}

}  // namespace meshtrain
