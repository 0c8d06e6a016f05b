// Optimizers: Keras 3 keras/src/optimizers.
#include "config/catalogue_args.h"

namespace meshtrain {
namespace {

Spec learning_rate(const char* default_text) {
  return object("learning_rate", ValueKind::kFloatOrObject, Category::kSchedule, default_text,
                "step size, or a schedule of it")
      .least(0)
      .no_integer();
}

Spec weight_decay(const char* name, const char* default_text) {
  return number(name, default_text, "w -= w weight_decay learning_rate before a step")
      .nullable()
      .least(0);
}

Spec loss_scale_factor() {
  return number("loss_scale_factor", "null", "factor on the loss, divided out of the gradients")
      .above(0);
}

Args shared_args(const char* decay) {
  return {weight_decay("weight_decay", decay),
          number("clipnorm", "null", "limit on the norm of each gradient").above(0),
          number("clipvalue", "null", "limit on each element of the gradients").above(0),
          number("global_clipnorm", "null", "limit on the norm of all gradients together").above(0),
          boolean("use_ema", "false", "keep a moving average of the weights"),
          number("ema_momentum", "0.99", "momentum of that average").least(0).most(1),
          integer("ema_overwrite_frequency", "null", "steps between overwrites by the average")
              .least(1),
          loss_scale_factor(),
          integer("gradient_accumulation_steps", "null", "batches per update").least(2),
          text("name", "null", "name in variable paths")};
}

// Keras' method of the same name: it has no argument for it.
Spec undecayed() {
  return make_spec("exclude_from_weight_decay", ValueKind::kTextList, "null",
                   "regexes found in the names of weights that do not decay, such as bias");
}

ClassSpec optimizer(std::string name, std::string help, const char* rate, Args own,
                    const char* decay = "null") {
  Args args = {learning_rate(rate)};
  args.insert(args.end(), own.begin(), own.end());
  const Args shared = shared_args(decay);
  args.insert(args.end(), shared.begin(), shared.end());
  args.push_back(undecayed());
  return make_class(std::move(name), std::move(help), std::move(args));
}

Spec momentum(const char* default_text = "0.0") {
  return number("momentum", default_text, "0 = none").least(0).most(1);
}
Spec epsilon(const char* default_text = "1e-7") {
  return number("epsilon", default_text, "added against division by zero").least(0);
}
Spec beta(const char* name, const char* default_text, const char* help) {
  return number(name, default_text, help).least(0).below(1);
}
Spec beta_1() {
  return beta("beta_1", "0.9", "decay of the first moment");
}
Spec beta_2(const char* default_text = "0.999") {
  return beta("beta_2", default_text, "decay of the second moment");
}
Args adam_args() {
  return {beta_1(), beta_2(), epsilon(),
          boolean("amsgrad", "false", "use the largest second moment so far")};
}
Spec accumulator() {
  return number("initial_accumulator_value", "0.1", "sum of squares at the beginning").least(0);
}
Spec strength(const char* name, const char* help) {
  return number(name, "0.0", help).least(0);
}

ClassSpec adafactor() {
  return optimizer(
      "Adafactor", "Shazeer and Stern 2018: second moments of rows and columns", "0.001",
      {number("beta_2_decay", "-0.8", "power of the step in their decay").most(0),
       number("epsilon_1", "1e-30", "added to squared gradients").least(0),
       number("epsilon_2", "0.001", "smallest size of a weight").least(0),
       number("clip_threshold", "1.0", "limit on the mean square of a change").above(0),
       boolean("relative_step", "true", "limit the rate by 1 / sqrt(step), as is done anyway")});
}

ClassSpec ftrl() {
  return optimizer(
      "Ftrl", "McMahan et al. 2013: follow the regularized leader", "0.001",
      {number("learning_rate_power", "-0.5", "how the rate falls with the sum of squares").most(0),
       accumulator(), strength("l1_regularization_strength", "penalty on |w|"),
       strength("l2_regularization_strength", "penalty on w^2"),
       strength("l2_shrinkage_regularization_strength", "added to gradients"),
       strength("beta", "added to the l2 penalty by beta / (2 rate)")});
}

// Its shared arguments stand among its own, as in Keras.
ClassSpec muon() {
  Args args = {learning_rate("0.001"), beta("adam_beta_1", "0.9", "of the weights left to Adam"),
               beta("adam_beta_2", "0.999", "of the weights left to Adam"),
               weight_decay("adam_weight_decay", "0.004"), epsilon()};
  const Args shared = shared_args("0.004");
  args.insert(args.end(), shared.begin(), shared.end());
  const Args own = {
      make_spec("exclude_layers", ValueKind::kTextList, "null",
                "regexes found in the paths of matrices left to Adam"),
      boolean("exclude_embeddings", "true", "leave embeddings to Adam"),
      number("muon_a", "3.4445", "coefficient of X"),
      number("muon_b", "-4.7750", "coefficient of (X X') X"),
      number("muon_c", "2.0315", "coefficient of (X X')^2 X"),
      number("adam_lr_ratio", "1", "factor on the rate of weights left to Adam").above(0),
      momentum("0.95"),
      integer("ns_steps", "5", "steps of Newton and Schulz").least(0).most(100),
      boolean("nesterov", "true", "Nesterov momentum"),
      number("rms_rate", "0.2", "factor on sqrt(longer side) that scales the change")
          .nullable()
          .above(0),
      undecayed()};
  args.insert(args.end(), own.begin(), own.end());
  return make_class("Muon", "Jordan et al. 2024: momentum made orthogonal, for matrices",
                    std::move(args));
}

ClassSpec loss_scale() {
  ClassSpec spec = make_class(
      "LossScaleOptimizer", "scales the loss; skips steps whose gradients are not finite",
      {object("inner_optimizer", ValueKind::kObject, Category::kOptimizer, "",
              "what updates the weights")
           .required(),
       number("initial_scale", "32768.0", "factor on the loss at the beginning").above(0),
       integer("dynamic_growth_steps", "2000", "finite steps after which it doubles").least(1),
       text("name", "null", "name in variable paths")});
  spec.unknown_help =
      "the learning rate, clipping, averages, decay and accumulation belong to `inner_optimizer`";
  return spec;
}

ClassSpec multi() {
  ClassSpec spec =
      make_class("MultiOptimizer", "several optimizers, each for the weights whose paths it names",
                 {object("default_optimizer", ValueKind::kObject, Category::kOptimizer, "",
                         "for the weights that no key matches")
                      .required(),
                  object("optimizer_map", ValueKind::kObject, Category::kOptimizer, "",
                         "path of a weight, or pattern of whole paths -> its optimizer")
                      .map_of(ValueKind::kObject),
                  loss_scale_factor(), text("name", "null", "name in the program's traces")});
  spec.unknown_help = "the learning rate and all else belong to its optimizers";
  return spec;
}

}  // namespace

std::vector<ClassSpec> optimizer_classes() {
  return {
      optimizer("SGD", "gradient descent, with momentum", "0.01",
                {momentum(), boolean("nesterov", "false", "Nesterov momentum")}),
      optimizer("RMSprop", "steps divided by the root of a running mean of squares", "0.001",
                {number("rho", "0.9", "decay of the mean of squares").least(0).most(1), momentum(),
                 epsilon(), boolean("centered", "false", "subtract the mean gradient's square")}),
      optimizer("Adam", "Kingma and Ba 2014", "0.001", adam_args()),
      optimizer("AdamW", "Adam with decoupled weight decay", "0.001", adam_args(), "0.004"),
      optimizer("Adamax", "Adam by the largest gradient so far", "0.001",
                {beta_1(), beta_2(), epsilon()}),
      optimizer("Nadam", "Adam with Nesterov momentum, Dozat 2016", "0.001",
                {beta_1(), beta_2(), epsilon()}),
      optimizer("Adagrad", "steps divided by the root of the sum of squares", "0.001",
                {accumulator(), epsilon()}),
      optimizer(
          "Adadelta", "Zeiler 2012: steps as large as the changes before", "0.001",
          {number("rho", "0.95", "decay of the means of squares").least(0).most(1), epsilon()}),
      adafactor(),
      optimizer("Lion", "Chen et al. 2023: the sign of the momentum", "0.001",
                {number("beta_1", "0.9", "part of the momentum in the sign").above(0).most(1),
                 number("beta_2", "0.99", "decay of the momentum").least(0).most(1)}),
      optimizer("Lamb", "You et al. 2019: Adam in proportion to each weight's norm", "0.001",
                {beta_1(), beta_2(), epsilon()}),
      ftrl(),
      muon(),
      optimizer(
          "ScheduleFreeAdamW", "Defazio et al. 2024: averages instead of a schedule", "0.0025",
          {number("beta_1", "0.9", "part of the average in the weights").above(0).most(1), beta_2(),
           epsilon("1e-8"), integer("warmup_steps", "0", "steps of a linear warm-up").least(0)}),
      loss_scale(),
      multi(),
  };
}

}  // namespace meshtrain
