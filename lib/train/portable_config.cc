#include "train/portable_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/catalogue.h"
#include "config/flow.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

bool has_absolute(const ConfigValue& value) {
  if (value.is_list()) {
    return std::any_of(value.list().begin(), value.list().end(), has_absolute);
  }
  if (value.is_dict()) {
    return std::any_of(value.dict().begin(), value.dict().end(),
                       [](const auto& entry) { return has_absolute(entry.second); });
  }
  return value.is_string() && fs::path(value.string()).is_absolute();
}

// A path, several, or several with names.
std::string paths_text(const ConfigValue& value) {
  std::vector<std::string> parts;
  if (value.is_list()) {
    for (const ConfigValue& part : value.list()) {
      parts.push_back(paths_text(part));
    }
    return "[" + join(parts, ", ") + "]";
  }
  if (value.is_dict()) {
    for (const auto& [name, part] : value.dict()) {
      parts.push_back(fmt::format("{}: {}", yaml_key(name), paths_text(part)));
    }
    return "{" + join(parts, ", ") + "}";
  }
  return yaml_text(value.string());
}

// After all other words: one of them may name the source whose path it is.
void set_path(const std::string& key, const std::string& text, LoadOptions& options) {
  options.overrides.push_back(fmt::format("{}={}", key, text));
}

// Paths that became absolute when the config was bound, as overrides of the text. The others are
// relative to data.dir as they stand.
void add_paths(const std::string& key, const std::optional<ConfigObject>& source,
               LoadOptions& options) {
  if (!source) {
    return;
  }
  for (const Spec& arg : find_class(Category::kSource, source->class_name)->args) {
    const ConfigValue& value = source->arg(arg.name);
    const bool may_be_path = value.is_string() || value.is_list() || value.is_dict();
    if (may_be_path && !value.is_default && has_absolute(value)) {
      set_path(fmt::format("{}.{}", key, arg.name), paths_text(value), options);
    }
  }
}

}  // namespace

std::string portable_config(LoadOptions options, const Config& config, bool with_origin) {
  const DataConfig& data = config.data;
  std::error_code error;
  const fs::path folder = fs::absolute(data.base_dir.empty() ? "." : data.base_dir, error);
  set_path("data.dir", yaml_text(folder.lexically_normal().string()), options);
  add_paths("data.train", data.train, options);
  add_paths("data.validation", data.validation, options);
  add_paths("data.test", data.test, options);
  // The run's own weights have the name that an import gives: a relative path would mean these.
  if (const std::string& weights = config.fit.initial_weights.value; !weights.empty()) {
    set_path("fit.initial_weights",
             yaml_text(fs::absolute(weights, error).lexically_normal().string()), options);
  }
  if (data.cache.value.find('/') != std::string::npos) {
    set_path("data.cache",
             yaml_text(fs::absolute(data.cache.value, error).lexically_normal().string()), options);
  }
  return show_config(options, with_origin);
}

}  // namespace meshtrain
