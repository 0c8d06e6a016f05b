#include "train/weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/printable.h"
#include "base/text.h"
#include "nn/keras/weights.h"
#include "tensor/safetensors.h"
#include "tensor/weights.h"
#include "train/checkpoint/reader.h"
#include "train/run_dir.h"

namespace meshtrain {
namespace {

std::vector<WantedWeight> wanted_weights(const StepRunner& runner) {
  std::vector<WantedWeight> out;
  for (const std::string& name : runner.weight_paths()) {
    const HostTensor current = runner.read_variable(name);
    out.push_back({name, current.shape(), current.dtype()});
  }
  return out;
}

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

}  // namespace

std::string weights_in(const std::string& path) {
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
      return newest.reader->path();
    }
    if (has_last) {
      return last;
    }
  }
  throw ConfigError("E400", {}, fmt::format("`{}` holds no weights", path))
      .help("a weights file, a checkpoint, or a run that has saved one");
}

std::vector<NamedTensor> read_weights_in(const std::string& path, const Model* model) {
  const std::string found = weights_in(path);
  if (is_checkpoint(found)) {
    return checkpoint_weights(found);
  }
  return model == nullptr ? read_weights(found) : read_model_weights(found, *model);
}

void note_each(Diagnostic& diagnostic, const std::vector<std::string>& lines) {
  constexpr size_t kMost = 50;
  for (size_t i = 0; i < std::min(lines.size(), kMost); ++i) {
    diagnostic.note(lines[i]);
  }
  if (lines.size() > kMost) {
    diagnostic.note(fmt::format("... and {} more", lines.size() - kMost));
  }
}

std::vector<NamedTensor> fitting_weights(std::vector<NamedTensor> given,
                                         const std::vector<WantedWeight>& wanted,
                                         const std::string& path, const SourceLoc& loc,
                                         std::vector<std::string>* unfit) {
  std::map<std::string, NamedTensor*> by_name;
  for (NamedTensor& tensor : given) {
    by_name.emplace(tensor.name, &tensor);
  }
  std::set<std::string> known;
  for (const WantedWeight& weight : wanted) {
    known.insert(weight.path);
  }
  std::vector<std::string> unexpected;
  for (const NamedTensor& tensor : given) {
    if (!known.contains(tensor.name)) {
      unexpected.push_back(tensor.name);
    }
  }
  std::vector<std::string> problems;
  std::vector<NamedTensor> out;
  for (const WantedWeight& weight : wanted) {
    const auto found = by_name.find(weight.path);
    if (found == by_name.end()) {
      const auto nearest = nearest_name(weight.path, unexpected);
      problems.push_back(fmt::format("missing: {} {}{}", weight.path, shape_string(weight.shape),
                                     nearest ? fmt::format("; the file has `{}`", *nearest) : ""));
    } else if (found->second->tensor.shape() != weight.shape) {
      problems.push_back(fmt::format("other shape: {} is {} in the file, {} in the model",
                                     weight.path, shape_string(found->second->tensor.shape()),
                                     shape_string(weight.shape)));
    } else if (found->second->tensor.dtype() == weight.dtype) {
      out.push_back({weight.path, std::move(found->second->tensor)});
    } else {
      out.push_back({weight.path, found->second->tensor.cast(weight.dtype)});
    }
  }
  for (const std::string& name : unexpected) {
    problems.push_back(fmt::format("unexpected: {} {}", printable(name),
                                   shape_string(by_name.at(name)->tensor.shape())));
  }
  if (unfit != nullptr && !out.empty()) {
    *unfit = std::move(problems);
  } else if (!problems.empty()) {
    Diagnostics diagnostics;
    Diagnostic& error = diagnostics.error(
        "E410", loc,
        fmt::format("the weights in `{}` do not fit this model: {} of its {} weights can be filled",
                    path, out.size(), wanted.size()));
    note_each(error, problems);
    if (!out.empty()) {
      error.help("`train --partial` takes those that fit");
    }
    throw ConfigError(diagnostics);
  }
  return out;
}

int64_t weight_bytes(const Model& model) {
  int64_t bytes = 0;
  for (const WantedWeight& weight : wanted_weights(model)) {
    bytes += num_elements(weight.shape) * static_cast<int64_t>(dtype_size(weight.dtype));
  }
  return bytes;
}

std::vector<WantedWeight> wanted_weights(const Model& model) {
  std::vector<WantedWeight> out;
  for (const Weight* weight : model.weights()) {
    out.push_back({weight->path, weight->shape, weight->dtype});
  }
  return out;
}

void load_weights(StepRunner& runner, const std::string& path, const SourceLoc& loc,
                  const Model* model, std::vector<std::string>* unfit, const Agreement& agreement) {
  const auto announced = agreement.announce("reading weights");
  const std::vector<WantedWeight> wanted =
      model == nullptr ? wanted_weights(runner) : wanted_weights(*model);
  std::vector<NamedTensor> fitting;
  agreement.by_all("reading weights", [&] {
    fitting = fitting_weights(read_weights_in(path, model), wanted, path, loc, unfit);
  });
  for (const auto& [name, value] : fitting) {
    runner.write_variable(name, value);
  }
}

void save_weights(const StepRunner& runner, const std::string& path, const Agreement& agreement) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : runner.weight_paths()) {
    tensors.push_back({name, runner.read_variable(name)});
  }
  const auto announced = agreement.announce("writing the weights");
  agreement.by_first("writing the weights", [&] { write_safetensors(path, tensors); });
}

}  // namespace meshtrain
