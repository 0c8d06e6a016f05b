// Completion: what the program answers, and what bash and zsh make of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "example.h"

namespace meshtrain {
namespace {

using Words = std::vector<std::string>;

// What the last word may become, given the words after the program's name.
Words answers(const ExampleFolder& folder, Words words) {
  words.insert(words.begin(), {"completion", "words", "--"});
  const Result result = meshtrain(words, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  return lines_of(result.out);
}

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

TEST_CASE("subcommands, flags and words of flags are completed") {
  const ExampleFolder folder;
  CHECK(answers(folder, {"tr"}) == Words{"train"});
  CHECK(answers(folder, {"runs", "p"}) == Words{"prune"});
  CHECK(answers(folder, {"train", "--progr"}) == Words{"--progress"});
  CHECK(answers(folder, {"train", "--progress", "l"}) == Words{"line"});
  CHECK(answers(folder, {"train", "--color=a"}) == Words{"--color=auto", "--color=always"});
  CHECK(answers(folder, {"completion", ""}) == Words{"bash", "zsh"});
  CHECK(has(answers(folder, {"explain", "Den"}), "Dense"));
  CHECK(answers(folder, {"init", "quick"}) == Words{"quickstart"});
  // Names of files are the shell's own.
  CHECK(answers(folder, {"train", "sm"}).empty());
  CHECK(answers(folder, {"train", "small.yaml", "--mesh", ""}).empty());
  CHECK(answers(folder, {"nothing", "--x", ""}).empty());
}

TEST_CASE("overrides are completed from the config that stands before them") {
  const ExampleFolder folder;
  CHECK(answers(folder, {"train", "small.yaml", "fit.ep"}) == Words{"fit.epochs="});
  CHECK(answers(folder, {"train", "small.yaml", "dtype_policy=fl"}) ==
        Words{"dtype_policy=float32", "dtype_policy=float64", "dtype_policy=float16"});
  CHECK(has(answers(folder, {"train", "small.yaml", ""}), "compile."));
  CHECK(has(answers(folder, {"train", "small.yaml", "compile.optimizer=Ad"}),
            "compile.optimizer=AdamW"));
  const Words layers = answers(folder, {"train", "small.yaml", "model.layers."});
  REQUIRE(!layers.empty());
  CHECK(std::all_of(layers.begin(), layers.end(),
                    [](const std::string& layer) { return layer.back() == '.'; }));
  CHECK(has(answers(folder, {"train", "small.yaml", "data.shuffle="}), "data.shuffle=false"));
  CHECK(answers(folder, {"train", "absent.yaml", "fit.ep"}).empty());
  folder.write("broken.yaml", "model: [");
  CHECK(answers(folder, {"train", "broken.yaml", "fit.ep"}).empty());
}

TEST_CASE("runs are completed, and the keys of a run's config") {
  const ExampleFolder folder;
  REQUIRE(meshtrain({"train", "small.yaml", "-q"}, folder.path()).exit_code == 0);
  CHECK(answers(folder, {"report", "ru"}) == Words{"runs/small"});
  CHECK(answers(folder, {"resume", "runs/small/latest", "fit.ep"}) == Words{"fit.epochs="});
}

// The candidates of bash for a line: what COMPREPLY holds.
Words bash_replies(const ExampleFolder& folder, const std::string& line) {
  Command command;
  command.program = "bash";
  command.folder = folder.path();
  command.args = {"--norc", "-c",
                  "meshtrain() { '" MESHTRAIN_BINARY
                  "' \"$@\"; }\n"
                  "source <(meshtrain completion bash)\n"
                  "compopt() { echo \"$@\"; }\n"
                  "COMP_LINE=$1 COMP_POINT=${#1}; _meshtrain; printf '%s\\n' \"${COMPREPLY[@]}\"",
                  "bash", line};
  const Result result = run(command);
  CHECK_MESSAGE(result.err.empty(), result.err);
  return lines_of(result.out);
}

TEST_CASE("bash completes words that it breaks at = and :") {
  const ExampleFolder folder;
  CHECK(bash_replies(folder, "meshtrain val") == Words{"validate"});
  CHECK(bash_replies(folder, "meshtrain train small.yaml fit.ep") ==
        Words{"-o nospace", "fit.epochs="});
  CHECK(bash_replies(folder, "meshtrain train small.yaml dtype_policy=mixed_b") ==
        Words{"mixed_bfloat16"});
  CHECK(bash_replies(folder, "meshtrain train small.yaml ").size() > 5);
}

TEST_CASE("zsh reads its script") {
  Command command;
  command.program = "zsh";
  command.args = {"-f", "-c",
                  "autoload -U compinit && compinit -u -D; eval \"$('" MESHTRAIN_BINARY
                  "' completion zsh)\" && echo ${_comps[meshtrain]}"};
  if (run({.args = {"-c", "command -v zsh"}, .program = "sh"}).exit_code != 0) {
    MESSAGE("skipped: there is no zsh");
    return;
  }
  CHECK(run(command).out == "_meshtrain\n");
}

TEST_CASE("another shell is refused") {
  const Result result = meshtrain({"completion", "fish"}, ".");
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "must be bash or zsh or words"));
}

}  // namespace
}  // namespace meshtrain
