// Values: keras-semantics 7.3, computed by Keras in float32.
#include <map>

#include "nn_testing.h"
#include "support/interpreter.h"

namespace meshtrain::testing {
namespace {

const std::vector<std::vector<double>> kGrads = {
    {.1, -.2, .3, .4}, {.3, .1, -.1, .2}, {-.2, .4, .05, -.3}};

struct State {
  std::vector<HostTensor> weights;
  std::vector<std::vector<HostTensor>> slots;
};

// One apply on weights of the given shapes; grads[i] empty: the weight has no gradient.
State step(const Optimizer& optimizer, const State& state,
           const std::vector<std::vector<double>>& grads, int64_t iteration) {
  Graph graph;
  Builder b(graph);
  std::map<std::string, const HostTensor*> inputs;
  std::vector<HostTensor> owned;
  owned.reserve(grads.size() + 2);
  const auto feed = [&](const std::string& name, const HostTensor& tensor) {
    inputs[name] = &tensor;
    return b.input(name, tensor.shape(), tensor.dtype(), false);
  };
  std::vector<Optimizer::WeightUpdate> updates;
  for (size_t i = 0; i < state.weights.size(); ++i) {
    Optimizer::WeightUpdate update;
    update.param = feed("w" + std::to_string(i), state.weights[i]);
    update.grad = kNone;
    if (!grads[i].empty()) {
      owned.push_back(floats(state.weights[i].shape(), grads[i]));
      update.grad = feed("g" + std::to_string(i), owned.back());
    }
    for (size_t s = 0; s < state.slots[i].size(); ++s) {
      update.slots.push_back(
          feed("s" + std::to_string(i) + "_" + std::to_string(s), state.slots[i][s]));
    }
    updates.push_back(update);
  }
  owned.push_back(tensor_of<int64_t>(DType::kInt64, {}, {iteration}));
  const ValueId iteration_value = feed("iteration", owned.back());
  owned.push_back(floats({}, {optimizer.learning_rate(iteration)}));
  const ValueId rate = feed("rate", owned.back());
  const bool apply_now = (iteration + 1) % optimizer.accumulation_steps() == 0;
  const Optimizer::Result result = optimizer.apply(b, updates, iteration_value, rate, apply_now);
  verify(graph);
  const Interpretation run = interpret(graph, inputs, {});
  State next;
  for (size_t i = 0; i < result.params.size(); ++i) {
    next.weights.push_back(run.values[result.params[i]].clone());
    next.slots.emplace_back();
    for (const ValueId slot : result.slots[i]) {
      next.slots.back().push_back(run.values[slot].clone());
    }
  }
  return next;
}

State start(const Optimizer& optimizer, std::vector<HostTensor> weights) {
  State state{std::move(weights), {}};
  for (const HostTensor& weight : state.weights) {
    state.slots.emplace_back();
    for (size_t i = 0; i < optimizer.slots().size(); ++i) {
      state.slots.back().emplace_back(weight.dtype(), weight.shape());
    }
  }
  return state;
}

State start(const Optimizer& optimizer) {
  std::vector<HostTensor> weights;
  weights.push_back(floats({2, 2}, {1, -2, 3, .5}));
  return start(optimizer, std::move(weights));
}

Optimizer make(const char* name, const NamedArgs& args = {}) {
  return Optimizer(make_object(Kind::kOptimizer, name, args));
}

using Rows = std::vector<std::vector<double>>;

void check_steps(const Optimizer& optimizer, const Rows& expected, double tolerance = 1e-6) {
  State state = start(optimizer);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    state = step(optimizer, state, {kGrads[i]}, static_cast<int64_t>(i));
    check_near(numbers(state.weights[0]), expected[i], tolerance);
  }
}

TEST_CASE("optimizers make Keras' steps") {
  const Rows adam = {{.9900004, -1.9900002, 2.9900002, .4900002},
                     {.9808227, -1.9873370, 2.9859982, .4806785},
                     {.9782437, -1.9919102, 2.9819438, .4782571}};
  const Rows clipped = {{.9963485, -1.9926970, 2.9890456, .4853941},
                        {.9808565, -1.9978610, 2.9942095, .4750661},
                        {.9882525, -2.0126531, 2.9923606, .4861601}};
  const struct {
    const char* name;
    NamedArgs args;
    Rows expected;
  } cases[] = {
      {"sgd",
       {},
       {{.999, -1.998, 2.997, .496},
        {.996, -1.9990001, 2.9979999, .494},
        {.998, -2.003, 2.9974999, .497}}},
      {"SGD",
       {{"learning_rate", .1}, {"momentum", .9}},
       {{.99, -1.98, 2.97, .46},
        {.951, -1.972, 2.9530001, .404},
        {.9359, -2.0048001, 2.9327002, .3836}}},
      {"SGD",
       {{"learning_rate", .1}, {"momentum", .9}, {"nesterov", true}},
       {{.981, -1.962, 2.9430001, .424},
        {.9159, -1.9648, 2.9377, .3536},
        {.92231, -2.0343201, 2.9144301, .36524}}},
      {"adam", {{"learning_rate", .01}}, adam},
      {"adam", {{"learning_rate", .01}, {"amsgrad", true}}, adam},
      {"adamw",
       {{"learning_rate", .01}},
       {{.9899604, -1.9899203, 2.9898803, .4899802},
        {.9807432, -1.9871774, 2.9857585, .4806389},
        {.9781249, -1.9916711, 2.9815848, .4781983}}},
      {"rmsprop",
       {{"learning_rate", .01}},
       {{.9683788, -1.9683776, 2.9683774, .4683773},
        {.9382278, -1.9831216, 2.9788601, .4536332},
        {.9558299, -2.0113072, 2.9734178, .4723978}}},
      {"RMSprop",
       {{"learning_rate", .01}, {"momentum", .9}, {"centered", true}},
       {{.9666685, -1.9666672, 2.9666669, .4666668},
        {.9038967, -1.9515153, 2.9473205, .4204789},
        {.8651618, -1.9668487, 2.9243283, .3978290}}},
      {"SGD", {{"learning_rate", .1}, {"clipnorm", .2}}, clipped},
      {"SGD", {{"learning_rate", .1}, {"global_clipnorm", .2}}, clipped},
      {"SGD",
       {{"learning_rate", .1}, {"clipvalue", .15}},
       {{.99, -1.985, 2.9849999, .485},
        {.975, -1.995, 2.9949999, .47},
        {.99, -2.01, 2.9899998, .485}}},
      {"SGD",
       {{"learning_rate", .1}, {"weight_decay", .1}},
       {{.98, -1.96, 2.9400001, .455},
        {.9402, -1.9504, 2.9205999, .43045},
        {.950798, -1.970896, 2.8863938, .4561455}}},
      {"SGD",
       {{"learning_rate", .1}, {"use_ema", true}, {"ema_momentum", .9}},
       {{.99, -1.98, 2.97, .46}, {.96, -1.99, 2.98, .44}, {.98, -2.03, 2.975, .47}}},
      {"SGD",
       {{"learning_rate", .1}, {"gradient_accumulation_steps", 2}},
       {{1, -2, 3, .5}, {.98, -1.995, 2.99, .47}, {.98, -1.995, 2.99, .47}}},
  };
  for (const auto& c : cases) {
    CAPTURE(c.name);
    CAPTURE(c.args.size());
    check_steps(make(c.name, c.args), c.expected);
  }
}

TEST_CASE("the moving average begins as a copy and then follows") {
  const Optimizer optimizer =
      make("SGD", {{"learning_rate", .1}, {"use_ema", true}, {"ema_momentum", .9}});
  const Rows expected = {
      {.99, -1.98, 2.97, .46}, {.987, -1.981, 2.971, .458}, {.9863, -1.9859, 2.9714, .4592}};
  State state = start(optimizer);
  for (size_t i = 0; i < 3; ++i) {
    state = step(optimizer, state, {kGrads[i]}, static_cast<int64_t>(i));
    check_near(numbers(state.slots[0][0]), expected[i]);
  }
}

TEST_CASE("the average overwrites the weight at its frequency") {
  const Optimizer optimizer = make("SGD", {{"learning_rate", .1},
                                           {"use_ema", true},
                                           {"ema_momentum", .9},
                                           {"ema_overwrite_frequency", 2}});
  State state = start(optimizer);
  state = step(optimizer, state, {kGrads[0]}, 0);
  check_near(numbers(state.weights[0]), {.99, -1.98, 2.97, .46});
  state = step(optimizer, state, {kGrads[1]}, 1);
  check_near(numbers(state.weights[0]), {.987, -1.981, 2.971, .458});
  check_near(numbers(state.slots[0][0]), {.987, -1.981, 2.971, .458});
}

TEST_CASE("accumulated gradients are averaged and then cleared") {
  const Optimizer optimizer =
      make("Adam", {{"learning_rate", .01}, {"gradient_accumulation_steps", 2}});
  CHECK(optimizer.accumulation_steps() == 2);
  State state = start(optimizer);
  state = step(optimizer, state, {kGrads[0]}, 0);
  check_near(numbers(state.slots[0][0]), kGrads[0]);
  check_near(numbers(state.slots[0][1]), {0, 0, 0, 0});
  state = step(optimizer, state, {kGrads[1]}, 1);
  check_near(numbers(state.slots[0][0]), {0, 0, 0, 0});
  // As one step of plain Adam with the mean gradient: t counts updates, not batches.
  const Optimizer plain = make("Adam", {{"learning_rate", .01}});
  const State once = step(plain, start(plain), {{.2, -.05, .1, .3}}, 0);
  check_near(numbers(state.weights[0]), numbers(once.weights[0]));
}

TEST_CASE("the global norm is taken over all weights and passes over those without a gradient") {
  const Optimizer optimizer = make("SGD", {{"learning_rate", 1.0}, {"global_clipnorm", 1.0}});
  std::vector<HostTensor> weights;
  weights.push_back(floats({1}, {0}));
  weights.push_back(floats({1}, {0}));
  weights.push_back(floats({1}, {7}));
  const State next = step(optimizer, start(optimizer, std::move(weights)), {{3}, {4}, {}}, 0);
  check_near(numbers(next.weights[0]), {-.6});
  check_near(numbers(next.weights[1]), {-.8});
  check_near(numbers(next.weights[2]), {7});
}

TEST_CASE("a zero gradient under a norm limit stays zero") {
  for (const char* clip : {"clipnorm", "global_clipnorm"}) {
    CAPTURE(clip);
    const Optimizer optimizer = make("SGD", {{clip, 1.0}});
    const State next = step(optimizer, start(optimizer), {{0, 0, 0, 0}}, 0);
    check_near(numbers(next.weights[0]), {1, -2, 3, .5});
  }
}

std::vector<std::string> slot_names(const Optimizer& optimizer) {
  std::vector<std::string> names;
  for (const SlotSpec& slot : optimizer.slots()) {
    names.push_back(slot.name);
  }
  return names;
}

TEST_CASE("slots are named and ordered as Keras creates them") {
  using Names = std::vector<std::string>;
  CHECK(slot_names(make("sgd")).empty());
  CHECK(slot_names(make("sgd", {{"momentum", .5}})) == Names{"momentum"});
  CHECK(slot_names(make("adam")) == Names{"momentum", "velocity"});
  CHECK(slot_names(make("adam", {{"amsgrad", true}})) ==
        Names{"momentum", "velocity", "velocity_hat"});
  CHECK(slot_names(make("rmsprop")) == Names{"velocity"});
  CHECK(slot_names(make("rmsprop", {{"momentum", .5}, {"centered", true}})) ==
        Names{"velocity", "momentum", "average_gradient"});
  CHECK(slot_names(make("adam", {{"use_ema", true}, {"gradient_accumulation_steps", 4}})) ==
        Names{"average", "gradient_accumulator", "momentum", "velocity"});
}

TEST_CASE("slot paths are the weight's path below the optimizer's name") {
  CHECK(make("adam").slot_path("seq/d1/kernel", "momentum") == "adam/seq_d1_kernel_momentum");
  CHECK(make("rmsprop").name() == "rmsprop");
  CHECK(make("AdamW").name() == "adamw");
  CHECK(make("sgd").name() == "SGD");
  CHECK(make("sgd", {{"name", "mine"}}).name() == "mine");
}

TEST_CASE("the learning rate is a number or a schedule of raw iterations") {
  CHECK(make("adam").learning_rate(100) == .001);
  const ConfigObject decay =
      make_object(Kind::kSchedule, "ExponentialDecay",
                  {{"initial_learning_rate", 0.1}, {"decay_steps", 10}, {"decay_rate", 0.5}});
  CHECK(make("adam", {{"learning_rate", decay}}).learning_rate(10) == doctest::Approx(.05));
}

TEST_CASE("arguments that contradict each other are reported together") {
  Diagnostics diagnostics;
  check_optimizer(make_object(Kind::kOptimizer, "SGD",
                              {{"clipnorm", 1.0},
                               {"clipvalue", 1.0},
                               {"momentum", 1.5},
                               {"ema_overwrite_frequency", 3},
                               {"gradient_accumulation_steps", 1}}),
                  diagnostics);
  CHECK(diagnostics.num_errors() == 4);
  CHECK(diagnostics.list()[0].message ==
        "SGD takes one way of clipping, got `clipnorm` and `clipvalue`");
  Diagnostics fine;
  check_optimizer(make_object(Kind::kOptimizer, "adam"), fine);
  CHECK(fine.num_errors() == 0);
}

}  // namespace
}  // namespace meshtrain::testing
