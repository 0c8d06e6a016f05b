#include "given_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/reader.h"
#include "config/source.h"
#include "engine/engine.h"
#include "record/run_dir.h"
#include "train/learned_file.h"
#include "train/load_weights.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

constexpr const char* kConfigName = "config.resolved.yaml";

std::shared_ptr<const SourceFile> config_in(const std::string& folder) {
  const std::string path = folder + "/" + kConfigName;
  return is_checkpoint(folder) ? checked_source(path, CheckpointReader(folder).text(kConfigName))
                               : read_source(path, {});
}

// True for a folder with the config and the final weights of a run, even without checkpoints.
bool holds_model(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(folder + "/" + kConfigName, error) &&
         std::filesystem::exists(folder + "/weights.safetensors", error);
}

}  // namespace

GivenRun given_run(const Arguments& arguments, bool require_data) {
  GivenRun given{override_options(arguments), arguments.weights};
  given.options.require_data = require_data;
  std::vector<std::string>& files = given.options.files;
  std::error_code error;
  const auto is_run = [&](const std::string& word) {
    return std::filesystem::is_directory(word, error) &&
           (is_run_dir(word) || is_checkpoint(word) || holds_model(word));
  };
  const auto run = std::find_if(files.begin(), files.end(), is_run);
  if (run == files.end()) {
    const auto is_folder = [&](const std::string& word) {
      return std::filesystem::is_directory(word, error);
    };
    if (const auto folder = std::find_if(files.begin(), files.end(), is_folder);
        folder != files.end()) {
      no_run_in(*folder);
    }
    given.options = load_options(arguments, require_data);
    return given;
  }
  if (files.size() > 1) {
    throw ConfigError("E140", {},
                      fmt::format("`{}` has its own config; give it alone, with KEY=VALUE", *run));
  }
  refuse_profile(arguments, *run);
  given.options.source = config_in(std::filesystem::canonical(*run, error).string());
  given.weights = given.weights.empty() ? *run : given.weights;
  given.run = *run;
  files.clear();
  return given;
}

const std::string& weights_of(const GivenRun& given, const Config& config) {
  return given.weights.empty() ? config.fit.initial_weights.value : given.weights;
}

LearnedPtr learned_for(const GivenRun& given, const Config& config) {
  const std::string& weights = weights_of(given, config);
  LearnedPtr learned = weights.empty() ? nullptr : learned_beside(weights);
  return learned || given.run.empty() || given.run == weights ? learned : learned_beside(given.run);
}

void load_given_weights(Engine& engine, const GivenRun& given, const Config& config,
                        const Arguments& arguments, const Coordinator& coordinator) {
  const Located<std::string>& configured = config.fit.initial_weights;
  if (given.weights.empty() && configured.value.empty()) {
    if (engine.model().weights().empty()) {
      return;
    }
    throw ConfigError("E140", {}, "no weights given")
        .help("--weights FILE, for example runs/NAME/latest/weights.safetensors");
  }
  if (given.weights.empty()) {
    load_weights(engine, configured, configured.loc, &engine.model(), nullptr, coordinator);
    return;
  }
  const std::string path =
      coordinator.broadcast("looking for weights", [&] { return weights_in(given.weights); });
  if (path != given.weights && !arguments.quiet) {
    err_stream().write(fmt::format("weights     {}\n", path));
  }
  load_weights(engine, path, {}, &engine.model(), nullptr, coordinator);
}

}  // namespace meshtrain
