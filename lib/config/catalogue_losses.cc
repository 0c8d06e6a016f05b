// Losses: Keras 3 keras/src/losses/losses.py.
#include "config/catalogue_args.h"

namespace meshtrain {
namespace {

Spec reduction() {
  return choice("reduction",
                {"sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none"},
                "sum_over_batch_size", "how the values of the samples become one")
      .nullable();
}

// Arguments of one kind stand before `reduction`, as in Keras' constructors.
ClassSpec loss(std::string name, std::string help, Args args,
               std::vector<std::string> aliases = {}) {
  args.push_back(reduction());
  args.push_back(own_name());
  args.push_back(own_dtype());
  return make_class(std::move(name), std::move(help), std::move(args), std::move(aliases));
}

Spec gamma() {
  return number("gamma", "2.0", "how much easy samples count less").least(0);
}
Spec alpha(const char* default_text, const char* help) {
  return number("alpha", default_text, help).least(0);
}
Spec summed_axes() {
  return make_spec("axis", ValueKind::kIntOrList, "null", "axes summed over; null = all");
}

std::vector<ClassSpec> regression() {
  return {
      loss("Lambda", "an expression of y_true and y_pred: one value per sample", with_function({})),
      loss("MeanSquaredError", "mean (y - p)^2", {}, {"mse", "MSE"}),
      loss("MeanAbsoluteError", "mean |y - p|", {}, {"mae", "MAE"}),
      loss("MeanAbsolutePercentageError", "100 mean |(y - p) / y|", {}, {"mape", "MAPE"}),
      loss("MeanSquaredLogarithmicError", "mean (ln(1 + y) - ln(1 + p))^2", {}, {"msle", "MSLE"}),
      loss("Huber", "quadratic near 0, linear beyond delta",
           {number("delta", "1.0", "where it becomes linear").above(0)}),
      loss("LogCosh", "mean ln cosh(p - y)", {}),
      loss("CosineSimilarity", "minus the cosine of the angle between target and output",
           {integer("axis", "-1", "axis of the vectors")}),
      loss("Poisson", "mean p - y ln p", {}),
      loss("KLDivergence", "sum y ln(y / p)", {}, {"kld", "KLD"}),
      loss("Hinge", "mean max(1 - y p, 0), targets -1 and 1 or 0 and 1", {}),
      loss("SquaredHinge", "mean max(1 - y p, 0)^2", {}),
      loss("CategoricalHinge", "max(1 + largest wrong - right, 0), one-hot targets", {}),
  };
}

std::vector<ClassSpec> crossentropies() {
  return {
      make_class("crossentropy", "the crossentropy that fits the shapes of target and output", {},
                 {"ce"}),
      loss("BinaryCrossentropy", "for independent yes/no targets",
           {from_logits(), label_smoothing(), class_axis()}, {"bce", "BCE"}),
      loss("BinaryFocalCrossentropy", "binary cross-entropy, easy samples count less",
           {boolean("apply_class_balancing", "false", "weigh yes by alpha, no by 1 - alpha"),
            alpha("0.25", "weight of yes").most(1), gamma(), from_logits(), label_smoothing(),
            class_axis()}),
      loss("CategoricalCrossentropy", "for one-hot targets",
           {from_logits(), label_smoothing(), class_axis()}),
      loss("CategoricalFocalCrossentropy", "for one-hot targets, easy samples count less",
           {make_spec("alpha", ValueKind::kFloatOrList, "0.25",
                      "factor on the loss; a list has one for each class")
                .least(0),
            gamma(), from_logits(), label_smoothing(), class_axis()}),
      // `axis` stands after `reduction` in Keras.
      make_class("SparseCategoricalCrossentropy", "for integer targets",
                 {from_logits(), integer("ignore_class", "null", "target that does not count"),
                  reduction(), class_axis(), own_name(), own_dtype()}),
      loss("CategoricalGeneralizedCrossEntropy", "for integer targets of which some are wrong",
           {number("q", "0.5", "0 = cross-entropy, 1 = absolute error").above(0).below(1)}),
  };
}

std::vector<ClassSpec> others() {
  return {
      make_class("Dice", "1 - overlap of the regions of target and output",
                 {reduction(), own_name(), summed_axes(), own_dtype()}),
      make_class("Tversky", "as Dice, misses and false alarms weighed apart",
                 {alpha("0.5", "weight of false alarms"),
                  number("beta", "0.5", "weight of misses").least(0), reduction(), own_name(),
                  summed_axes(), own_dtype()}),
      loss("Circle", "pulls embeddings of one label together, integer targets",
           {number("gamma", "80.0", "scale").above(0),
            number("margin", "0.4", "distance that is good enough").least(0).most(1),
            boolean("remove_diagonal", "true", "a sample is no pair with itself")}),
      loss("CTC", "labels of a sequence without their places, from logits", {}),
  };
}

}  // namespace

std::vector<ClassSpec> loss_classes() {
  std::vector<ClassSpec> all = regression();
  for (auto family : {crossentropies, others}) {
    for (ClassSpec& spec : family()) {
      all.push_back(std::move(spec));
    }
  }
  return all;
}

}  // namespace meshtrain
