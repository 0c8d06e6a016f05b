#include "config/bind.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/precision.h"
#include "config/scalars.h"

namespace meshtrain {

namespace fs = std::filesystem;

ConfigValue& field_of(ConfigValue& dict, std::string_view name) {
  for (auto& [key, value] : std::get<ConfigValue::Dict>(dict.data)) {
    if (key == name) {
      return value;
    }
  }
  throw InternalError(fmt::format("the schema has no field {}", name));
}

std::string folder_of(const std::string& file) {
  return file == "-" || file == "<stdin>" ? std::string() : fs::path(file).parent_path().string();
}

std::string resolve_path(const ConfigValue& value, const std::string& folder) {
  const fs::path path(value.string());
  if (path.is_absolute()) {
    return path.string();
  }
  const bool is_word = value.loc.file != nullptr && value.loc.file->name == "command line";
  std::error_code error;
  if (is_word && fs::exists(path, error)) {
    return path.string();
  }
  const std::string own =
      is_word || value.loc.file == nullptr ? folder : folder_of(value.loc.file->name);
  return (fs::path(own) / path).lexically_normal().string();
}

namespace {

// Null stands for 0: no limit, or the default of another key.
Located<int64_t> count_or_zero(const ConfigValue& value) {
  return located<int64_t>(value, value.is_null() ? 0 : value.integer());
}
Located<std::string> text_or_empty(const ConfigValue& value) {
  return located<std::string>(value, value.is_null() ? std::string() : value.string());
}

void bind_fit(ConfigValue& tree, const std::string& folder, FitConfig& out,
              Diagnostics& diagnostics) {
  const auto get = [&](std::string_view name) -> const ConfigValue& {
    return field_of(tree, name);
  };
  out.loc = tree.is_default ? SourceLoc() : tree.loc;
  out.batch_size = count_or_zero(get("batch_size"));
  out.epochs = count_or_zero(get("epochs"));
  out.initial_epoch = count_or_zero(get("initial_epoch"));
  out.steps_per_epoch = count_or_zero(get("steps_per_epoch"));
  out.limit_steps = count_or_zero(get("limit_steps"));
  const ConfigValue& split = get("validation_split");
  out.validation_split = located<double>(split, split.number());
  out.validation_batch_size = count_or_zero(get("validation_batch_size"));
  out.validation_steps = count_or_zero(get("validation_steps"));
  const ConfigValue& frequency = get("validation_freq");
  if (frequency.is_list()) {
    out.validation_epochs = frequency.integers();
    out.validation_freq = located<int64_t>(frequency, 1);
  } else {
    out.validation_freq = count_or_zero(frequency);
  }
  for (const auto& [key, weight] : get("class_weight").dict()) {
    const auto index = try_integer(key);
    const auto is_same = [&](const auto& other) { return other.first == *index; };
    if (!index || *index < 0) {
      diagnostics.error("E112", weight.loc,
                        fmt::format("`{}` of `class_weight` must be a class: 0, 1, ...", key));
    } else if (std::any_of(out.class_weight.begin(), out.class_weight.end(), is_same)) {
      diagnostics.error(
          "E113", weight.loc,
          fmt::format("`{}` of `class_weight`: class {} has a weight already", key, *index));
    } else {
      out.class_weight.emplace_back(*index, located<double>(weight, weight.number()));
    }
  }
  const ConfigValue& weights = get("initial_weights");
  if (!weights.is_null()) {
    out.initial_weights = located<std::string>(weights, resolve_path(weights, folder));
  }
}

void bind_evaluate(ConfigValue& tree, EvaluateConfig& out) {
  out.on = text_or_empty(field_of(tree, "on"));
  out.batch_size = count_or_zero(field_of(tree, "batch_size"));
  out.steps = count_or_zero(field_of(tree, "steps"));
}

// Not given, or given as null. What was given but could not be read has been reported already.
bool is_absent(const YamlNode& root, const char* section, const char* key) {
  const YamlNode* node = root.find(section);
  const YamlNode* given = node == nullptr ? nullptr : node->find(key);
  return given == nullptr || (given->is_null() && !given->failed);
}

void check_data(ConfigValue& tree, const YamlNode& root, const Config& config,
                Diagnostics& diagnostics) {
  const DataConfig& data = config.data;
  if (is_absent(root, "data", "train") && is_absent(root, "data", "validation") &&
      is_absent(root, "data", "test")) {
    diagnostics.error("E112", data.loc, "`data` names no samples")
        .help("write `data: {train: digits}` to try the model on built-in digits");
  }
  // `loss: [null, null]` gives none either.
  const bool has_loss = !config.compile.loss.empty() ||
                        (!is_absent(root, "compile", "loss") && diagnostics.has_errors());
  if (data.train && !has_loss) {
    const ConfigValue& loss = field_of(field_of(tree, "compile"), "loss");
    diagnostics
        .error("E112", loss.is_default ? config.compile.loc : loss.loc,
               "`loss` of `compile` is missing")
        .help("write `compile: {loss: mse}`");
  }
  const bool has_split = config.fit.validation_split.value > 0;
  if (has_split && data.validation) {
    diagnostics
        .warning("W113", config.fit.validation_split.loc,
                 "`validation_split` is not used: there is `data.validation`")
        .with_label("leave it out");
  } else if (has_split && data.train && data.train->class_name == "image_folder" &&
             !data.train->has("seed")) {
    diagnostics
        .error("E113", config.fit.validation_split.loc,
               "`validation_split` takes the last images, and `image_folder` sorts them by class")
        .help("give `data.train` a `seed`: it shuffles the files once");
  }
}

}  // namespace

Config bind_config(ConfigValue& tree, const YamlNode& root, const std::string& first_file,
                   bool require_data, Diagnostics& diagnostics) {
  Config config;
  ConfigValue& name = field_of(tree, "name");
  if (name.is_null()) {
    const std::string stem = fs::path(first_file).stem().string();
    name.data = first_file == "-" || stem.empty() ? std::string("config") : stem;
    name.is_default = true;
  }
  config.name = located<std::string>(name, name.string());
  const std::string bad = "/\\";
  if (config.name.value.find_first_of(bad) != std::string::npos || config.name.value[0] == '.') {
    diagnostics.error(
        "E113", name.loc,
        fmt::format("`name` must be usable as a folder's name, not `{}`", config.name.value));
  } else if (constexpr size_t kLongest = 255; config.name.value.size() > kLongest) {
    diagnostics.error("E113", name.loc,
                      fmt::format("`name` must be usable as a folder's name: {} bytes, at most {}",
                                  config.name.value.size(), kLongest));
  }
  const ConfigValue& seed = field_of(tree, "seed");
  config.seed = located<int64_t>(seed, seed.integer());
  bind_distribution(field_of(tree, "distribution"), root.find("distribution"), config.distribution,
                    diagnostics);
  bind_model(field_of(tree, "model"), config.model, diagnostics);
  bind_compile(field_of(tree, "compile"), config.model, config.compile, diagnostics);
  bind_precision(tree, config, diagnostics);
  bind_data(field_of(tree, "data"), first_file, config.data, diagnostics);
  bind_fit(field_of(tree, "fit"), folder_of(first_file), config.fit, diagnostics);
  bind_evaluate(field_of(tree, "evaluate"), config.evaluate);
  bind_run(field_of(tree, "run"), config.run, diagnostics);
  bind_checkpoint(field_of(tree, "checkpoint"), config.checkpoint, diagnostics);
  const ConfigValue& hardware = field_of(field_of(tree, "plan"), "hardware");
  if (!hardware.is_null()) {
    config.plan.hardware =
        located<std::string>(hardware, resolve_path(hardware, folder_of(first_file)));
  }
  bind_callbacks(tree, config, diagnostics);  // last: it looks at the rest
  if (require_data) {
    check_data(tree, root, config, diagnostics);
  }
  return config;
}

}  // namespace meshtrain
