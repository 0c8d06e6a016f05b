// Learning rate schedules: Keras 3 optimizers/schedules.
#include "config/catalogue_args.h"

namespace meshtrain {
namespace {

Spec rate(const char* name) {
  return number(name, "", "learning rate").required().least(0);
}
Spec steps(const char* name, const char* help) {
  return integer(name, "", help).required().least(1);
}

}  // namespace

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
                      .listed()
                      .least(0),
                  make_spec("values", ValueKind::kFloatOrList, "", "one more than boundaries")
                      .required()
                      .listed()
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
