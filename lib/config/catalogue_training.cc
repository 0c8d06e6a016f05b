// Losses, metrics, optimizers and schedules: keras-semantics 7.1, 7.2, 7.4, 8.2, 9.2.
#include "config/catalogue.h"

namespace meshtrain {
namespace {

using Args = std::vector<Spec>;

ClassSpec make_class(std::string name, std::string help, Args args,
                     std::vector<std::string> aliases = {}) {
  ClassSpec spec;
  spec.name = std::move(name);
  spec.help = std::move(help);
  spec.args = std::move(args);
  spec.aliases = std::move(aliases);
  return spec;
}

Spec own_name() {
  return text("name", "null", "name in the logs");
}
Spec own_dtype() {
  return choice("dtype", {"float32", "float64"}, "null", "type it is computed in");
}
Spec from_logits() {
  return boolean("from_logits", "false", "predictions are logits, not probabilities");
}
Spec label_smoothing() {
  return number("label_smoothing", "0.0", "how far targets move towards uniform").least(0).most(1);
}
Spec class_axis() {
  return integer("axis", "-1", "axis of the classes");
}

ClassSpec loss(std::string name, std::string help, Args args, std::vector<std::string> aliases) {
  args.push_back(choice("reduction",
                        {"sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none"},
                        "sum_over_batch_size", "how the values of the samples become one")
                     .nullable());
  args.push_back(own_name());
  args.push_back(own_dtype());
  return make_class(std::move(name), std::move(help), std::move(args), std::move(aliases));
}

// Metrics take name and dtype first, as in Keras.
ClassSpec metric(std::string name, std::string help, Args args,
                 std::vector<std::string> aliases = {}) {
  args.insert(args.begin(), {own_name(), own_dtype()});
  return make_class(std::move(name), std::move(help), std::move(args), std::move(aliases));
}

ClassSpec top_k(std::string name, std::string help) {
  return make_class(std::move(name), std::move(help),
                    {integer("k", "5", "how many of the largest count").least(1).most(kMaxSize),
                     own_name(), own_dtype()});
}

ClassSpec optimizer(std::string name, std::string help, const char* learning_rate, Args own,
                    const char* weight_decay = "null") {
  Args args = {object("learning_rate", ValueKind::kFloatOrObject, Category::kSchedule,
                      learning_rate, "step size, or a schedule of it")
                   .above(0)};
  args.insert(args.end(), own.begin(), own.end());
  const Args shared = {
      number("weight_decay", weight_decay, "w -= w weight_decay learning_rate before a step")
          .nullable()
          .least(0),
      number("clipnorm", "null", "limit on the norm of each gradient").above(0),
      number("clipvalue", "null", "limit on each element of the gradients").above(0),
      number("global_clipnorm", "null", "limit on the norm of all gradients together").above(0),
      boolean("use_ema", "false", "keep a moving average of the weights"),
      number("ema_momentum", "0.99", "momentum of that average").least(0).most(1),
      integer("ema_overwrite_frequency", "null", "steps between overwrites by the average")
          .least(1),
      number("loss_scale_factor", "null", "factor on the loss, divided out of the gradients")
          .above(0),
      integer("gradient_accumulation_steps", "null", "batches per update").least(2),
      text("name", "null", "name in variable paths")};
  args.insert(args.end(), shared.begin(), shared.end());
  return make_class(std::move(name), std::move(help), std::move(args));
}

Spec momentum() {
  return number("momentum", "0.0", "0 = none").least(0).most(1);
}
Spec epsilon() {
  return number("epsilon", "1e-7", "added against division by zero").least(0);
}
Args adam_args() {
  return {number("beta_1", "0.9", "decay of the first moment").least(0).below(1),
          number("beta_2", "0.999", "decay of the second moment").least(0).below(1), epsilon(),
          boolean("amsgrad", "false", "use the largest second moment so far")};
}

Spec rate(const char* name) {
  return number(name, "", "learning rate").required().least(0);
}
Spec steps(const char* name, const char* help) {
  return integer(name, "", help).required().least(1);
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

std::vector<ClassSpec> metric_classes() {
  const Spec threshold =
      number("threshold", "0.5", "predictions above it are yes").least(0).most(1);
  return {
      metric("accuracy", "the accuracy that fits the shapes of target and output", {}, {"acc"}),
      metric("crossentropy", "the crossentropy that fits the shapes", {}, {"ce"}),
      metric("Accuracy", "target equals prediction", {}),
      metric("BinaryAccuracy", "target equals (prediction > threshold)", {threshold}),
      metric("CategoricalAccuracy", "largest of a one-hot target is the largest predicted", {}),
      metric("SparseCategoricalAccuracy", "integer target is the largest predicted", {}),
      top_k("TopKCategoricalAccuracy", "one-hot target is among the k largest"),
      top_k("SparseTopKCategoricalAccuracy", "integer target is among the k largest"),
      metric("MeanSquaredError", "mean (y - p)^2", {}, {"mse", "MSE"}),
      metric("MeanAbsoluteError", "mean |y - p|", {}, {"mae", "MAE"}),
      metric("RootMeanSquaredError", "root of the mean squared error over all samples", {}),
      metric("BinaryCrossentropy", "mean of the loss", {from_logits(), label_smoothing()},
             {"bce", "BCE"}),
      metric("CategoricalCrossentropy", "mean of the loss",
             {from_logits(), label_smoothing(), class_axis()}),
      metric("SparseCategoricalCrossentropy", "mean of the loss", {from_logits(), class_axis()}),
      metric("Mean", "mean of the output", {}),
  };
}

std::vector<ClassSpec> optimizer_classes() {
  return {
      optimizer("SGD", "gradient descent, with momentum", "0.01",
                {momentum(), boolean("nesterov", "false", "Nesterov momentum")}),
      optimizer("RMSprop", "steps divided by the root of a running mean of squares", "0.001",
                {number("rho", "0.9", "decay of the mean of squares").least(0).most(1), momentum(),
                 epsilon(), boolean("centered", "false", "subtract the mean gradient's square")}),
      optimizer("Adam", "Kingma and Ba 2014", "0.001", adam_args()),
      optimizer("AdamW", "Adam with decoupled weight decay", "0.001", adam_args(), "0.004"),
  };
}

std::vector<ClassSpec> schedule_classes() {
  const Spec staircase = boolean("staircase", "false", "decay in whole steps");
  const Spec alpha = number("alpha", "0.0", "part of the rate that remains").least(0);
  return {
      make_class("ExponentialDecay", "rate decay_rate^(step / decay_steps)",
                 {rate("initial_learning_rate"), steps("decay_steps", "steps per factor"),
                  number("decay_rate", "", "factor").required().least(0), staircase, own_name()}),
      make_class("InverseTimeDecay", "rate / (1 + decay_rate step / decay_steps)",
                 {rate("initial_learning_rate"), steps("decay_steps", "steps per decay"),
                  number("decay_rate", "", "strength").required().least(0), staircase, own_name()}),
      make_class("PiecewiseConstantDecay", "values[i] while step <= boundaries[i]",
                 {make_spec("boundaries", ValueKind::kIntOrList, "", "steps, increasing")
                      .required()
                      .least(0),
                  make_spec("values", ValueKind::kFloatOrList, "", "one more than boundaries")
                      .required()
                      .least(0),
                  own_name()}),
      make_class("PolynomialDecay", "to end_learning_rate by a power of the time left",
                 {rate("initial_learning_rate"), steps("decay_steps", "steps until the end"),
                  number("end_learning_rate", "0.0001", "rate at the end").least(0),
                  number("power", "1.0", "of the polynomial").above(0),
                  boolean("cycle", "false", "begin again"), own_name()}),
      make_class("CosineDecay", "half a cosine, after a linear warm-up",
                 {rate("initial_learning_rate"), steps("decay_steps", "steps of the cosine"), alpha,
                  own_name(), number("warmup_target", "null", "rate after the warm-up").least(0),
                  integer("warmup_steps", "0", "steps of the warm-up").least(0)}),
      make_class("CosineDecayRestarts", "cosines, each longer and lower",
                 {rate("initial_learning_rate"), steps("first_decay_steps", "steps of the first"),
                  number("t_mul", "2.0", "factor on the length").least(1),
                  number("m_mul", "1.0", "factor on the height").above(0), alpha, own_name()}),
  };
}

}  // namespace meshtrain
