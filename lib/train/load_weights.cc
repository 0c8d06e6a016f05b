#include "train/load_weights.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/reader.h"
#include "engine/weights.h"
#include "interop/keras/weights.h"
#include "nn/lora.h"
#include "record/run_dir.h"
#include "tensor/weights.h"

namespace meshtrain {
namespace {

// The weights of a checkpoint, compared with their checksums.
std::vector<NamedTensor> checkpoint_weights(const std::string& path) {
  const CheckpointReader reader(path);
  std::vector<NamedTensor> out;
  for (const CheckpointTensor& tensor : reader.manifest().tensors) {
    if (tensor.kind == TensorKind::kWeight) {
      out.push_back({tensor.path, reader.read(tensor)});
    }
  }
  return out;
}

// Whether the model has low-rank factors and what was read for it none.
bool lacks_factors(const std::vector<WantedWeight>& wanted, const std::vector<NamedTensor>& read) {
  return std::any_of(wanted.begin(), wanted.end(),
                     [](const WantedWeight& weight) { return is_lora_path(weight.path); }) &&
         std::none_of(read.begin(), read.end(),
                      [](const NamedTensor& tensor) { return is_lora_path(tensor.name); });
}

// read_weights_in(); problems without a place get `loc`.
std::vector<NamedTensor> read_weights_at(const std::string& path, const Model* model,
                                         const SourceLoc& loc, std::vector<std::string>* warnings) {
  try {
    return read_weights_in(path, model, warnings);
  } catch (const ConfigError& error) {
    Diagnostics problems;
    for (const Diagnostic& problem : error.diagnostics().list()) {
      Diagnostic& added = problems.error(problem.code, loc, problem.message);
      added = problem;
      added.loc = problem.loc ? problem.loc : loc;
    }
    throw ConfigError(std::move(problems));
  }
}

}  // namespace

std::string weights_in(const std::string& path, std::vector<std::string>* warnings) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    return path;
  }
  const std::string folder = std::filesystem::canonical(path, error).string();
  if (is_checkpoint(folder)) {
    return folder;
  }
  const std::string last = folder + "/weights.safetensors";
  const bool has_last = std::filesystem::exists(last, error);
  const bool is_run = is_run_dir(folder);
  if (has_last && (!is_run || is_finished_run(folder))) {
    return last;
  }
  if (is_run) {
    if (const auto newest = newest_checkpoint(folder + "/checkpoints"); newest.reader != nullptr) {
      if (warnings != nullptr) {
        warnings->insert(warnings->end(), newest.warnings.begin(), newest.warnings.end());
      }
      return newest.reader->path();
    }
    if (has_last) {
      return last;
    }
  }
  throw ConfigError("E400", {}, fmt::format("`{}` holds no weights", path))
      .help("a weights file, a checkpoint, or a run that has saved one");
}

bool is_pruned(const std::string& path, const std::string& taken) {
  std::error_code error;
  return taken != path && !std::filesystem::exists(taken, error) && !error;
}

std::vector<NamedTensor> read_weights_in(const std::string& path, const Model* model,
                                         std::vector<std::string>* warnings) {
  for (;;) {
    const std::string found = weights_in(path, warnings);
    try {
      return is_checkpoint(found) ? checkpoint_weights(found)
             : model == nullptr   ? read_weights(found)
                                  : read_model_weights(found, *model);
    } catch (const ConfigError&) {
      if (!is_pruned(path, found)) {
        throw;
      }
    }
  }
}

void load_weights(StepRunner& runner, const std::string& path, const SourceLoc& loc,
                  const Model* model, std::vector<std::string>* unfit,
                  const Coordinator& coordinator, std::vector<std::string>* warnings,
                  bool fills_model) {
  const auto announced = coordinator.announce("reading weights");
  const std::vector<WantedWeight> wanted =
      model == nullptr ? wanted_weights(runner) : wanted_weights(*model);
  std::vector<NamedTensor> fitting;
  coordinator.on_all_ranks("reading weights", [&] {
    fitting = fitting_weights(read_weights_at(path, model, loc, warnings), wanted, path, loc, unfit,
                              kTakePartial, fills_model);
  });
  if (fills_model && warnings != nullptr && lacks_factors(wanted, fitting)) {
    warnings->push_back(
        fmt::format("{} has no low-rank factors: the model is the one before", path));
  }
  for (const auto& [name, value] : fitting) {
    runner.write_variable(name, value);
  }
}

}  // namespace meshtrain
