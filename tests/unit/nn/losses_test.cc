// Values computed by Keras in float32.
#include <cmath>

#include "config/catalogue.h"
#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

HostTensor probabilities() {
  return floats({2, 3}, {.05, .9, .05, .1, .8, .1});
}
HostTensor one_hot_classes() {
  return floats({2, 3}, {0, 1, 0, 0, 0, 1});
}

double loss_of(const ConfigObject& loss, const HostTensor& y, const HostTensor& p,
               const HostTensor* weight = nullptr) {
  std::vector<const HostTensor*> inputs = {&y, &p};
  if (weight != nullptr) {
    inputs.push_back(weight);
  }
  const auto values = run_one(inputs, [&](Builder& b, const std::vector<ValueId>& in) {
    return add_loss(b, loss, in[0], in[1], weight == nullptr ? kNone : in[2]);
  });
  REQUIRE(values.size() == 1);
  return values[0];
}

ConfigObject loss(const char* name, const NamedArgs& args = {}) {
  return make_object(Category::kLoss, name, args);
}

TEST_CASE("crossentropies of classes have Keras' values") {
  const HostTensor p = probabilities();
  const HostTensor y = one_hot_classes();
  const HostTensor ids = ints({2}, {1, 2});
  const HostTensor column = ints({2, 1}, {1, 2});
  const HostTensor twice = floats({2, 3}, {.1, 1.8, .1, .2, 1.6, .2});
  check_near({loss_of(loss("categorical_crossentropy"), y, p)}, {1.2039728});
  check_near({loss_of(loss("categorical_crossentropy"), y, twice)}, {1.2039728});
  check_near({loss_of(loss("sparse_categorical_crossentropy"), ids, p)}, {1.2039728});
  check_near({loss_of(loss("sparse_categorical_crossentropy"), ids, twice)}, {1.2039728});
  check_near({loss_of(loss("sparse_categorical_crossentropy"), column, p)}, {1.2039728});
  check_near({loss_of(loss("CategoricalCrossentropy", {{"from_logits", true}}), y, p)},
             {1.0037599});
  check_near({loss_of(loss("SparseCategoricalCrossentropy", {{"from_logits", true}}), ids, p)},
             {1.0037599});
  check_near({loss_of(loss("CategoricalCrossentropy", {{"label_smoothing", .1}}), y, p)},
             {1.2656612});
  check_near({loss_of(loss("SparseCategoricalCrossentropy", {{"ignore_class", 1}}), ids, p)},
             {2.3025851});
}

TEST_CASE("class ids may be of any stored dtype") {
  const HostTensor p = probabilities();
  for (const DType dtype : {DType::kUInt8, DType::kInt64, DType::kFloat32}) {
    const HostTensor ids = tensor_of<int>(dtype, {2}, {1, 2});
    check_near({loss_of(loss("sparse_categorical_crossentropy"), ids, p)}, {1.2039728});
  }
}

TEST_CASE("the class axis may be another than the last") {
  const HostTensor p = floats({1, 3, 2}, {.05, .1, .9, .8, .05, .1});
  const HostTensor ids = ints({1, 2}, {1, 2});
  const HostTensor y = floats({1, 3, 2}, {0, 0, 1, 0, 0, 1});
  check_near({loss_of(loss("SparseCategoricalCrossentropy", {{"axis", 1}}), ids, p)}, {1.2039728});
  check_near({loss_of(loss("CategoricalCrossentropy", {{"axis", 1}}), y, p)}, {1.2039728});
}

TEST_CASE("a focal crossentropy may weigh each class") {
  const NamedArgs args = {{"alpha", {.1, .5, .9}}};
  check_near(
      {loss_of(loss("CategoricalFocalCrossentropy", args), one_hot_classes(), probabilities()),
       loss_of(loss("CategoricalFocalCrossentropy", {{"alpha", {.5}}}), one_hot_classes(),
               probabilities())},
      {.8395557, .4665369});
  const HostTensor p = floats({1, 3, 2}, {.05, .1, .9, .8, .05, .1});
  const HostTensor y = floats({1, 3, 2}, {0, 0, 1, 0, 0, 1});
  NamedArgs with_axis = args;
  with_axis.emplace_back("axis", 1);
  check_near({loss_of(loss("CategoricalFocalCrossentropy", with_axis), y, p)}, {.8395557});
  Diagnostics diagnostics;
  check_loss(loss("CategoricalFocalCrossentropy", args), {kUnknownDim, 2}, {kUnknownDim, 2},
             diagnostics);
  REQUIRE(diagnostics.num_errors() == 1);
  CHECK(diagnostics.list()[0].code == "E123");
}

TEST_CASE("the word crossentropy is the loss that fits the shapes") {
  constexpr int64_t kBatch = kUnknownDim;
  const auto fitting = [](const char* word, const Shape& y, const Shape& p) {
    return fitting_loss(loss(word), y, p).class_name;
  };
  CHECK(fitting("crossentropy", {kBatch}, {kBatch, 1}) == "BinaryCrossentropy");
  CHECK(fitting("ce", {kBatch, 1}, {kBatch, 1}) == "BinaryCrossentropy");
  CHECK(fitting("ce", {kBatch}, {kBatch, 3}) == "SparseCategoricalCrossentropy");
  CHECK(fitting("CE", {kBatch, 1}, {kBatch, 3}) == "SparseCategoricalCrossentropy");
  CHECK(fitting("CrossEntropy", {kBatch, 5}, {kBatch, 5, 3}) == "SparseCategoricalCrossentropy");
  CHECK(fitting("ce", {kBatch, 3}, {kBatch, 3}) == "CategoricalCrossentropy");
  CHECK(fitting("mse", {kBatch, 1}, {kBatch, 1}) == "MeanSquaredError");
  const ConfigObject sparse = fitting_loss(loss("ce"), {2}, {2, 3});
  check_near({loss_of(sparse, ints({2}, {1, 2}), probabilities())}, {1.2039728});
}

TEST_CASE("sample weights and reductions follow Keras") {
  const HostTensor p = probabilities();
  const HostTensor y = one_hot_classes();
  const HostTensor weight = floats({2}, {.3, .7});
  const auto reduced = [&](const char* reduction) {
    return loss_of(loss("CategoricalCrossentropy", {{"reduction", reduction}}), y, p, &weight);
  };
  check_near({reduced("sum_over_batch_size"), reduced("mean"), reduced("mean_with_sample_weight"),
              reduced("sum")},
             {.8217089, .8217089, 1.6434178, 1.6434178});
  const HostTensor zero = floats({2}, {0, 0});
  check_near({loss_of(loss("CategoricalCrossentropy", {{"reduction", "mean_with_sample_weight"}}),
                      y, p, &zero)},
             {0});
}

TEST_CASE("a mask and weights together count valid positions") {
  const HostTensor p = probabilities();
  const HostTensor ids = ints({2}, {1, 2});
  const HostTensor weight = floats({2}, {.3, .7});
  const ConfigObject ignoring = loss("SparseCategoricalCrossentropy", {{"ignore_class", 1}});
  check_near({loss_of(ignoring, ids, p, &weight)}, {.7 * 2.3025851});
  const HostTensor none = ints({2}, {1, 1});
  check_near({loss_of(ignoring, none, p)}, {0});
}

TEST_CASE("binary crossentropy has Keras' values") {
  const HostTensor y = floats({2, 2}, {0, 1, 0, 0});
  const HostTensor p = floats({2, 2}, {.6, .4, .4, .6});
  const HostTensor logits = floats({2, 2}, {-18.6, .51, 2.94, -12.8});
  check_near({loss_of(loss("binary_crossentropy"), y, p)}, {.8149245});
  check_near({loss_of(loss("BinaryCrossentropy", {{"label_smoothing", .2}}), y, p)}, {.7946512});
  check_near({loss_of(loss("BinaryCrossentropy", {{"from_logits", true}}), y, logits)}, {.8654578});
}

TEST_CASE("regression losses have Keras' values") {
  const HostTensor y = floats({2, 2}, {1, 2, 3, 4});
  const HostTensor p = floats({2, 2}, {1.5, 1, 3, 6});
  check_near({loss_of(loss("mse"), y, p), loss_of(loss("mae"), y, p), loss_of(loss("huber"), y, p)},
             {1.3125, .875, .53125});
}

TEST_CASE("losses beyond the catalogue have Keras' values") {
  const HostTensor y = floats({2, 2}, {1, 2, 3, 4});
  const HostTensor p = floats({2, 2}, {1.5, 1, 3, 6});
  const auto named = [](const char* class_name) {
    ConfigObject object;
    object.class_name = class_name;
    return object;
  };
  check_near({loss_of(named("MeanAbsolutePercentageError"), y, p)}, {37.5}, 1e-5);
  check_near({loss_of(named("MeanSquaredLogarithmicError"), y, p)}, {.0818522});
  check_near({loss_of(named("CosineSimilarity"), y, p)}, {-.9260565});
  check_near({loss_of(named("LogCosh"), y, p)}, {.4697245});
  check_near({loss_of(named("Poisson"), y, p)}, {.1579149});
  const HostTensor binary = floats({2, 2}, {0, 1, 0, 0});
  const HostTensor q = floats({2, 2}, {.6, .4, .4, .6});
  check_near(
      {loss_of(named("Hinge"), binary, q), loss_of(named("SquaredHinge"), binary, q),
       loss_of(named("CategoricalHinge"), binary, q), loss_of(named("KLDivergence"), binary, q)},
      {1.3, 1.86, 1.4, .4581431});
}

TEST_CASE("focal and generalised crossentropies and overlaps have Keras' values") {
  const HostTensor p = probabilities();
  check_near({loss_of(loss("CategoricalFocalCrossentropy"), one_hot_classes(), p),
              loss_of(loss("CategoricalGeneralizedCrossEntropy"), ints({2}, {1, 2}), p)},
             {.2332684, .7350889});
  const HostTensor binary = floats({2, 2}, {0, 1, 0, 0});
  const HostTensor q = floats({2, 2}, {.6, .4, .4, .6});
  check_near(
      {loss_of(loss("BinaryFocalCrossentropy"), binary, q),
       loss_of(loss("BinaryFocalCrossentropy", {{"apply_class_balancing", true}}), binary, q),
       loss_of(loss("Dice"), binary, q), loss_of(loss("Tversky"), binary, q),
       loss_of(loss("Tversky", {{"alpha", .3}, {"beta", .7}}), binary, q)},
      {.2678315, .1596406, .7333333, .7333333, .6923077});
}

TEST_CASE("a circle loss without pairs is 0 and has no gradient") {
  const HostTensor labels = ints({3}, {0, 1, 2});  // no two of one label
  const HostTensor p = floats({3, 2}, {1, 0, 0, 1, .6, .8});
  const auto g = run_one({&labels, &p}, [&](Builder& b, const std::vector<ValueId>& in) {
    const ValueId value = add_loss(b, loss("Circle"), in[0], in[1], kNone);
    return gradients(b, value, std::span(&in[1], 1))[0];
  });
  check_near(g, {0, 0, 0, 0, 0, 0});
}

TEST_CASE("ctc refuses labels that do not fit the steps") {
  Diagnostics diagnostics;
  check_loss(loss("CTC"), {kUnknownDim, 7}, {kUnknownDim, 6, 5}, diagnostics);
  CHECK(diagnostics.num_errors() == 1);
  check_loss(loss("CTC"), {kUnknownDim, 3}, {kUnknownDim, 5}, diagnostics);
  CHECK(diagnostics.num_errors() == 2);
}

TEST_CASE("ranks that differ by a last dimension of 1 are repaired") {
  const HostTensor vector = floats({2}, {1, 3});
  const HostTensor column = floats({2, 1}, {2, 5});
  check_near({loss_of(loss("mse"), vector, column), loss_of(loss("mse"), column, vector)},
             {2.5, 2.5});
}

TEST_CASE("the gradient of crossentropy from logits is softmax minus target") {
  const HostTensor ids = ints({2}, {1, 2});
  const HostTensor logits = floats({2, 3}, {1, 2, 3, 0, 0, 0});
  const auto g = run_one({&ids, &logits}, [&](Builder& b, const std::vector<ValueId>& in) {
    const ValueId value = add_loss(
        b, loss("SparseCategoricalCrossentropy", {{"from_logits", true}}), in[0], in[1], kNone);
    return gradients(b, value, std::span(&in[1], 1))[0];
  });
  check_near(g, {.0900306 / 2, -.7552715 / 2, .6652410 / 2, 1.0 / 6, 1.0 / 6, -1.0 / 3});
}

std::string complaint(const ConfigObject& object, const Shape& y, const Shape& p) {
  Diagnostics diagnostics;
  check_loss(object, y, p, diagnostics);
  if (diagnostics.num_errors() == 0) {
    return "";
  }
  CHECK(diagnostics.list()[0].code == "E123");
  return diagnostics.list()[0].message + " | " + diagnostics.list()[0].notes[0];
}

TEST_CASE("targets that do not fit are explained") {
  constexpr int64_t kBatch = kUnknownDim;
  CHECK(complaint(loss("mse"), {kBatch, 10}, {kBatch, 10}).empty());
  CHECK(complaint(loss("mse"), {kBatch}, {kBatch, 1}).empty());
  CHECK(complaint(loss("sparse_categorical_crossentropy"), {kBatch}, {kBatch, 10}).empty());
  CHECK(complaint(loss("sparse_categorical_crossentropy"), {kBatch, 1}, {kBatch, 10}).empty());
  CHECK(complaint(loss("sparse_categorical_crossentropy"), {kBatch, 5}, {kBatch, 5, 10}).empty());
  CHECK(complaint(loss("categorical_crossentropy"), {kBatch}, {kBatch, 10}) ==
        "CategoricalCrossentropy cannot compare targets (None,) with outputs (None, 10) | help: "
        "these targets are class ids: use sparse_categorical_crossentropy, or `data: {label: "
        "{one_hot: 10}}`");
  CHECK(complaint(loss("sparse_categorical_crossentropy"), {kBatch, 10}, {kBatch, 10}) ==
        "SparseCategoricalCrossentropy cannot compare targets (None, 10) with outputs (None, 10) | "
        "help: these targets are one value per class: use categorical_crossentropy");
  CHECK(doctest::String(complaint(loss("mse"), {kBatch}, {kBatch, 10}).c_str()) ==
        doctest::Contains("one_hot: 10"));
  CHECK(doctest::String(complaint(loss("mse"), {kBatch, 3}, {kBatch, 10}).c_str()) ==
        doctest::Contains("targets must have the output's shape (None, 10)"));
  Diagnostics diagnostics;
  check_loss(loss("CategoricalCrossentropy", {{"reduction", "none"}}), {kBatch, 2}, {kBatch, 2},
             diagnostics);
  CHECK(diagnostics.num_errors() == 1);
}

TEST_CASE("a loss implies the shape of its targets") {
  CHECK(implied_target_shape(loss("mse"), {8, 10}) == Shape{8, 10});
  CHECK(implied_target_shape(loss("sparse_categorical_crossentropy"), {8, 5, 10}) == Shape{8, 5});
  CHECK(loss_takes_class_ids(loss("sparse_categorical_crossentropy")));
  CHECK(!loss_takes_class_ids(loss("categorical_crossentropy")));
  CHECK(is_classification(loss("bce")));
  CHECK(!is_classification(loss("mse")));
}

}  // namespace
}  // namespace meshtrain::testing
