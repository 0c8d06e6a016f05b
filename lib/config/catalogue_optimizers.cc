// Optimizers: keras-semantics 7.1, 7.2; Keras 3 keras/src/optimizers.
#include "config/catalogue_args.h"

namespace meshtrain {
namespace {

using Args = std::vector<Spec>;

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
  };
}

}  // namespace meshtrain
