// Regularizers and constraints: Keras 3 regularizers.py, constraints.py.
#include "config/catalogue_args.h"

namespace meshtrain {
namespace {

Spec factor(const char* name, const char* default_text, const char* help) {
  return number(name, default_text, help).least(0);
}
Spec norm_axis() {
  return make_spec("axis", ValueKind::kIntOrList, "0",
                   "axis, or list of axes, of the norm; 0: each output unit of a Dense kernel");
}

}  // namespace

std::vector<ClassSpec> regularizer_classes() {
  return {
      make_class("L1", "l1 sum |w|", {factor("l1", "0.01", "factor on the sum")}),
      make_class("L2", "l2 sum w^2", {factor("l2", "0.01", "factor on the sum of squares")}),
      make_class("L1L2", "l1 sum |w| + l2 sum w^2",
                 {factor("l1", "0.0", "factor on the sum"),
                  factor("l2", "0.0", "factor on the sum of squares")},
                 {"l1l2"}),
      make_class("OrthogonalRegularizer", "rows or columns of a matrix towards a right angle",
                 {factor("factor", "0.01", "factor on the mean |cosine| of two of them"),
                  choice("mode", {"rows", "columns"}, "rows", "which of them")}),
  };
}

std::vector<ClassSpec> constraint_classes() {
  return {
      make_class("MaxNorm", "norms at most max_value",
                 {factor("max_value", "2", "largest norm"), norm_axis()}),
      make_class("NonNeg", "no negative elements", {}),
      make_class("UnitNorm", "norms of 1", {norm_axis()}),
      make_class(
          "MinMaxNorm", "norms from min_value to max_value",
          {factor("min_value", "0.0", "smallest norm"), factor("max_value", "1.0", "largest norm"),
           number("rate", "1.0", "part of the way to go at each step").least(0).most(1),
           norm_axis()}),
  };
}

}  // namespace meshtrain
