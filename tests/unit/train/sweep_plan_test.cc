#include "train/sweep_plan.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>

#include "support/temp_folder.h"

namespace meshtrain {
namespace {

constexpr const char* kConfig = R"(
data: {train: {source: random, samples: 8, shape: [4], classes: 2}}
model: {layers: [{Input: {shape: [4]}}, {Dense: {name: d1, units: 2}}]}
compile: {optimizer: {Adam: {learning_rate: 0.01}}, loss: mse}
)";

struct Plans {
  Plans() { folder.write("small.yaml", kConfig); }

  SweepPlan of(const std::string& file, const SweepFlags& flags = {},
               std::vector<std::string> words = {}) const {
    return make_sweep_plan({.files = {folder.file(file)}, .overrides = std::move(words)}, flags);
  }

  test::TempFolder folder;
};

// "adam 0.1": optimizer and learning rate of each run.
std::vector<std::string> optimizers(const SweepPlan& plan) {
  std::vector<std::string> out;
  for (const SweepValues& values : plan.members) {
    const Config config = load_config(member_options(plan, values));
    const ConfigObject& optimizer = config.compile.optimizer;
    out.push_back(fmt::format("{} {}", optimizer.class_name, optimizer.number("learning_rate")));
  }
  return out;
}

TEST_CASE("a key is set before its parts, whichever was given first") {
  const Plans plans;
  const std::vector<std::string> all = {"Adam 0.1", "SGD 0.1", "Adam 0.5", "SGD 0.5"};
  const std::string rates = "compile.optimizer.learning_rate=0.1,0.5";
  const std::string names = "compile.optimizer=adam,sgd";
  const SweepPlan grid = plans.of("small.yaml", {.grid = {rates, names}});
  CHECK(optimizers(grid) == all);
  CHECK(values_text(grid.members[1]) == "learning_rate=0.1 optimizer=sgd");  // as given
  CHECK(optimizers(
            plans.of("small.yaml", {.grid = {names}}, {"compile.optimizer.learning_rate=0.5"})) ==
        std::vector<std::string>{"Adam 0.5", "SGD 0.5"});
  plans.folder.write("fixed.yaml",
                     "config: small.yaml\nparameters: {compile.optimizer: [adam, sgd]}\n"
                     "fixed: {compile.optimizer.learning_rate: 0.5}\n");
  CHECK(optimizers(plans.of("fixed.yaml")) == std::vector<std::string>{"Adam 0.5", "SGD 0.5"});
  plans.folder.write("list.yaml",
                     "config: small.yaml\nmethod: list\nruns:\n"
                     "  - {compile.optimizer.learning_rate: 0.2, compile.optimizer: sgd}\n");
  CHECK(optimizers(plans.of("list.yaml")) == std::vector<std::string>{"SGD 0.2"});
  const SweepPlan drawn = plans.of(
      "small.yaml", {.random = {"compile.optimizer.learning_rate=0.3,0.3",
                                "model.layers.d1.units=int:2..9", "compile.optimizer=sgd,sgd"},
                     .trials = 1});
  CHECK(optimizers(drawn) == std::vector<std::string>{"SGD 0.3"});
}

TEST_CASE("a range of whole numbers may be logarithmic, in either order of the words") {
  const Plans plans;
  const auto units = [&](const char* range) {
    return plans
        .of("small.yaml", {.random = {fmt::format("model.layers.d1.units={}", range)}, .trials = 5})
        .members;
  };
  CHECK(units("int:log:4..512") == units("log:int:4..512"));
  CHECK(units("int:log:4..512") != units("int:4..512"));
}

std::string problems(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.diagnostics().render();
  }
  return "";
}

TEST_CASE("what a sweep does not use is refused") {
  const Plans plans;
  const auto refused = [&](const SweepFlags& flags, std::vector<std::string> words = {}) {
    return problems([&] { plans.of("small.yaml", flags, std::move(words)); });
  };
  CHECK(
      refused({.grid = {"seed=1,2"}, .trials = 3})
          .find("error[E140]: `--trials` is for drawn values; the method of this sweep is grid") ==
      0);
  CHECK(refused({.zip = {"seed=1,2"}, .seed = 0}).find("error[E140]: `--sweep-seed`") == 0);
  const std::string of_dir = "error[E140]: a sweep sets `run.dir` of each run itself";
  CHECK(refused({.grid = {"run.dir=a,b"}}).find(of_dir) == 0);
  CHECK(refused({.grid = {"seed=1,2"}}, {"run.dir=a"}).find(of_dir) == 0);
}

TEST_CASE("a problem that some runs have names the values of one") {
  const Plans plans;
  const SweepFlags flags{.grid = {"compile.optimizer=adam,sgd"}};
  const std::string some =
      problems([&] { plans.of("small.yaml", flags, {"compile.optimizer.beta_1=0.8"}); });
  CHECK(some.find("error[E111]: unknown key `beta_1` in `SGD`") == 0);
  CHECK(some.find("note: in the run with optimizer=sgd\n") != std::string::npos);
  const std::string all = problems([&] { plans.of("small.yaml", flags, {"fit.epoch=2"}); });
  CHECK(all.find("error[E111]: unknown key `epoch`") == 0);
  CHECK(all.find("in the run with") == std::string::npos);
}

}  // namespace
}  // namespace meshtrain
