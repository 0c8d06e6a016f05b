// The files of configs/, run as they are.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "command.h"

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
  return Json::parse(lines_of(result.out).back())["logs"];
}

TEST_CASE("quickstart.yaml knows more than 97 of 100 digits") {
  CHECK(evaluation({config("quickstart")})["accuracy"].get<double>() > 0.97);
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

TEST_CASE("the guide's configs end at the same loss on all of the guide's meshes") {
  const double expected = evaluation({config("keras_guide_data_parallel")})["loss"];
  CHECK(std::isfinite(expected));
  for (const char* mesh : {"8x1", "4x2", "2x4", "1x8"}) {
    CAPTURE(mesh);
    const double loss = evaluation({config("keras_guide_model_parallel"), "--mesh", mesh})["loss"];
    CHECK(loss == doctest::Approx(expected).epsilon(1e-5));
  }
}

}  // namespace
}  // namespace meshtrain
