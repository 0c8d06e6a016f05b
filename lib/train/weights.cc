#include "train/weights.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "tensor/safetensors.h"
#include "tensor/weights.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxListed = 50;  // problems of a kind shown one by one

const NamedTensor* find(const std::vector<NamedTensor>& tensors, std::string_view name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

// A relative path in a config file starts at that file's folder; one on the command line, here.
std::string from_its_file(const std::string& path, const SourceLoc& loc) {
  std::error_code error;
  if (!loc || std::filesystem::path(path).is_absolute() ||
      !std::filesystem::is_regular_file(loc.file->name, error)) {
    return path;
  }
  return (std::filesystem::path(loc.file->name).parent_path() / path).string();
}

// One note per path, cut after kMaxListed.
void list(Diagnostic& diagnostic, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < std::min(lines.size(), kMaxListed); ++i) {
    diagnostic.note(lines[i]);
  }
  if (lines.size() > kMaxListed) {
    diagnostic.note(fmt::format("... and {} more", lines.size() - kMaxListed));
  }
}

}  // namespace

void load_weights(StepRunner& runner, const std::string& given, const SourceLoc& loc) {
  const std::string path = from_its_file(given, loc);
  const std::vector<NamedTensor> tensors = read_weights(path);
  const std::vector<std::string> wanted = runner.weight_paths();
  std::vector<std::string> unexpected;
  std::vector<std::string> problems;
  for (const NamedTensor& tensor : tensors) {
    if (std::find(wanted.begin(), wanted.end(), tensor.name) == wanted.end()) {
      unexpected.push_back(tensor.name);
    }
  }
  std::vector<std::pair<std::string, HostTensor>> values;
  for (const std::string& name : wanted) {
    const HostTensor current = runner.read_variable(name);
    const NamedTensor* given = find(tensors, name);
    if (!given) {
      const auto nearest = nearest_name(name, unexpected);
      problems.push_back(fmt::format("missing: {} {}{}", name, shape_string(current.shape()),
                                     nearest ? fmt::format("; the file has `{}`", *nearest) : ""));
    } else if (given->tensor.shape() != current.shape()) {
      problems.push_back(fmt::format("other shape: {} is {} in the file, {} in the model", name,
                                     shape_string(given->tensor.shape()),
                                     shape_string(current.shape())));
    } else {
      values.emplace_back(name, given->tensor.cast(current.dtype()));
    }
  }
  for (const std::string& name : unexpected) {
    problems.push_back(
        fmt::format("unexpected: {} {}", name, shape_string(find(tensors, name)->tensor.shape())));
  }
  if (!problems.empty()) {
    Diagnostics diagnostics;
    list(diagnostics.error("E410", loc,
                           fmt::format("the weights in `{}` do not fit this model: {} of its {} "
                                       "weights can be filled",
                                       path, values.size(), wanted.size())),
         problems);
    throw ConfigError(diagnostics);
  }
  for (const auto& [name, value] : values) {
    runner.write_variable(name, value);
  }
}

void save_weights(const StepRunner& runner, const std::string& path) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : runner.weight_paths()) {
    tensors.push_back({name, runner.read_variable(name)});
  }
  write_safetensors(path, tensors);
}

}  // namespace meshtrain
