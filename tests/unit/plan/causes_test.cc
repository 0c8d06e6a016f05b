// Why each collective of a plan is there: the lines of the config that it comes from.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/text.h"
#include "config/data_sizes.h"
#include "config/load.h"
#include "data/data_sizes.h"
#include "engine/make_plan.h"
#include "support/engine_case.h"

using namespace meshtrain;

namespace {

// The key of the line of the config that a place names: "zero" of "case.yaml:4:9".
std::string key_at(const Config& config, const std::string& place) {
  const std::vector<std::string> parts = split(place, ':');
  if (parts.size() < 3) {
    return "-";
  }
  const std::vector<std::string> lines = split(config.source_text, '\n');
  const std::string line = lines.at(std::stoul(parts[parts.size() - 2]) - 1);
  return std::string(trim(line.substr(0, line.find(':'))));
}

// "forward all_gather data of d1/kernel: zero 3 (zero)" for each collective, with the key of the
// line in brackets.
std::string causes_of(const Config& config, bool bucket = true) {
  const Setup setup(config, nullptr);
  std::string out;
  for (const PlannedCollective& c : make_plan(setup, 0, bucket).collectives) {
    std::vector<std::string> causes;
    for (const PlannedCause& cause : c.causes) {
      causes.push_back(
          fmt::format("{} {} ({})", cause.kind, cause.name, key_at(config, cause.place)));
    }
    out += fmt::format("{} {} {} of {}: {}\n", phase_name(c.phase), move_name(c.kind),
                       join(c.axes, "+"), join(c.of, ", "), join(causes, ", "));
  }
  return out;
}

Config config_file(const std::string& name) {
  LoadOptions options;
  options.files = {std::string(MESHTRAIN_SOURCE_DIR) + "/configs/" + name};
  options.require_data = false;
  return load_config(options);
}

std::string mlp(const std::string& distribution) {
  return "distribution:\n  type: ModelParallel\n" + distribution + R"(model:
  layers:
    - Input: {shape: [16]}
    - Dense: {name: d1, units: 32, activation: relu, use_bias: false}
    - Dense: {name: d2, units: 16, use_bias: false}
compile: {loss: mse}
fit: {batch_size: 16}
)";
}

std::string text_of(const std::vector<std::string>& lines) {
  return join(lines, "\n") + "\n";
}

}  // namespace

TEST_CASE("causes: quickstart.yaml's sum of parts is because of the two kernel rules") {
  CHECK(causes_of(config_file("quickstart.yaml")) ==
        text_of({"forward all_reduce model of hidden_2/einsum: rule hidden_1/kernel "
                 "(hidden_1/kernel), rule "
                 "hidden_2/kernel (hidden_2/kernel)",
                 "forward all_reduce data of loss/loss/div, metrics/accuracy/metric_accuracy/"
                 "reduce_sum: batch data (batch_dim_name)",
                 "backward all_reduce data of hidden_1/kernel, hidden_1/bias, hidden_2/kernel, "
                 "hidden_2/bias, logits/kernel, logits/bias: batch data (batch_dim_name)"}));
}

TEST_CASE(
    "causes: the guide's gradient of a whole kernel is gathered because of the split before") {
  CHECK(causes_of(config_file("keras_guide_model_parallel.yaml"), false) ==
        text_of({"forward all_reduce model of d2/einsum: rule d1/kernel (d1/kernel)",
                 "forward all_reduce data of loss/loss/div_1: batch data (batch_dim_name)",
                 "backward all_reduce data of d1/kernel: batch data (batch_dim_name)",
                 "backward all_reduce data of d2/kernel: batch data (batch_dim_name)",
                 "backward all_gather model of d2/kernel: rule d1/kernel (d1/kernel)",
                 "backward all_reduce data of d2/bias: batch data (batch_dim_name)"}));
}

TEST_CASE("causes: ZeRO gathers weights and scatters gradients because of its level") {
  const std::string mesh = "  device_mesh: {shape: [4], axis_names: [data]}\n";
  CHECK(causes_of(test::config_from(mlp(mesh + "  zero: 3\n"))) ==
        text_of({"forward all_gather data of d1/kernel, d2/kernel: zero 3 (zero)",
                 "forward all_reduce data of loss/loss/div_1: batch data (device_mesh)",
                 "backward reduce_scatter data of d2/kernel, d1/kernel: batch data (device_mesh), "
                 "zero 3 (zero)"}));
  CHECK(causes_of(test::config_from(mlp(mesh + "  zero: 1\n"))) ==
        text_of({"forward all_reduce data of loss/loss/div_1: batch data (device_mesh)",
                 "backward reduce_scatter data of d1/kernel, d2/kernel: batch data (device_mesh), "
                 "zero 1 (zero)",
                 "update all_gather data of d1/kernel, d2/kernel: zero 1 (zero)"}));
}

TEST_CASE("causes: a rule that names the batch axis is the reason for its variable's gathers") {
  const std::string yaml =
      mlp("  device_mesh: {shape: [2, 2], axis_names: [data, model]}\n"
          "  layout_map:\n"
          "    d1/kernel: [data, model]\n"
          "    .*/kernel: [data, null]\n");
  CHECK(causes_of(test::config_from(yaml), false) ==
        text_of(
            {"forward all_gather data of d1/kernel: rule d1/kernel (d1/kernel)",
             "forward all_gather data of d2/kernel: rule .*/kernel (.*/kernel)",
             "forward all_reduce model of d2/einsum: rule d1/kernel (d1/kernel)",
             "forward all_reduce data of loss/loss/div_1: batch data (device_mesh)",
             "backward reduce_scatter data of d1/kernel: batch data (device_mesh), rule d1/kernel "
             "(d1/kernel)",
             "backward all_gather model of d2/kernel: rule d1/kernel (d1/kernel)",
             "backward reduce_scatter data of d2/kernel: batch data (device_mesh), rule .*/kernel "
             "(.*/kernel)"}));
}

TEST_CASE("causes: what a layer output makes whole is because of the split and of its own rule") {
  const std::string yaml =
      mlp("  device_mesh: {shape: [2, 2], axis_names: [data, model]}\n"
          "  layout_map:\n"
          "    d1/kernel: [null, model]\n"
          "    d1/output: [data, null]\n");
  CHECK(starts_with(causes_of(test::config_from(yaml), false),
                    "forward all_gather model of d1/relu: rule d1/output (d1/output), rule "
                    "d1/kernel (d1/kernel)\n"));
}

TEST_CASE("causes: names may have commas") {
  std::string yaml =
      mlp("  device_mesh: {shape: [2, 2], axis_names: [data, model]}\n  zero: 3\n"
          "  layout_map:\n    \"d1, a/kernel\": [null, model]\n");
  yaml.replace(yaml.find("name: d1"), 8, "name: \"d1, a\"");
  yaml.replace(yaml.find("name: d2"), 8, "name: \"d2,b\"");
  const Config config = test::config_from(yaml);
  const Setup setup(config, nullptr);
  bool has_both = false;
  for (const PlannedCollective& c : make_plan(setup).collectives) {
    for (const PlannedCause& cause : c.causes) {
      CAPTURE(cause.name);
      CHECK(!cause.kind.empty());
    }
    has_both = has_both || c.of == std::vector<std::string>{"d1, a/kernel", "d2,b/kernel"};
  }
  CHECK(has_both);
  // Shown as other lists of names are.
  CHECK(print(setup.compile(StepKind::kTrain, 16).graph, setup.mesh())
            .find("of=\"d1, a/kernel, d2,b/kernel\"") != std::string::npos);
}

TEST_CASE("causes: every collective of the configs has a line of its config") {
  // A config counts the characters of its text.
  set_data_sizes_reader([](const DataConfig& data, double held_out, const std::string&) {
    return read_data_sizes(data, held_out);
  });
  const std::string folder = std::string(MESHTRAIN_SOURCE_DIR) + "/configs";
  int collectives = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    CAPTURE(entry.path().filename());
    const Config config = config_file(entry.path().filename());
    for (const PlannedCollective& c : make_plan(Setup(config, nullptr)).collectives) {
      CAPTURE(join(c.of, ", "));
      CHECK(!c.causes.empty());
      for (const PlannedCause& cause : c.causes) {
        CAPTURE(cause.name);
        CHECK(!cause.kind.empty());  // else an origin that is nothing of the config
        CHECK(cause.place.find(".yaml:") != std::string::npos);
      }
      ++collectives;
    }
  }
  CHECK(collectives > 10);
}
