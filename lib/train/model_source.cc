#include "train/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "checkpoint/reader.h"
#include "config/catalogue.h"
#include "config/run_files.h"
#include "config/schema.h"
#include "config/source.h"
#include "engine/engine.h"
#include "record/run_dir.h"
#include "record/run_meta.h"
#include "train/learned_file.h"
#include "train/load_weights.h"
#include "train/moved_run.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

std::shared_ptr<const SourceFile> config_in(const std::string& folder) {
  const std::string path = folder + "/" + run_files::kResolved;
  return is_checkpoint(folder)
             ? checked_source(path, CheckpointReader(folder).text(run_files::kResolved))
             : read_source(path, {});
}

// True for a folder with the config and the final weights of a run, even without checkpoints.
bool holds_model(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(folder + "/" + run_files::kResolved, error) &&
         std::filesystem::exists(folder + "/" + run_files::kWeights, error);
}

// A file's place may hold what is no file: a run, a key whose value became the next word, or the
// word after --resume, which takes its own with `=` alone.
void check_is_config(const std::vector<std::string>& files, size_t i, bool resumes) {
  const std::string& word = files[i];
  if (is_run_dir(word)) {
    throw ConfigError("E140", {}, fmt::format("`{}` is a run, no config", word))
        .help(fmt::format("`meshtrain resume {}` continues it", word))
        .help(fmt::format("its config: {}/config.resolved.yaml", word));
  }
  std::error_code error;
  if (!ends_with(word, ".yaml") && !ends_with(word, ".yml") && is_known_key(word) &&
      !std::filesystem::exists(word, error)) {
    throw ConfigError("E140", {}, fmt::format("`{}` is a key and has no value", word))
        .help(fmt::format("write {}={}", word, i + 1 < files.size() ? files[i + 1] : "VALUE"));
  }
  if (resumes && (word == "auto" || word == "latest" || word == "best") &&
      !std::filesystem::exists(word, error)) {
    throw ConfigError("E140", {}, fmt::format("`{}` is no config", word))
        .help(fmt::format("write --resume={}", word));
  }
}

void show_choice(const std::string& given, const std::string& path,
                 const std::vector<std::string>& warnings, const ShowText& show) {
  for (const std::string& warning : warnings) {
    show(fmt::format("warning: {}\n", warning));
  }
  if (path != given) {
    show(fmt::format("weights     {}\n", path));
  }
}

}  // namespace

void check_config_files(const std::vector<std::string>& files, bool resumes) {
  if (files.empty()) {
    throw ConfigError("E140", {}, "no config file given, only overrides");
  }
  for (size_t i = 0; i < files.size(); ++i) {
    check_is_config(files, i, resumes);
  }
}

ModelSource model_source(LoadOptions load, std::string weights) {
  ModelSource source{std::move(load), std::move(weights), ""};
  std::vector<std::string>& files = source.load.files;
  std::error_code error;
  for (std::string& word : files) {
    const bool is_config = ends_with(word, ".yaml") || ends_with(word, ".yml") || word == "-";
    if (!is_config && word.find('/') != std::string::npos &&
        !std::filesystem::exists(word, error)) {
      no_run_in(word);
    }
    word = run_folder(word);
  }
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
    return source;
  }
  if (files.size() > 1) {
    throw ConfigError("E140", {},
                      fmt::format("`{}` has its own config; give it alone, with KEY=VALUE", *run));
  }
  refuse_profile(source.load.profile, *run);
  source.load.source = config_in(std::filesystem::canonical(*run, error).string());
  follow_move(*run, source.load);
  source.weights = source.weights.empty() ? *run : source.weights;
  source.run = *run;
  files.clear();
  return source;
}

void refuse_profile(const std::string& profile, const std::string& run) {
  if (!profile.empty()) {
    throw ConfigError(
        "E140", {},
        fmt::format("`--profile {}`: the config of `{}` has no profiles, what was chosen of "
                    "them is in it",
                    profile, run))
        .help("write the profile's values as KEY=VALUE");
  }
}

void drop_training(CompileConfig& compile) {
  compile.metrics.clear();
  compile.weighted_metrics.clear();
  compile.optimizer = default_object(Category::kOptimizer, "SGD");
}

bool drop_expressions(CompileConfig& compile) {
  size_t count = 0;
  for (std::vector<OutputObject>* list :
       {&compile.loss, &compile.metrics, &compile.weighted_metrics}) {
    count += std::erase_if(
        *list, [](const OutputObject& entry) { return entry.object.class_name == "Lambda"; });
  }
  if (compile.loss.empty()) {
    compile.loss_weights.clear();
  }
  return count > 0;
}

namespace {

void drop_padding(ConfigObject& object) {
  for (auto& [name, value] : object.args) {
    if (name == "pad_to")
      value.data = std::monostate();
    if (const auto* inner = std::get_if<std::shared_ptr<ConfigObject>>(&value.data))
      drop_padding(**inner);
  }
}

}  // namespace

void drop_padding(ModelConfig& model) {
  for (LayerConfig& layer : model.layers)
    drop_padding(layer.object);
}

const std::string& weights_of(const ModelSource& source, const Config& config) {
  return source.weights.empty() ? config.fit.initial_weights.value : source.weights;
}

LearnedPtr learned_for(const ModelSource& source, const Config& config) {
  const std::string& weights = weights_of(source, config);
  LearnedPtr learned = weights.empty() ? nullptr : learned_beside(weights);
  return learned || source.run.empty() || source.run == weights ? learned
                                                                : learned_beside(source.run);
}

std::string changed_files_note(const ModelSource& source) {
  if (source.run.empty()) {
    return "";
  }
  std::error_code error;
  std::filesystem::path folder = std::filesystem::canonical(source.run, error);
  if (!is_run_dir(folder.string())) {  // a checkpoint in it
    folder = folder.parent_path().parent_path();
  }
  const std::vector<std::string> changed = changed_training_files(folder.string());
  return changed.empty()
             ? ""
             : fmt::format(
                   "note: training data changed since the run began: {}{}\n", changed.front(),
                   changed.size() > 1 ? fmt::format(" and {} more", changed.size() - 1) : "");
}

std::string left_out_note(const std::string& path, const std::vector<std::string>& unfit) {
  constexpr size_t kMost = 8;
  if (unfit.empty()) {
    return "";
  }
  const std::vector<std::string> shown(unfit.begin(),
                                       unfit.begin() + std::min(kMost, unfit.size()));
  return fmt::format(
      "note: left out of `{}`: {}{}\n", path, join(shown, "; "),
      unfit.size() > kMost ? fmt::format("; and {} more", unfit.size() - kMost) : "");
}

void load_source_weights(Engine& engine, const ModelSource& source, const Config& config,
                         const Coordinator& coordinator, const ShowText& show) {
  const Located<std::string>& configured = config.fit.initial_weights;
  if (source.weights.empty() && configured.value.empty()) {
    if (engine.model().weights().empty()) {
      return;
    }
    throw ConfigError("E140", {}, "no weights given")
        .help("--weights FILE, for example runs/NAME/latest/weights.safetensors");
  }
  std::vector<std::string> unfit;
  const auto load = [&](const std::string& path, const SourceLoc& loc) {
    std::vector<std::string> warnings;
    load_weights(engine, path, loc, &engine.model(), config.fit.partial_weights ? &unfit : nullptr,
                 coordinator, &warnings, true);
    show_choice("", "", warnings, show);
    show(left_out_note(path, unfit));
  };
  if (source.weights.empty()) {
    return load(configured, configured.loc);
  }
  constexpr const char* kLooking = "looking for weights";
  for (bool is_done = false; !is_done;) {
    std::vector<std::string> warnings;
    const std::string path =
        coordinator.broadcast(kLooking, [&] { return weights_in(source.weights, &warnings); });
    show_choice(source.weights, path, warnings, show);
    try {
      load(path, {});
      is_done = true;
    } catch (const Error&) {
      if (coordinator.broadcast(
              kLooking, [&] { return is_pruned(source.weights, path) ? "again" : ""; }) == "") {
        throw;
      }
    }
  }
}

std::string weights_file(const ModelSource& source, const Config& config, const ShowText& show) {
  const std::string& weights = weights_of(source, config);
  std::vector<std::string> warnings;
  const std::string path = weights.empty() ? "" : weights_in(weights, &warnings);
  show_choice(weights, path, warnings, show);
  return path;
}

}  // namespace meshtrain
