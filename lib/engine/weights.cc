#include "engine/weights.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/printable.h"
#include "base/text.h"
#include "data/checks.h"
#include "nn/lora.h"
#include "nn/recurrent.h"
#include "tensor/safetensors.h"

namespace meshtrain {
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
                                         std::vector<std::string>* unfit, const std::string& help,
                                         bool fills_model) {
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
    if (!known.contains(tensor.name) && !is_rnn_state(tensor.name)) {
      unexpected.push_back(tensor.name);
    }
  }
  const bool has_factors = std::any_of(given.begin(), given.end(),
                                       [](const NamedTensor& t) { return is_lora_path(t.name); });
  std::vector<std::string> problems;
  std::vector<NamedTensor> out;
  for (const WantedWeight& weight : wanted) {
    const auto found = by_name.find(weight.path);
    if (is_rnn_state(weight.path) &&
        (found == by_name.end() || found->second->tensor.shape() != weight.shape)) {
      continue;  // of another batch, or not kept
    }
    if (!has_factors && is_lora_path(weight.path)) {
      continue;  // the weights before they got factors
    }
    if (found == by_name.end()) {
      const auto nearest = nearest_path(weight.path, unexpected);
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
  for (const NamedTensor& tensor : out) {
    if (first_nonfinite(tensor.tensor) >= 0) {
      throw ConfigError(
          "E414", loc,
          fmt::format("the weights in `{}` hold NaN or infinity: {}", path, printable(tensor.name)))
          .help("take weights of an earlier checkpoint, or of another export");
    }
  }
  const bool lacks_none = problems.empty();
  for (const std::string& name : unexpected) {
    problems.push_back(fmt::format("unexpected: {} {}", printable(name),
                                   shape_string(by_name.at(name)->tensor.shape())));
  }
  if (unfit != nullptr && !out.empty() && (lacks_none || !fills_model)) {
    *unfit = std::move(problems);
  } else if (!problems.empty()) {
    Diagnostics diagnostics;
    Diagnostic& error = diagnostics.error(
        "E410", loc,
        fmt::format("the weights in `{}` do not fit this model: {} of its {} weights can be filled",
                    path, out.size(), wanted.size()));
    note_each(error, problems);
    if (fills_model && lacks_none) {
      error.help("`fit.partial_weights=true` leaves out those that are not the model's");
    } else if (!out.empty() && !fills_model) {
      error.help(help);
    }
    throw ConfigError(diagnostics);
  }
  return out;
}

std::vector<WantedWeight> wanted_weights(const StepRunner& runner) {
  std::vector<WantedWeight> out;
  for (const std::string& name : runner.weight_paths()) {
    const HostTensor current = runner.read_variable(name);
    out.push_back({name, current.shape(), current.dtype()});
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

void save_weights(const StepRunner& runner, const std::string& path,
                  const Coordinator& coordinator) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : runner.weight_paths()) {
    tensors.push_back({name, runner.read_variable(name)});
  }
  const auto announced = coordinator.announce("writing the weights");
  coordinator.on_rank_zero("writing the weights",
                           [&] { write_safetensors(path, tensors, with_checksum(tensors)); });
}

}  // namespace meshtrain
