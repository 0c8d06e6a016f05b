// Values computed by Keras.
#include "nn/schedules.h"

#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

ConfigObject schedule(const char* name, const NamedArgs& args) {
  return make_object(Category::kSchedule, name, args);
}

TEST_CASE("schedules have Keras' rates") {
  const NamedArgs decay = {
      {"initial_learning_rate", 0.1}, {"decay_steps", 10}, {"decay_rate", 0.5}};
  NamedArgs staircase = decay;
  staircase.emplace_back("staircase", true);
  const struct {
    ConfigObject schedule;
    std::vector<double> expected;  // at steps 0 1 5 6 10 12 15 20
  } cases[] = {
      {schedule("ExponentialDecay", decay),
       {.1, .0933033, .07071068, .0659754, .05, .04352753, .03535534, .025}},
      {schedule("ExponentialDecay", staircase), {.1, .1, .1, .1, .05, .05, .05, .025}},
      {schedule("InverseTimeDecay", decay),
       {.1, .0952381, .08, .07692308, .06666667, .0625, .05714286, .05}},
      {schedule("PolynomialDecay", {{"initial_learning_rate", 0.1}, {"decay_steps", 10}}),
       {.1, .09001, .05005, .04006, .0001, .0001, .0001, .0001}},
      {schedule("PolynomialDecay", {{"initial_learning_rate", 0.1},
                                    {"decay_steps", 10},
                                    {"end_learning_rate", .01},
                                    {"power", 2.0},
                                    {"cycle", true}}),
       {.1, .0829, .0325, .0244, .01, .0244, .015625, .01}},
      {schedule("CosineDecay", {{"initial_learning_rate", 0.1}, {"decay_steps", 10}}),
       {.1, .09755283, .05, .03454914, 0, 0, 0, 0}},
      {schedule("CosineDecay", {{"initial_learning_rate", 0.0},
                                {"decay_steps", 10},
                                {"alpha", 0.1},
                                {"warmup_target", 0.1},
                                {"warmup_steps", 5}}),
       {0, .02, .1, .09779754, .055, .02854967, .01, .01}},
      {schedule("CosineDecayRestarts", {{"initial_learning_rate", 0.1}, {"first_decay_steps", 5}}),
       {.1, .09045085, .1, .09755283, .05, .02061073, .1, .08535534}},
      {schedule("CosineDecayRestarts", {{"initial_learning_rate", 0.1},
                                        {"first_decay_steps", 5},
                                        {"t_mul", 1.0},
                                        {"m_mul", 0.5},
                                        {"alpha", 0.1}}),
       {.1, .09140576, .055, .05070288, .0325, .02472644, .02125, .015625}},
      {schedule("PiecewiseConstantDecay", {{"boundaries", {5, 10}}, {"values", {1.0, .5, .1}}}),
       {1, 1, 1, .5, .5, .1, .1, .1}},
  };
  std::set<std::string> compared;
  for (const auto& c : cases) {
    compared.insert(c.schedule.class_name);
    CAPTURE(c.schedule.class_name);
    std::vector<double> found;
    for (const int step : {0, 1, 5, 6, 10, 12, 15, 20}) {
      found.push_back(schedule_rate(c.schedule, step));
    }
    check_near(found, c.expected, 2e-8);
  }
  CHECK(compared == names_of(Category::kSchedule));
}

}  // namespace
}  // namespace meshtrain::testing
