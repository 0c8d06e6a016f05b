// A checkpoint that an earlier version wrote (tests/golden/checkpoint) is still read, on any mesh.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "base/json.h"
#include "checkpoint/restore.h"
#include "checkpoint/snapshot.h"
#include "exec/executor.h"
#include "support/engine_case.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

const std::string kFolder = MESHTRAIN_SOURCE_DIR "/tests/golden/checkpoint";

// What a reader that is not ours found in it.
nlohmann::json golden_tensors() {
  std::ostringstream text;
  text << std::ifstream(kFolder + "/tensors.json").rdbuf();
  return parse_json(text.str());
}

void check_equal(const HostTensor& got, const nlohmann::json& expected) {
  REQUIRE(expected.at("shape").get<std::vector<int64_t>>() ==
          std::vector<int64_t>(got.shape().begin(), got.shape().end()));
  const nlohmann::json& values = expected.at("values");
  REQUIRE(static_cast<int64_t>(values.size()) == got.size());
  for (int64_t i = 0; i < got.size(); ++i) {
    CHECK(got.at(i) == values.at(static_cast<size_t>(i)).get<double>());
  }
}

TEST_CASE("a checkpoint of format 1 verifies and has the tensors and the state it was saved with") {
  const CheckpointReader reader(kFolder + "/000012");
  reader.verify();
  const nlohmann::json golden = golden_tensors();
  CHECK(reader.manifest().tensors.size() == golden.size());
  for (const CheckpointTensor& tensor : reader.manifest().tensors) {
    CAPTURE(tensor.path);
    check_equal(reader.read(tensor), golden.at(tensor.path));
  }
  const TrainState& state = reader.state();
  CHECK(state.position == TrainPosition{.step = 12, .epoch = 2, .batch = 2});
  CHECK(state.learning_rate == doctest::Approx(0.005));
  CHECK(state.monitor == "val_loss");
  CHECK(state.best_step == 5);
  CHECK(parse_json(state.callbacks.at("EarlyStopping")).at("wait") == 1);
  CHECK(state.cursor.description == "random, seed 1 (20 samples)");
  CHECK(reader.text("config.yaml").find("name: golden\n") == 0);
}

TEST_CASE("a checkpoint of format 1 is restored on any mesh") {
  const nlohmann::json golden = golden_tensors();
  const CheckpointReader reader(kFolder + "/000012");
  for (const std::string shape : {"[2, 2]", "[1, 1]", "[4, 1]", "[1, 2]"}) {
    for (const std::string zero : {"0", "1", "3"}) {
      CAPTURE(shape);
      CAPTURE(zero);
      const Config config =
          config_from(reader.text("config.resolved.yaml"),
                      {"distribution.device_mesh.shape=" + shape, "distribution.zero=" + zero});
      const Dataset train = load_dataset(*config.data.train, config.data);
      Engine engine(config, data_spec(train), {});
      std::vector<std::string> warnings;
      const TrainPosition at =
          restore(engine, reader, data_cursor(train, config), {}, {}, warnings);
      CHECK(at == TrainPosition{.step = 12, .epoch = 2, .batch = 2});
      CHECK(warnings.empty());
      CHECK(engine.iterations() == 12);
      CHECK(engine.learning_rate() == doctest::Approx(0.005));
      CHECK(engine.store().variables().size() == golden.size());
      for (size_t v = 0; v < engine.store().variables().size(); ++v) {
        const std::string path = checkpoint_path(engine.store().variables()[v]);
        CAPTURE(path);
        check_equal(engine.store().read(static_cast<int>(v)), golden.at(path));
      }
    }
  }
}

}  // namespace
