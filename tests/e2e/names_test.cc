// Names that a config, a command line or the environment gives must be those of something.
#include <doctest/doctest.h>

#include <filesystem>

#include "example.h"

namespace meshtrain {
namespace {

// The example without `batch_dim_name`: the first axis of the mesh, `data`, splits the batch.
std::string example_by_order() {
  std::string text = kExample;
  const std::string line = "  batch_dim_name: data\n";
  text.erase(text.find(line), line.size());
  return text;
}

// The line of a plan that begins so.
std::string line_of(const std::string& text, const std::string& begin) {
  for (const std::string& line : lines_of(text)) {
    if (line.rfind(begin, 0) == 0) {
      return line;
    }
  }
  return "";
}

std::string plan_line(const TemporaryFolder& folder, const std::string& config,
                      const std::string& mesh, const char* begin) {
  const Result result = meshtrain({"plan", config, "--mesh", mesh}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  return line_of(result.out, begin);
}

TEST_CASE("the batch stays with its axis, in whatever order a mesh names its axes") {
  const TemporaryFolder folder;
  folder.write("order.yaml", example_by_order());
  const std::string traffic = plan_line(folder, "order.yaml", "data=2,model=4", "traffic");
  CHECK(contains(traffic, "sent by each device per step"));
  CHECK(plan_line(folder, "order.yaml", "model=4,data=2", "traffic") == traffic);
  for (const char* mesh : {"4x2", "data=4,model=2", "model=2,data=4"}) {
    CHECK_MESSAGE(contains(plan_line(folder, "order.yaml", mesh, "batch"), "4 per shard over data"),
                  mesh);
  }
  const Result swapped = meshtrain(
      {"plan", "order.yaml", "distribution.device_mesh={shape: [4, 2], axis_names: [model, data]}"},
      folder.path());
  CHECK_MESSAGE(line_of(swapped.out, "traffic") == traffic, swapped.out, swapped.err);
}

TEST_CASE("a run keeps the axis of its batch when another mesh resumes or evaluates it") {
  const TemporaryFolder folder;
  folder.write("order.yaml", example_by_order());
  REQUIRE(meshtrain({"train", "order.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  const Result resumed =
      meshtrain({"resume", "run", "fit.epochs=3", "--mesh", "model=2,data=2", "-q"}, folder.path());
  CHECK_MESSAGE(resumed.exit_code == 0, resumed.err);
  CHECK(contains(folder.read("run/config.resolved.yaml"), "batch_dim_name: [data]"));
  const Result same = meshtrain({"evaluate", "run", "--mesh", "4x1"}, folder.path());
  const Result other = meshtrain({"evaluate", "run", "--mesh", "rows=4,model=1"}, folder.path());
  CHECK_FALSE(contains(same.err, "W211"));
  CHECK_MESSAGE(contains(other.err, "`batch_dim_name` names `data`"), other.err);
}

TEST_CASE("a mesh without the axis of the batch says what is split now") {
  const TemporaryFolder folder;
  folder.write("plain.yaml", R"(model: {layers: [{Input: [6]}, {Dense: 4}]}
compile: {loss: mse}
data: {train: {source: random, samples: 8, shape: [6], labels: [4]}}
fit: {batch_size: 8}
distribution: {device_mesh: {shape: [4], axis_names: [data]}}
)");
  const Result result =
      meshtrain({"validate", "plain.yaml", "--mesh", "rows=2,columns=4"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "0 errors, 1 warning"));
  CHECK_MESSAGE(contains(result.err, "warning[W211]: "), result.err);
  CHECK_MESSAGE(contains(result.err, "1 | --mesh rows=2,columns=4\n"), result.err);
}

TEST_CASE("a misspelled variable ends every subcommand that reads the config") {
  const TemporaryFolder folder;
  folder.write("vars.yaml", std::string("vars: {width: 8}\n") + kExample);
  for (const char* subcommand : {"train", "validate", "plan", "summary"}) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"vars.wdth=3"}, {"--set", "vars.wdth=3"}}) {
      std::vector<std::string> args = {subcommand, "vars.yaml"};
      args.insert(args.end(), words.begin(), words.end());
      const Result result = meshtrain(args, folder.path());
      CHECK(result.exit_code == 2);
      CHECK_MESSAGE(contains(result.err, "error[E111]: there is no variable `wdth`\n"), result.err);
      CHECK(contains(result.err, "did you mean `width`?"));
    }
  }
  REQUIRE(meshtrain({"train", "vars.yaml", "-o", "run", "-q"}, folder.path()).exit_code == 0);
  const Result result = meshtrain({"evaluate", "run", "vars.width=3"}, folder.path());
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(contains(result.err, "error[E111]: there is no variable `width`\n"), result.err);
}

TEST_CASE("an unknown variable of the environment is one warning on stderr") {
  const ExampleFolder folder;
  Command command;
  command.args = {"validate", "small.yaml"};
  command.folder = folder.path();
  const Result before = run(command);
  command.environment = {
      "MESHTRAIN_"
      "DEVICE=cpu:4",
      "MESHTRAIN_"
      "FOO=1"};
  const Result with = run(command);
  CHECK(with.exit_code == 0);
  CHECK(with.out == before.out);
  CHECK_FALSE(contains(before.err, "W141"));
  CHECK_MESSAGE(contains(with.err, "warning[W141]: "), with.err);
  CHECK(contains(with.err,
                 "`MESHTRAIN_"
                 "DEVICE`: did you mean `MESHTRAIN_DEVICES`?"));
  CHECK(with.err.find("W141") == with.err.rfind("W141"));
  command.args.push_back("-q");
  CHECK_FALSE(contains(run(command).err, "W141"));
}

TEST_CASE("the variables of the environment are explained") {
  const Result known = meshtrain({"explain", "MESHTRAIN_DEVICES"}, ".");
  CHECK(known.exit_code == 0);
  CHECK_MESSAGE(contains(known.out, "--devices"), known.out);
  const Result unknown = meshtrain({"explain",
                                    "MESHTRAIN_"
                                    "DEVICE"},
                                   ".");
  CHECK(unknown.exit_code == 2);
  CHECK(contains(unknown.err, "did you mean `MESHTRAIN_DEVICES`?"));
  const Result help = meshtrain({"--help"}, ".");
  CHECK(contains(help.out, "MESHTRAIN_COLLECTIVE_TIMEOUT"));
  CHECK_FALSE(contains(help.out, "MESHTRAIN_FAULT"));
}

TEST_CASE("no config of configs/ has a name that acts on nothing or an output of the wrong scale") {
  namespace fs = std::filesystem;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(MESHTRAIN_SOURCE_DIR) / "configs")) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    const Result result = meshtrain({"validate", entry.path().string()}, ".");
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    for (const char* code : {"W111", "W123", "W202", "W211"}) {
      CHECK_MESSAGE(!contains(result.err, code), result.err);
    }
    ++count;
  }
  CHECK(count >= 9);
}

}  // namespace
}  // namespace meshtrain
