// The files of configs/, run as they are.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "command.h"
#include "support/instrumented.h"
#include "support/sampled.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

std::string config(const std::string& name) {
  return std::string(MESHTRAIN_SOURCE_DIR) + "/configs/" + name + ".yaml";
}

// The logs of the final evaluation.
Json evaluation(std::vector<std::string> args) {
  const TemporaryFolder folder;
  args.insert(args.begin(), "train");
  args.insert(args.end(), {"--log-format", "json", "-q"});
  Command command;
  command.args = args;
  command.folder = folder.path();
  const Result result = run(command, 300);
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return parse_json(lines_of(result.out).back())["logs"];
}

TEST_CASE("quickstart.yaml knows more than 97 of 100 digits") {
  CHECK(evaluation({config("quickstart")})["accuracy"].get<double>() > 0.97);
}

TEST_CASE("a linear model of the digits stays below 93 of 100") {
  const TemporaryFolder folder;
  const std::string path = folder.write("linear.yaml", R"(name: linear
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Rescaling: {scale: =1/255}
    - Flatten
    - Dense: 10
data: {train: digits, test: {source: digits, split: test}}
compile:
  optimizer: {Adam: {learning_rate: 1e-3}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 64, epochs: 12}
evaluate: {on: test}
)");
  const double accuracy = evaluation({path})["accuracy"].get<double>();
  CHECK(accuracy > 0.8);  // it has learned
  CHECK(accuracy < 0.93);
}

TEST_CASE("mirrored_mlp.yaml learns from raw pixels") {
  CHECK(evaluation({config("mirrored_mlp")})["sparse_categorical_accuracy"].get<double>() > 0.9);
}

TEST_CASE("tabular.yaml prices flats and says which are sold") {
  const Json logs = evaluation({config("tabular")});
  CHECK(logs["price_r2_score"].get<double>() > 0.94);
  CHECK(logs["price_mae"].get<double>() < 0.2);  // of prices 2.1 +- 1.2
  CHECK(logs["sold_auc"].get<double>() > 0.88);
  CHECK(logs["sold_accuracy"].get<double>() > 0.8);
  // loss_weights: 1 and 0.5.
  CHECK(logs["loss"].get<double>() ==
        doctest::Approx(logs["price_loss"].get<double>() + 0.5 * logs["sold_loss"].get<double>())
            .epsilon(1e-5));
}

TEST_CASE("a metric with one value per class is a list in the logs") {
  const Json logs =
      evaluation({config("quickstart"), "fit.epochs=1", "fit.limit_steps=5",
                  "compile.weighted_metrics=[{F1Score: {name: f1}}]", "data.label.one_hot=10",
                  "compile.loss=categorical_crossentropy", "compile.metrics=[accuracy]"});
  CHECK(logs["f1"].size() == 10);
}

TEST_CASE("a batch larger than the data is one step, with a warning; dropped it is an error") {
  const TemporaryFolder folder;
  Command command;
  command.args = {"train", config("tabular"), "fit.batch_size=5000", "fit.epochs=1", "-o", "run"};
  command.folder = folder.path();
  const Result one = run(command, 60);
  CHECK(one.exit_code == 0);
  CHECK(one.err.find("W316") != std::string::npos);
  CHECK(one.out.find("\n1/1 - ") != std::string::npos);

  command.args = {"train", config("tabular"), "fit.batch_size=5000", "data.remainder=drop",
                  "-o",    "dropped"};
  const Result dropped = run(command, 60);
  CHECK(dropped.exit_code == 3);
  CHECK(dropped.err.find("E316") != std::string::npos);
  CHECK(!std::filesystem::exists(std::filesystem::path(folder.path()) / "dropped"));
}

TEST_CASE("the guide's configs end at the same loss on all of the guide's meshes") {
  const double expected = evaluation({config("keras_guide_data_parallel")})["loss"];
  CHECK(std::isfinite(expected));
  for (const char* mesh : {"8x1", "4x2", "2x4", "1x8"}) {
    CAPTURE(mesh);
    const double loss = evaluation({config("keras_guide_model_parallel"), "--mesh", mesh})["loss"];
    CHECK(loss == doctest::Approx(expected).epsilon(1e-5));
  }
}

TEST_CASE("jax_guide_convnet_short.yaml knows 98 of 100 digits") {
  std::vector<std::string> args = {config("jax_guide_convnet_short")};
  if (test::kIsInstrumented) {
    args.insert(args.end(), {"data.train.samples=640", "data.test.samples=128", "fit.epochs=1"});
    CHECK(std::isfinite(evaluation(args)["loss"].get<double>()));
    return;
  }
  CHECK(evaluation(args)["accuracy"].get<double>() >= 0.98);
}

// Minutes long. The file as it is.
TEST_CASE("jax_guide_convnet.yaml knows 98 of 100 digits") {
  if (!test::runs_everything()) {
    MESSAGE("skipped: it runs under MESHTRAIN_TEST_LONG=1");
    return;
  }
  CHECK(evaluation({config("jax_guide_convnet")})["accuracy"].get<double>() >= 0.98);
}

// A config with MNIST's test set as its data, 9,000 images to learn from and 1,000 to be judged by;
// nothing where the set is not there, or the program is instrumented.
std::vector<std::string> with_mnist(const std::string& name) {
  namespace fs = std::filesystem;
  const char* given = std::getenv("MESHTRAIN_DATA");
  const fs::path folder =
      given ? fs::path(given) : fs::path(MESHTRAIN_SOURCE_DIR) / ".." / "shared" / "datasets";
  const fs::path images = fs::absolute(folder / "t10k-images-idx3-ubyte.gz");
  const fs::path labels = fs::absolute(folder / "t10k-labels-idx1-ubyte.gz");
  if (!fs::exists(images) || !fs::exists(labels) || test::kIsInstrumented) {
    MESSAGE(
        "skipped: MNIST's test set is neither at MESHTRAIN_DATA nor at ../shared/datasets, or "
        "the program is instrumented");
    return {};
  }
  const auto part = [&](const char* part_name, const char* slice) {
    return fmt::format("data.{}={{source: idx, images: {}, labels: {}, slice: \"{}\"}}", part_name,
                       images.string(), labels.string(), slice);
  };
  return {config(name), part("train", "[:9000]"), part("test", "[9000:]")};
}

TEST_CASE("jax_guide_convnet_short.yaml knows 97 of 100 of MNIST's images after its five epochs") {
  const std::vector<std::string> args = with_mnist("jax_guide_convnet_short");
  if (args.empty())
    return;
  CHECK(evaluation(args)["accuracy"].get<double>() >= 0.97);
}

// So does Keras: in 700 steps the moving statistics stay behind the weights.
TEST_CASE("jax_guide_convnet.yaml knows 90 of 100 of MNIST's images after five epochs") {
  std::vector<std::string> args = with_mnist("jax_guide_convnet");
  if (args.empty())
    return;
  args.push_back("fit.epochs=5");
  CHECK(evaluation(args)["accuracy"].get<double>() >= 0.90);
}

// What the best model of pairs would lose on `text`, in nats a character: H(next | last), counted
// in the text itself. No such model, however trained, does better on it.
double pair_entropy(const std::string& text) {
  std::vector<double> pairs(256 * 256), singles(256);
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const auto last = static_cast<unsigned char>(text[i]);
    pairs[last * size_t{256} + static_cast<unsigned char>(text[i + 1])] += 1;
    singles[last] += 1;
  }
  double entropy = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    entropy -= pairs[i] > 0 ? pairs[i] * std::log(pairs[i] / singles[i / 256]) : 0;
  }
  return entropy / static_cast<double>(text.size() - 1);
}

TEST_CASE("plans of language models have the published numbers of parameters") {
  const TemporaryFolder folder;
  for (const auto& [name, parameters] : std::vector<std::pair<std::string, std::string>>{
           {"gpt2_124m", "124,439,808"}, {"llama3_8b", "8,030,261,248"}}) {
    CHECK(meshtrain({"validate", config(name)}, folder.path()).exit_code == 0);
    const Result plan = meshtrain({"plan", config(name)}, folder.path());
    REQUIRE_MESSAGE(plan.exit_code == 0, plan.err);
    CHECK(contains(plan.out, "params    " + parameters + "\n"));
  }
}

TEST_CASE(
    "llama_tiny.yaml and moe_tiny.yaml learn their tales, vit_small.yaml and "
    "bert_tiny_classifier.yaml digits") {
  CHECK(evaluation({config("llama_tiny"), "fit.epochs=1"})["accuracy"].get<double>() > 0.7);
  CHECK(evaluation({config("moe_tiny"), "fit.epochs=1"})["accuracy"].get<double>() > 0.7);
  CHECK(evaluation({config("vit_small"), "fit.epochs=2"})["accuracy"].get<double>() > 0.8);
  CHECK(evaluation({config("bert_tiny_classifier"), "fit.epochs=2"})["accuracy"].get<double>() >
        0.8);
}

TEST_CASE("char_mlp.yaml learns more of its tales than pairs of characters") {
  const std::string text =
      read_file(std::string(MESHTRAIN_SOURCE_DIR) + "/datasets/tales.txt", 1 << 20);
  std::vector<std::string> args = {config("char_mlp")};
  if (test::kIsInstrumented) {
    args.insert(args.end(), {"fit.limit_steps=5", "fit.epochs=1", "vars.stride=9"});
    CHECK(std::isfinite(evaluation(args)["loss"].get<double>()));
    return;
  }
  CHECK(evaluation(args)["loss"].get<double>() < 0.6 * pair_entropy(text.substr(54000)));
}

TEST_CASE("char_mlp.yaml learns more of Shakespeare than pairs of characters") {
  namespace fs = std::filesystem;
  const char* given = std::getenv("MESHTRAIN_DATA");
  const fs::path folder =
      given ? fs::path(given) : fs::path(MESHTRAIN_SOURCE_DIR) / ".." / "shared" / "datasets";
  const fs::path path = fs::absolute(folder / "tinyshakespeare.txt");
  if (!fs::exists(path) || test::kIsInstrumented) {
    MESSAGE(
        "skipped: tinyshakespeare.txt is neither at MESHTRAIN_DATA nor at ../shared/datasets, "
        "or the program is instrumented");
    return;
  }
  const std::string text = read_file(path.string(), 1 << 24);
  const double pairs = pair_entropy(text.substr(text.size() * 9 / 10));
  CHECK(pairs == doctest::Approx(2.3735).epsilon(1e-4));
  const Json logs = evaluation({config("char_mlp"), "vars.text=" + path.string(),
                                "vars.characters=65", "vars.stride=2", "fit.epochs=1"});
  MESSAGE("loss " << logs["loss"].get<double>() << ", of pairs " << pairs);
  CHECK(logs["loss"].get<double>() < pairs - 0.2);
}

TEST_CASE(
    "char_lstm_shakespeare.yaml learns its tales, and generate continues a text on every mesh") {
  const TemporaryFolder folder;
  const Result trained = meshtrain({"train", config("char_lstm_shakespeare"), "vars.units=32",
                                    "data.train.stride=16", "fit.epochs=1", "-q", "-o", "run"},
                                   folder.path());
  REQUIRE_MESSAGE(trained.exit_code == 0, trained.err);
  const std::vector<std::string> words = {"generate", "run",          "--prompt",
                                          "the ",     "--max-length", "60"};
  const Result one = meshtrain(words, folder.path());
  REQUIRE_MESSAGE(one.exit_code == 0, one.err);
  CHECK(one.out.starts_with("the "));
  CHECK(one.out.size() > 50);
  std::vector<std::string> on_one = words;
  on_one.insert(on_one.end(), {"--mesh", "1x1", "--devices", "cpu:1"});
  CHECK(meshtrain(on_one, folder.path()).out == one.out);
}

TEST_CASE("masked_lm.yaml names more hidden characters than always the most frequent one") {
  std::vector<std::string> args = {config("masked_lm"), "fit.epochs=2"};
  if (test::kIsInstrumented) {
    args.insert(args.end(), {"fit.limit_steps=3"});
    CHECK(std::isfinite(evaluation(args)["loss"].get<double>()));
    return;
  }
  CHECK(evaluation(args)["accuracy"].get<double>() > 0.22);
}

TEST_CASE("nanogpt_shakespeare.yaml learns more of its tales than pairs of characters") {
  const std::string text =
      read_file(std::string(MESHTRAIN_SOURCE_DIR) + "/datasets/tales.txt", 1 << 20);
  std::vector<std::string> args = {config("nanogpt_shakespeare"), "vars.steps=400", "fit.epochs=1",
                                   "fit.steps_per_epoch=400"};
  if (test::kIsInstrumented) {
    args.insert(args.end(), {"fit.limit_steps=3"});
    CHECK(std::isfinite(evaluation(args)["loss"].get<double>()));
    return;
  }
  CHECK(evaluation(args)["loss"].get<double>() < 0.8 * pair_entropy(text.substr(54000)));
}

TEST_CASE("mnist_convnet.yaml learns the built-in digits") {
  std::vector<std::string> args = {config("mnist_convnet")};
  if (test::kIsInstrumented) {
    args.insert(args.end(), {"--limit-steps", "2", "fit.epochs=1", "data.test.samples=256"});
  }
  const Json logs = evaluation(args);
  CHECK(std::isfinite(logs["loss"].get<double>()));
  CHECK((test::kIsInstrumented || logs["accuracy"].get<double>() > 0.95));
}

TEST_CASE("mixed_convnet.yaml learns the digits as well in 16 bits as in 32") {
  std::vector<std::string> args = {config("mixed_convnet")};
  if (test::kIsInstrumented) {
    args.insert(args.end(), {"--limit-steps", "2", "fit.epochs=1", "data.test.samples=256"});
  }
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"}) {
    std::vector<std::string> with_policy = args;
    with_policy.push_back(std::string("dtype_policy=") + policy);
    const Json logs = evaluation(with_policy);
    CHECK(std::isfinite(logs["loss"].get<double>()));
    CHECK((test::kIsInstrumented || logs["accuracy"].get<double>() > 0.97));
  }
}

TEST_CASE("cifar_resnet.yaml runs on any mesh that divides its batch") {
  const std::vector<std::string> small = {config("cifar_resnet"), "vars.units=1",
                                          "data.train.samples=32", "data.test.samples=32",
                                          "fit.batch_size=16"};
  std::vector<double> losses;
  for (const char* mesh : {"1", "2"}) {
    std::vector<std::string> args = small;
    args.insert(args.end(), {"--mesh", mesh});
    losses.push_back(evaluation(args)["loss"].get<double>());
  }
  CHECK(std::isfinite(losses[0]));
  CHECK(losses[1] == doctest::Approx(losses[0]).epsilon(1e-3));
}

}  // namespace
}  // namespace meshtrain
