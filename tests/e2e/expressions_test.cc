// Expressions over tensors as layers, losses and metrics; what of losses and layers has a
// derivative only by convention; and the callback that runs a command.
#include <doctest/doctest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "command.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

// Two branches and what `layers` makes of them; `compile` and more keys follow.
std::string config(const std::string& layers, const std::string& rest) {
  return "dtype_policy: float64\nvars: {k: 0.5}\nmodel:\n  layers:\n"
         "    - Input: {shape: [4], name: in}\n"
         "    - Dense: {units: 6, name: a, inputs: in}\n"
         "    - Dense: {units: 6, name: b, inputs: in}\n" +
         layers +
         "data:\n  train: {source: random, samples: 64, shape: [4], labels: [6]}\n"
         "fit: {epochs: 3, batch_size: 16}\n" +
         rest;
}

const std::string kFormula =
    "    - Lambda:\n        name: z\n        inputs: [a, b]\n"
    "        function: =a * exp(-b) * k + mean(a, axis=-1, keepdims=True)\n";

std::string text_of(const TemporaryFolder& folder, const std::string& name) {
  return read_file(folder.file(name), 1 << 20);
}

struct Training {
  Result result;
  std::vector<Json> logs;  // of the epochs
};

Training train(const std::string& yaml, std::vector<std::string> words = {}) {
  const TemporaryFolder folder;
  folder.write("c.yaml", yaml);
  std::vector<std::string> args = {"train", "c.yaml", "-o", "run", "--log-format", "json"};
  args.insert(args.end(), words.begin(), words.end());
  Training out{meshtrain(args, folder.path()), {}};
  for (const std::string& line : lines_of(out.result.out)) {
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_object() && event.value("event", "") == "epoch") {
      out.logs.push_back(event["logs"]);
    }
  }
  return out;
}

void check_same(const Training& a, const Training& b, const std::string& log = "loss") {
  REQUIRE_MESSAGE(a.result.exit_code == 0, a.result.err);
  REQUIRE_MESSAGE(b.result.exit_code == 0, b.result.err);
  REQUIRE(a.logs.size() == 3);
  REQUIRE(b.logs.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const double x = a.logs[i]["loss"], y = b.logs[i][log];
    CHECK(std::abs(x - y) <= 1e-9 * std::abs(x));
  }
}

TEST_CASE("an expression of the built-in loss trains like it, and is a metric under its name") {
  const Training built_in = train(config(kFormula, "compile: {optimizer: sgd, loss: mse}\n"));
  const std::string mse = "\"=mean(square(y_true - y_pred), axis=-1)\"";
  const Training own = train(
      config(kFormula, "compile: {optimizer: sgd, loss: " + mse +
                           ", metrics: [mse, {Lambda: {name: mine, function: " + mse + "}}]}\n"));
  check_same(built_in, own);
  check_same(own, own, "mine");
}

TEST_CASE("expressions have the same numbers on a mesh") {
  const std::string yaml =
      config(kFormula + "    - Lambda: \"=x * softmax(x, axis=-1) - x[:, ::-1] / (norm(x) + 1)\"\n",
             "compile: {optimizer: sgd, loss: \"=sum(abs(y_true - y_pred) * k, axis=-1)\"}\n"
             "distribution: {type: ModelParallel, device_mesh: {shape: [1, 1], axis_names: [data, "
             "model]}, "
             "layout_map: {a/kernel: [null, model], b/kernel: [model, null]}}\n");
  check_same(train(yaml), train(yaml, {"--mesh", "2x2", "--devices", "cpu:4"}));
}

TEST_CASE("numbers of `vars`, of blocks and of a Repeat are those of the use") {
  const std::string compile = "compile: {optimizer: sgd, loss: mse}\n";
  const std::string plain =
      "    - Add: {inputs: [a, b]}\n    - Lambda: \"=x * 3 + 0.25\"\n    - Lambda: \"=x * 2 + "
      "0.25\"\n";
  const std::string block =
      "    - Add: {inputs: [a, b]}\n    - Scaled: {factor: 3}\n    - Scaled: {factor: 2}\n";
  const std::string rest = compile +
                           "blocks:\n  Scaled:\n    params: {factor}\n    layers:\n"
                           "      - Lambda: \"=x * factor + k / 2\"\n";
  check_same(train(config(plain, compile)), train(config(block, rest)));
  check_same(train(config(plain, compile), {}),
             train(config("    - Add: {inputs: [a, b]}\n    - Lambda: \"=x * (3 if k > 1 else 9) + "
                          "0.25\"\n    - Lambda: \"=x * k + 0.25\"\n",
                          compile),
                   {"vars.k=2"}));
}

TEST_CASE("a Lambda names its inputs as it writes them, in a block and of a block") {
  const std::string compile = "compile: {optimizer: sgd, loss: mse}\n";
  const Training plain = train(
      config("    - Lambda: {name: z, inputs: [a, b], function: \"=b - 10 * a\"}\n", compile));
  check_same(plain, train(config("    - Lambda: {name: z, inputs: {new: b, old: a}, function: "
                                 "\"=new - 10 * old\"}\n",
                                 compile)));
  const std::string block =
      "blocks:\n  Diff:\n    inputs: [a, b]\n    layers:\n"
      "      - Lambda: {name: out, inputs: [a, b], function: \"=a - 10 * b\"}\n";
  check_same(plain, train(config("    - Diff: {name: d, inputs: [b, a]}\n", compile + block)));
  // Of uses of a block, whose layers have one name.
  const std::string twice = "blocks:\n  Same:\n    layers: [{Identity: {name: w}}]\n";
  check_same(plain, train(config("    - Same: {name: g, inputs: a}\n"
                                 "    - Same: {name: h, inputs: b}\n"
                                 "    - Lambda: {inputs: [g, h], function: \"=h - 10 * g\"}\n",
                                 compile + twice)));
  const Training both =
      train(config("    - Same: {name: g, inputs: a}\n"
                   "    - Same: {name: h, inputs: b}\n"
                   "    - Lambda: {inputs: [g/w, h/w], function: \"=w - 10\"}\n",
                   compile + twice));
  CHECK(both.result.exit_code == 2);
  CHECK(contains(both.result.err, "there is no `w`"));
}

namespace {

// A model that adds what an expression gives to its input.
Training adding(const std::string& expression) {
  return train(config(
      "    - Lambda: {inputs: [a, b], function: \"=a + cast(" + expression + ", 'float64')\"}\n",
      "compile: {optimizer: sgd, loss: mse}\n"));
}

}  // namespace

TEST_CASE("sums and products of bools are bools") {
  check_same(adding("(a > -9) + (b > -9)"), adding("logical_or(a > -9, b > -9)"));
  check_same(adding("(a > 0) * (b > 0)"), adding("logical_and(a > 0, b > 0)"));
}

TEST_CASE("numbers beyond the integers become the nearest one, and NaN 0") {
  const Training yes = adding("(a > -9) * (b > -9)");
  for (const char* expression :
       {"cast(b * 0 + 3e9, 'int32') == 2147483647", "cast(b * 0 - 3e9, 'int32') < -2147483647",
        "cast(sqrt(b * 0 - 1), 'int32') == 0", "cast(b * 0 - 2.7, 'int32') == -2"}) {
    CAPTURE(expression);
    check_same(adding(expression), yes);
  }
}

TEST_CASE("a wrong expression is an error at its place") {
  struct Case {
    std::string function, at, says;
  };
  for (const Case& c : std::vector<Case>{
           {"=a * exq(-b)", "c.yaml:11:24", "there is no function `exq` of tensors"},
           {"=a * bb", "c.yaml:11:24", "there is no `bb`"},
           {"=a + b[:, 7]", "c.yaml:11:25", "index 7 is outside of axis 1, whose size is 6"},
           {"=sum(a, axis=3) + b", "c.yaml:11:20", "there is no axis 3 in 2 dimensions"},
           {"=a + b['x']", "c.yaml:11:26", "an index must be an integer"},
           {"=a if b > 0 else -a", "c.yaml:11:22", "not by the elements of a tensor"},
           {"=matmul(a, b)", "c.yaml:11:20", "(None, 6) and (None, 6) cannot be multiplied"},
           {"=max(a, 0) + b", "c.yaml:11:27", "the second argument of max is the axis"},
           {"=mean(a) + mean(b)", "c.yaml:8:7", "first dimension is not the batch"},
           {"=a +* b", "c.yaml:11:23", "is unexpected"},
           {"=a @ b", "c.yaml:11:22", "help: write matmul(a, b)"},
           {"=(a > 0) & (b > 0)", "c.yaml:11:28", "help: write logical_and(a, b)"},
           {"=(a > 0) | (b > 0)", "c.yaml:11:28", "help: write logical_or(a, b)"},
           {"=a + ~(b > 0)", "c.yaml:11:24", "help: write logical_not(a)"},
           {"=softmax(a, axis=[0, 1]) + b", "c.yaml:11:20", "`axis` must be an integer"},
           {"=matmul(cast(a, 'int32'), cast(b, 'int32'))", "c.yaml:11:20",
            "products are of floats"},
           {"=mean(a, keepdims=1) + b", "c.yaml:11:20", "`keepdims` must be true or false"},
           {"=clip(a, x_min=0) + b", "c.yaml:11:20", "clip needs `x_max`"},
           {"=a + mean(b, axis=1)", "c.yaml:11:22", "do not broadcast"},
           {"=a - -b * 'text'", "c.yaml:11:27", "is no number"},
           {"=a", "c.yaml:8:7", "does not use the input `b`"},
           {"=a + b" + std::string(300, '('), "c.yaml:11", "nested too deeply"}}) {
    CAPTURE(c.function);
    const TemporaryFolder folder;
    folder.write(
        "c.yaml",
        config("    - Lambda:\n        name: z\n        inputs: [a, b]\n        function: " +
                   c.function + "\n",
               "compile: {optimizer: sgd, loss: mse}\n"));
    const Result result = meshtrain({"validate", "c.yaml"}, folder.path());
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(contains(result.err + result.out, c.at), result.err);
    CHECK_MESSAGE(contains(result.err + result.out, c.says), result.err);
    CHECK(contains(result.err + result.out, "1 error"));
  }
}

TEST_CASE("a wrong loss is an error at its place") {
  const Training unknown =
      train(config(kFormula, "compile: {optimizer: sgd, loss: \"=mean(y_tru - y_pred)\"}\n"));
  CHECK(unknown.result.exit_code == 2);
  CHECK(contains(unknown.result.err, "did you mean `y_true`?"));
  const Training batch = train(
      config(kFormula, "compile: {optimizer: sgd, loss: \"=mean(y_true - y_pred, axis=0)\"}\n"));
  CHECK(batch.result.exit_code == 2);
  CHECK(contains(batch.result.err, "neither values per sample nor a single one"));
}

// Two outputs, a and b, each with targets; `compile` follows.
std::string two_outputs(const std::string& compile) {
  return "dtype_policy: float64\nmodel:\n  layers:\n"
         "    - Input: {shape: [4], name: in}\n"
         "    - Dense: {units: 6, name: a, inputs: in}\n"
         "    - Dense: {units: 6, name: b, inputs: in}\n"
         "  outputs: [a, b]\n"
         "data:\n  train: {source: csv, path: t.csv, features: [p, q, r, s],\n"
         "    label: {a: [k, l, m, n, o, z], b: [k, l, m, n, o, z]}}\n"
         "fit: {epochs: 3, batch_size: 16}\n"
         "distribution: {type: ModelParallel, device_mesh: {shape: [1, 1], axis_names: [data, "
         "model]}, layout_map: {a/kernel: [null, model], b/kernel: [model, null]}}\n" +
         compile;
}

Training train_two(const std::string& compile, std::vector<std::string> words = {}) {
  const TemporaryFolder folder;
  std::string table = "p,q,r,s,k,l,m,n,o,z\n";
  for (int row = 0; row < 48; ++row) {
    for (int column = 0; column < 10; ++column) {
      table += std::to_string((row * 7 + column * 13) % 11 / 10.0) + (column < 9 ? "," : "\n");
    }
  }
  folder.write("t.csv", table);
  folder.write("c.yaml", two_outputs(compile));
  std::vector<std::string> args = {"train", "c.yaml", "-o", "run", "--log-format", "json"};
  args.insert(args.end(), words.begin(), words.end());
  Training out{meshtrain(args, folder.path()), {}};
  for (const std::string& line : lines_of(out.result.out)) {
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_object() && event.value("event", "") == "epoch") {
      out.logs.push_back(event["logs"]);
    }
  }
  return out;
}

TEST_CASE("losses and metrics name the model's other outputs, whose weights they train") {
  const std::string mse = "\"=mean(square(y_true - y_pred), axis=-1)\"";
  // The loss of `a` also has that of `b`, which has none of its own: the same sum.
  const Training each =
      train_two("compile: {optimizer: sgd, loss: {a: mse, b: mse}, metrics: {b: [mse]}}\n");
  const Training named = train_two(
      "compile:\n  optimizer: sgd\n  loss:\n"
      "    a: \"=mean(square(y_true - a), axis=-1) + mean(square(y_true - b), axis=-1)\"\n"
      "  metrics: {a: [{Lambda: {name: of_b, function: \"=mean(square(y_true - b), "
      "axis=-1)\"}}]}\n");
  check_same(each, named);
  for (size_t i = 0; i < 3; ++i) {
    const double x = each.logs[i]["b_mse"], y = named.logs[i]["a_of_b"];
    CHECK(std::abs(x - y) <= 1e-9 * std::abs(x));
  }
  const Training on_mesh = train_two(
      "compile:\n  optimizer: sgd\n  loss:\n"
      "    a: \"=mean(square(y_true - a), axis=-1) + mean(square(y_true - b), axis=-1)\"\n",
      {"--mesh", "2x2", "--devices", "cpu:4"});
  check_same(each, on_mesh);
  const Training wrong = train_two(
      "compile: {optimizer: sgd, loss: {a: \"=mean(y_true - bb, axis=-1)\", b: " + mse + "}}\n");
  CHECK(wrong.result.exit_code == 2);
  CHECK_MESSAGE(contains(wrong.result.err, "there is no `bb`"), wrong.result.err);
  const Training shape =
      train_two("compile: {optimizer: sgd, loss: {a: \"=mean(y_true - b[:, :4], axis=-1)\"}}\n");
  CHECK(shape.result.exit_code == 2);
  CHECK_MESSAGE(contains(shape.result.err, "do not broadcast"), shape.result.err);
}

TEST_CASE("a huge expression is refused") {
  std::string sum = "=a";
  for (int i = 0; i < 1200; ++i) {
    sum += " + b";
  }
  const Training huge = train(config("    - Lambda: {inputs: [a, b], function: \"" + sum + "\"}\n",
                                     "compile: {optimizer: sgd, loss: mse}\n"));
  CHECK(huge.result.exit_code == 2);
  CHECK(contains(huge.result.err, "more than 1000 operations"));
}

TEST_CASE("a loss that is an expression is left out of a file for Keras") {
  const TemporaryFolder folder;
  folder.write("c.yaml", config(kFormula, "compile: {optimizer: sgd, loss: =y_true - y_pred}\n"));
  const Result result = meshtrain({"export", "c.yaml", "-o", "m.json"}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(contains(result.err, "note: the file lacks the losses and metrics that are expressions\n"));
}

TEST_CASE("what a model predicts needs no loss over class ids that is an expression") {
  const TemporaryFolder folder;
  folder.write("c.yaml", R"yaml(
data: {train: {source: random, samples: 8, shape: [3], classes: 4}}
model: {layers: [{Input: {shape: [3]}}, {Dense: 4}]}
compile: {loss: "=mean(square(one_hot(cast(y_true, 'int32'), 4) - y_pred), axis=-1)"}
)yaml");
  folder.write("x.csv", "1,2,3\n4,5,6\n");
  const auto run = [&](std::vector<std::string> words) {
    const Result result = meshtrain(std::move(words), folder.path());
    CHECK_MESSAGE(result.exit_code == 0, result.err);
  };
  run({"train", "c.yaml", "-q", "-o", "run"});
  run({"evaluate", "run"});
  run({"predict", "run", "-i", "x.csv", "-o", "y.csv"});
  for (const char* file : {"m.keras", "m.onnx", "m.npz"}) {
    run({"export", "run", "-o", file});
  }
}

TEST_CASE("a Lambda is exported as operations of keras.ops") {
  const TemporaryFolder folder;
  folder.write("c.yaml", config(kFormula, "compile: {optimizer: sgd, loss: mse}\n"));
  REQUIRE(meshtrain({"export", "c.yaml", "-o", "m.json"}, folder.path()).exit_code == 0);
  const Json model = Json::parse(text_of(folder, "m.json"));
  std::string names;
  for (const Json& layer : model["config"]["layers"]) {
    names += layer["class_name"].get<std::string>() + " ";
  }
  CHECK(contains(names, "Negative Exp Multiply Multiply Mean Add"));
  REQUIRE(meshtrain({"export", "c.yaml", "-o", "m.py"}, folder.path()).exit_code == 0);
  CHECK(contains(text_of(folder, "m.py"), "keras.ops.mean(a, axis=-1, keepdims=True)"));
}

// --- derivatives by convention -----------------------------------------------------------------

// Trains on samples whose outputs are exact zeros, or exact probabilities; the last loss.
double loss_of(const std::string& layers, const std::string& loss, const std::string& labels) {
  const Training done = train("model:\n  layers:\n    - Input: {shape: [2], name: in}\n" + layers +
                              "compile: {optimizer: {SGD: {learning_rate: 0.1}}, loss: " + loss +
                              "}\n" + "data:\n  train: {source: random, samples: 32, shape: [2], " +
                              labels + "}\n" + "fit: {epochs: 3, batch_size: 8}\n");
  REQUIRE_MESSAGE(done.result.exit_code == 0, done.result.err);
  REQUIRE(done.logs.size() == 3);
  return done.logs[2]["loss"];
}

TEST_CASE("generalized cross-entropy of probabilities that are exactly 0 stays finite") {
  const double loss = loss_of(
      "    - Dense: {units: 2, kernel_initializer: {Identity: {gain: 300}}}\n    - Softmax\n",
      "CategoricalGeneralizedCrossEntropy", "classes: 2");
  CHECK(std::isfinite(loss));
}

// The layer that gives zeros learns nothing: the same as where it is frozen.
void check_zero_derivative(const std::string& rest, const std::string& loss,
                           const std::string& labels) {
  const std::string zeros =
      "    - Dense: {units: 3, kernel_initializer: zeros, use_bias: false, name: p";
  const double trained = loss_of(zeros + "}\n" + rest, loss, labels);
  CHECK(trained == loss_of(zeros + ", trainable: false}\n" + rest, loss, labels));
}

TEST_CASE("of two equal operands of logaddexp each has half of the derivative") {
  const std::string zeros = "{units: 2, kernel_initializer: zeros, inputs: in, name: ";
  const std::string layers = "    - Dense: " + zeros + "p}\n    - Dense: " + zeros + "q}\n";
  const auto loss = [&](const std::string& function) {
    return loss_of(layers + "    - Lambda: {inputs: [p, q], function: \"=" + function + "\"}\n",
                   "mse", "labels: [2]");
  };
  const double expected = loss("log(exp(p) + exp(q))");
  CHECK(loss("logaddexp(p, q)") == doctest::Approx(expected).epsilon(1e-5));
  CHECK(loss("logaddexp2(p / 0.6931471805599453, q / 0.6931471805599453) * 0.6931471805599453") ==
        doctest::Approx(expected).epsilon(1e-5));
}

TEST_CASE("logsumexp of infinities, and sinh near 0") {
  CHECK(loss_of("    - Lambda: \"=exp(logsumexp(stack([x * 0 - 1 / zeros_like(x), x * 0 - 1 / "
                "zeros_like(x)], axis=-1), axis=-1)) + 1\"\n    - Dense: 2\n",
                "mse", "labels: [2]") > 0);
  CHECK(loss_of("    - Lambda: \"=sinh(x * 0 + 1e-6) * 1e6\"\n", "mse", "labels: [2]") ==
        doctest::Approx(loss_of("    - Lambda: \"=x * 0 + 1\"\n", "mse", "labels: [2]")));
}

TEST_CASE("vectors of zeros have no direction and a derivative of 0") {
  const std::string last = "    - Dense: {units: 2}\n";
  check_zero_derivative("    - UnitNormalization\n" + last, "mse", "labels: [2]");
  check_zero_derivative(
      "    - Dense: {units: 3, name: q, inputs: in}\n"
      "    - Dot: {axes: 1, normalize: true, inputs: [p, q]}\n" +
          last,
      "mse", "labels: [2]");
  check_zero_derivative("    - Rescaling: {scale: 2}\n", "CosineSimilarity", "labels: [3]");
}

// --- RunCommand --------------------------------------------------------------------------------

Result run_with(const TemporaryFolder& folder, const std::string& callback) {
  folder.write("c.yaml",
               config("    - Add: {inputs: [a, b]}\n",
                      "compile: {optimizer: sgd, loss: mse}\ncallbacks:\n  - RunCommand: " +
                          callback + "\n"));
  return meshtrain({"train", "c.yaml", "-o", "run"}, folder.path());
}

TEST_CASE("a command gets each epoch as JSON") {
  const TemporaryFolder folder;
  const Result result =
      run_with(folder, "{command: [sh, -c, \"cat >> got.jsonl; echo said\"], name: notify}");
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  const std::vector<std::string> lines = lines_of(text_of(folder, "got.jsonl"));
  REQUIRE(lines.size() == 3);
  const Json last = Json::parse(lines[2]);
  CHECK(last["epoch"] == 3);
  CHECK(last["epochs"] == 3);
  CHECK(last["name"] == "notify");
  CHECK(last["logs"].contains("loss"));
  CHECK(!contains(result.out, "said"));
  CHECK(contains(result.err, "said"));
}

TEST_CASE("a command that fails is reported, and stops nothing unless asked") {
  const TemporaryFolder folder;
  const Result fails = run_with(folder, "{command: [sh, -c, exit 3]}");
  CHECK(fails.exit_code == 0);
  CHECK_MESSAGE(contains(fails.err + fails.out, "after epoch 3: it ended with code 3"), fails.err);
  const std::vector<std::string> lines = lines_of(text_of(folder, "run/metrics.jsonl"));
  CHECK(std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
          return contains(line, "\"warning\"") && contains(line, "it ended with code 3");
        }) == 3);
  const TemporaryFolder second;
  const Result absent = run_with(second, "{command: no-such-program-here}");
  CHECK(absent.exit_code == 0);
  CHECK(contains(absent.err + absent.out, "it cannot be started"));
  const TemporaryFolder line;
  const Result as_line = run_with(line, "{command: 'cat > epoch.json'}");
  CHECK(contains(as_line.err + as_line.out, "a line for a shell is written as [sh, -c, "));
  const TemporaryFolder third;
  const Result slow = run_with(third, "{command: [sleep, \"100\"], timeout: 0.2}");
  CHECK(slow.exit_code == 0);
  CHECK(contains(slow.err + slow.out, "it took longer than 0.2 s and was killed"));
  const TemporaryFolder fourth;
  const Result stops = run_with(fourth, "{command: [\"false\"], on_error: stop}");
  CHECK(stops.exit_code == 7);
  CHECK_MESSAGE(contains(stops.err, "after epoch 1: it ended with code 1"), stops.err);
}

}  // namespace
}  // namespace meshtrain
