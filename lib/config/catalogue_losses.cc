// Losses: keras-semantics 8.2; Keras 3 keras/src/losses/losses.py.
#include "config/catalogue_args.h"

namespace meshtrain {
namespace {

using Args = std::vector<Spec>;

ClassSpec loss(std::string name, std::string help, Args args, std::vector<std::string> aliases) {
  args.push_back(choice("reduction",
                        {"sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none"},
                        "sum_over_batch_size", "how the values of the samples become one")
                     .nullable());
  args.push_back(own_name());
  args.push_back(own_dtype());
  return make_class(std::move(name), std::move(help), std::move(args), std::move(aliases));
}

}  // namespace

std::vector<ClassSpec> loss_classes() {
  return {
      loss("MeanSquaredError", "mean (y - p)^2", {}, {"mse", "MSE"}),
      loss("MeanAbsoluteError", "mean |y - p|", {}, {"mae", "MAE"}),
      loss("Huber", "quadratic near 0, linear beyond delta",
           {number("delta", "1.0", "where it becomes linear").above(0)}, {}),
      loss("BinaryCrossentropy", "for independent yes/no targets",
           {from_logits(), label_smoothing(), class_axis()}, {"bce", "BCE"}),
      loss("CategoricalCrossentropy", "for one-hot targets",
           {from_logits(), label_smoothing(), class_axis()}, {}),
      loss("SparseCategoricalCrossentropy", "for integer targets",
           {from_logits(), integer("ignore_class", "null", "target that does not count"),
            class_axis()},
           {}),
  };
}

}  // namespace meshtrain
