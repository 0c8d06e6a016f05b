// Values computed by Keras in float32.
#include "optimizer_testing.h"

namespace meshtrain::testing {
namespace {

const std::vector<std::vector<double>> kGrads = {
    {.1, -.2, .3, .4}, {.3, .1, -.1, .2}, {-.2, .4, .05, -.3}};

using State = OptimizerState;

// One apply in float32; grads[i] empty: the weight has no gradient.
State step(const Optimizer& optimizer, const State& state,
           const std::vector<std::vector<double>>& grads) {
  std::vector<HostTensor> owned;
  std::vector<const HostTensor*> pointers;
  owned.reserve(grads.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].empty()) {
      owned.push_back(floats(state.weights[i].shape(), grads[i]));
    }
    pointers.push_back(grads[i].empty() ? nullptr : &owned.back());
  }
  return apply_step(optimizer, state, pointers);
}

State start(const Optimizer& optimizer, std::vector<HostTensor> weights) {
  std::vector<std::string> paths;
  for (size_t i = 0; i < weights.size(); ++i) {
    paths.push_back("w" + std::to_string(i) + "/kernel");
  }
  return start_state(optimizer, std::move(paths), std::move(weights));
}

State start(const Optimizer& optimizer) {
  std::vector<HostTensor> weights;
  weights.push_back(floats({2, 2}, {1, -2, 3, .5}));
  return start(optimizer, std::move(weights));
}

Optimizer make(const char* name, const NamedArgs& args = {}) {
  return Optimizer(make_object(Category::kOptimizer, name, args));
}

using Rows = std::vector<std::vector<double>>;

void check_steps(const Optimizer& optimizer, const Rows& expected, double tolerance = 1e-6) {
  State state = start(optimizer);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    state = step(optimizer, state, {kGrads[i]});
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
      {"Adamax",
       {{"learning_rate", .01}},
       {{.9900000, -1.9900000, 2.9900000, .4900000},
        {.9831579, -1.9878926, 2.9870145, .4826242},
        {.9812987, -1.9909184, 2.9845126, .4807385}}},
      {"Nadam",
       {{"learning_rate", .01}},
       {{.9893721, -1.9893721, 2.9893720, .4893721},
        {.9794513, -1.9932981, 2.9919202, .4841563},
        {.9842712, -2.0024774, 2.9897943, .4892207}}},
      {"Adagrad",
       {{"learning_rate", .01}},
       {{.9969849, -1.9946548, 2.9931176, .4921553},
        {.9902767, -1.9972367, 2.9953537, .4885039},
        {.9943592, -2.0044210, 2.9942427, .4933077}}},
      {"Adadelta",
       {{"learning_rate", 1.0}},
       {{.9985859, -1.9985858, 2.9985857, .4985858},
        {.9966840, -1.9994986, 2.9992328, .4976729},
        {.9981790, -2.0014179, 2.9988925, .4989235}}},
      {"Adafactor",
       {{"learning_rate", .01}},
       {{.9853798, -1.9793240, 2.9803851, .4815068},
        {.9561234, -1.9884639, 2.9878283, .4675550},
        {.9748736, -2.0135298, 2.9829137, .4872649}}},
      {"Lion",
       {{"learning_rate", .01}},
       {{.99, -1.99, 2.99, .49}, {.98, -2.00, 3.00, .48}, {.99, -2.01, 2.99, .49}}},
      {"Lamb",
       {{"learning_rate", .01}},
       {{.9811254, -1.9811254, 2.9811254, .4811254},
        {.9564804, -1.9739735, 2.9703784, .4560938},
        {.9428923, -1.9980688, 2.9490178, .4433360}}},
      {"Ftrl",
       {{"learning_rate", .01}},
       {{.0435223, -.3043463, .8166889, .1820685},
        {.0368141, -.3069283, .8189249, .1784170},
        {.0408966, -.3141125, .8178138, .1832209}}},
      {"Ftrl",
       {{"learning_rate", .01},
        {"l1_regularization_strength", .1},
        {"l2_regularization_strength", .1},
        {"l2_shrinkage_regularization_strength", .1},
        {"beta", .1}},
       {{.0263678, -.2286514, .6488065, .1484504},
        {.0208094, -.2297605, .6482645, .1449152},
        {.0241180, -.2351348, .6450099, .1486456}}},
      {"Muon",
       {{"learning_rate", .01}},
       {{.9977296, -1.9979751, 2.9982207, .4986063},
        {.9947752, -1.9977977, 2.9979458, .4956236},
        {.9945577, -1.9998401, 2.9947696, .4955770}}},
      {"ScheduleFreeAdamW",
       {{"learning_rate", .01}},
       {{.99, -1.99, 2.99, .49},
        {.9826224, -1.9934791, 2.9924603, .4865210},
        {.9843134, -2.0004737, 2.9920485, .4894323}}},
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
    state = step(optimizer, state, {kGrads[i]});
    check_near(numbers(state.slots[0][0]), expected[i]);
  }
}

TEST_CASE("the average overwrites the weight at its frequency") {
  const Optimizer optimizer = make("SGD", {{"learning_rate", .1},
                                           {"use_ema", true},
                                           {"ema_momentum", .9},
                                           {"ema_overwrite_frequency", 2}});
  State state = start(optimizer);
  state = step(optimizer, state, {kGrads[0]});
  check_near(numbers(state.weights[0]), {.99, -1.98, 2.97, .46});
  state = step(optimizer, state, {kGrads[1]});
  check_near(numbers(state.weights[0]), {.987, -1.981, 2.971, .458});
  check_near(numbers(state.slots[0][0]), {.987, -1.981, 2.971, .458});
}

TEST_CASE("accumulated gradients are averaged and then cleared") {
  const Optimizer optimizer =
      make("Adam", {{"learning_rate", .01}, {"gradient_accumulation_steps", 2}});
  CHECK(optimizer.accumulation_steps() == 2);
  State state = start(optimizer);
  state = step(optimizer, state, {kGrads[0]});
  check_near(numbers(state.slots[0][0]), kGrads[0]);
  check_near(numbers(state.slots[0][1]), {0, 0, 0, 0});
  state = step(optimizer, state, {kGrads[1]});
  check_near(numbers(state.slots[0][0]), {0, 0, 0, 0});
  // As one step of plain Adam with the mean gradient: t counts updates, not batches.
  const Optimizer plain = make("Adam", {{"learning_rate", .01}});
  const State once = step(plain, start(plain), {{.2, -.05, .1, .3}});
  check_near(numbers(state.weights[0]), numbers(once.weights[0]));
}

TEST_CASE("the global norm is taken over all weights and passes over those without a gradient") {
  const Optimizer optimizer = make("SGD", {{"learning_rate", 1.0}, {"global_clipnorm", 1.0}});
  std::vector<HostTensor> weights;
  weights.push_back(floats({1}, {0}));
  weights.push_back(floats({1}, {0}));
  weights.push_back(floats({1}, {7}));
  const State next = step(optimizer, start(optimizer, std::move(weights)), {{3}, {4}, {}});
  check_near(numbers(next.weights[0]), {-.6});
  check_near(numbers(next.weights[1]), {-.8});
  check_near(numbers(next.weights[2]), {7});
}

TEST_CASE("a zero gradient under a norm limit stays zero") {
  for (const char* clip : {"clipnorm", "global_clipnorm"}) {
    CAPTURE(clip);
    const Optimizer optimizer = make("SGD", {{clip, 1.0}});
    const State next = step(optimizer, start(optimizer), {{0, 0, 0, 0}});
    check_near(numbers(next.weights[0]), {1, -2, 3, .5});
  }
}

std::vector<std::string> slot_names(const Optimizer& optimizer, size_t rank = 2,
                                    const char* path = "d1/kernel") {
  std::vector<std::string> names;
  for (const SlotSpec& slot : optimizer.slots(path, rank)) {
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
  CHECK(slot_names(make("adamax")) == Names{"momentum", "norm"});
  CHECK(slot_names(make("adadelta")) == Names{"accumulated_grad", "accumulated_delta_var"});
  CHECK(slot_names(make("ftrl")) == Names{"accumulator", "linear"});
  CHECK(slot_names(make("lion")) == Names{"momentum"});
}

TEST_CASE("the slots of Adafactor and Muon depend on the weight") {
  using Names = std::vector<std::string>;
  CHECK(slot_names(make("adafactor"), 1) == Names{"velocity"});
  CHECK(slot_names(make("adafactor"), 4) == Names{"row", "column"});
  CHECK(make("adafactor").slots("c/kernel", 4)[0].factored_dim == 3);
  CHECK(make("adafactor").slots("c/kernel", 4)[1].factored_dim == 2);
  CHECK(slot_names(make("muon")) == Names{"momentum"});
  CHECK(slot_names(make("muon"), 1) == Names{"momentum", "velocity"});
  CHECK(slot_names(make("muon"), 2, "Embedding_1/table") == Names{"momentum", "velocity"});
  CHECK(slot_names(make("muon", {{"exclude_layers", {"^d[0-9]/"}}})) ==
        Names{"momentum", "velocity"});
}

TEST_CASE("scalars that all weights share are variables of the optimizer") {
  const auto scalars = make("nadam", {{"name", "n"}}).scalars(DType::kFloat64);
  REQUIRE(scalars.size() == 1);
  CHECK(scalars[0].path == "n/u_product");
  CHECK(scalars[0].initial == 1);
  const auto scaled =
      make("LossScaleOptimizer",
           {{"inner_optimizer", make_object(Category::kOptimizer, "adam")}, {"initial_scale", 8.0}})
          .scalars(DType::kFloat32);
  REQUIRE(scaled.size() == 3);
  CHECK(scaled[1].path == "loss_scale_optimizer/step_counter");
  CHECK(scaled[2].path == "loss_scale_optimizer/dynamic_scale");
  CHECK(scaled[2].initial == 8);
}

TEST_CASE("slot paths are the weight's path below the optimizer's name") {
  CHECK(make("adam").slot_path("seq/d1/kernel", "momentum") == "adam/seq_d1_kernel_momentum");
  CHECK(make("rmsprop").name() == "rm_sprop");
  CHECK(make("AdamW").name() == "adam_w");
  CHECK(make("sgd").name() == "sgd");
  CHECK(make("sgd", {{"name", "mine"}}).name() == "mine");
}

TEST_CASE("the learning rate is a number or a schedule of raw iterations") {
  CHECK(make("adam").learning_rate(100) == .001);
  const ConfigObject decay =
      make_object(Category::kSchedule, "ExponentialDecay",
                  {{"initial_learning_rate", 0.1}, {"decay_steps", 10}, {"decay_rate", 0.5}});
  CHECK(make("adam", {{"learning_rate", decay}}).learning_rate(10) == doctest::Approx(.05));
}

TEST_CASE("arguments that contradict each other are reported together") {
  Diagnostics diagnostics;
  check_optimizer(
      make_object(Category::kOptimizer, "SGD",
                  {{"ema_overwrite_frequency", 3}, {"exclude_from_weight_decay", {"d(1"}}}),
      diagnostics);
  REQUIRE(diagnostics.num_errors() == 2);
  CHECK(diagnostics.list().back().message ==
        "`ema_overwrite_frequency` of SGD needs `use_ema: true`");
  Diagnostics inner;
  check_optimizer(
      make_object(Category::kOptimizer, "LossScaleOptimizer",
                  {{"inner_optimizer", make_object(Category::kOptimizer, "muon",
                                                   {{"exclude_layers", {"d[1", "fine"}}})}}),
      inner);
  REQUIRE(inner.num_errors() == 1);
  CHECK(inner.list()[0].code == "E201");
  Diagnostics nested;
  const ConfigObject scaled =
      make_object(Category::kOptimizer, "LossScaleOptimizer",
                  {{"inner_optimizer", make_object(Category::kOptimizer, "sgd")}});
  check_optimizer(
      make_object(Category::kOptimizer, "LossScaleOptimizer", {{"inner_optimizer", scaled}}),
      nested);
  REQUIRE(nested.num_errors() == 1);
  CHECK(nested.list()[0].message == "a LossScaleOptimizer cannot be inside of another");
  Diagnostics fine;
  check_optimizer(make_object(Category::kOptimizer, "adam"), fine);
  CHECK(fine.num_errors() == 0);
}

}  // namespace
}  // namespace meshtrain::testing
