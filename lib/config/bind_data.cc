#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "config/bind.h"
#include "config/class_options.h"
#include "config/source.h"
#include "config/source_classes.h"
#include "config/source_like.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// A folder has a slash, so that a slip in one of the words is none.
void bind_cache(const ConfigValue& value, const std::string& folder, DataConfig& out,
                Diagnostics& diagnostics) {
  const std::string cache = value.is_null() ? "" : value.string();
  if (cache.find('/') != std::string::npos) {
    out.cache.value = resolve_path(value, folder);
  } else if (!value.is_null() && cache != "memory" && cache != "file" && cache != "none") {
    diagnostics.error("E113", value.loc, fmt::format("`cache` cannot be `{}`", cache))
        .help("`memory`, `file`, `none`, or a folder for the file: `./cache`");
  }
}

// Whether a path of the command line, or a pattern of paths, is found from the current folder.
bool is_here(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) || path.find_first_of("*?[") == std::string::npos) {
    return fs::exists(path, error);
  }
  glob_t matches = {};
  const bool is_found = ::glob(path.c_str(), GLOB_NOSORT, nullptr, &matches) == 0;
  ::globfree(&matches);
  return is_found;
}

void add_new(const Diagnostics& found, Diagnostics& diagnostics) {
  for (const Diagnostic& one : found.list()) {
    const std::vector<Diagnostic>& known = diagnostics.list();
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const Diagnostic& other) {
      return other.message == one.message && other.loc.to_string() == one.loc.to_string();
    });
    if (!is_known) {
      diagnostics.error(one.code, one.loc, one.message) = one;
    }
  }
}

// Paths of a source are given relative to `base_dir`, as written; those that mean another folder
// (an extended file's, the command line's) become absolute.
void resolve_paths(const ClassSpec& spec, const std::string& base_dir, bool has_dir,
                   const std::string& first_file, ConfigObject& source) {
  const auto resolve = [&](ConfigValue& given) {
    if (!given.is_string() || given.loc.file == nullptr) {
      return;
    }
    const bool is_word = given.loc.file->name == "command line";
    const bool is_elsewhere =
        is_word || (!has_dir && folder_of(given.loc.file->name) != folder_of(first_file));
    if (is_elsewhere && (!is_word || is_here(given.string()))) {
      std::error_code error;
      const fs::path resolved =
          fs::absolute(is_word ? given.string() : resolve_path(given, base_dir), error);
      given.data = error ? given.string() : resolved.lexically_normal().string();
    }
  };
  for (const Spec& arg : spec.args) {
    if (!names_files(arg)) {
      continue;
    }
    ConfigValue& given = source.args.at(arg.name);
    if (auto* const list = std::get_if<ConfigValue::List>(&given.data)) {
      std::for_each(list->begin(), list->end(), resolve);
    } else if (auto* const dict = std::get_if<ConfigValue::Dict>(&given.data)) {
      std::for_each(dict->begin(), dict->end(), [&](auto& entry) { resolve(entry.second); });
    } else {
      resolve(given);
    }
  }
}

// One source of validation and test data, and parts that leave something to train on.
void check_random_split(const Config& config, Diagnostics& diagnostics) {
  const SplitConfig& split = config.data.split;
  const auto refuse = [&](const SourceLoc& loc, std::string message) -> Diagnostic& {
    return diagnostics.error("E113", loc, std::move(message));
  };
  if (split.validation > 0 && (config.data.validation || config.fit.validation_split > 0)) {
    refuse(split.validation.loc,
           fmt::format("`data.split.validation` and `{}` exclude each other",
                       config.data.validation ? "data.validation" : "fit.validation_split"));
  }
  if (split.test > 0 && config.data.test) {
    refuse(split.test.loc, "`data.split.test` and `data.test` exclude each other");
  }
  const bool draws = split.validation > 0 || split.test > 0;
  if (draws && config.data.train && series_options(*config.data.train).sequence_length) {
    refuse(split.loc,
           "`data.split` draws at random, and windows of `sequence_length` rows share rows")
        .help(
            "`fit.validation_split: 0.2` validates on the last ones; `slice` of data.train, "
            "data.validation and data.test leaves no common rows");
  }
  if (split.validation + split.test >= 1) {
    refuse(split.validation.loc,
           "`validation` and `test` of `data.split` leave nothing to train on")
        .help("each is a part of data.train: `{validation: 0.2, test: 0.1}` leaves 0.7");
  }
  if (split.validation <= 0 && split.test <= 0 && (split.seed.value || !split.stratify->empty())) {
    refuse(split.loc, "`data.split` needs `validation` or `test`: a part of data.train")
        .help("write `split: {validation: 0.2}`");
  }
}

// Numbers of a table have the digits of the model, where the config does not say otherwise.
void widen_numbers(ConfigValue& source, bool is_wide) {
  const auto* const object = std::get_if<std::shared_ptr<ConfigObject>>(&source.data);
  if (object == nullptr || !is_wide || !options_if<CsvOptions>(**object)) {
    return;
  }
  if (ConfigValue& dtype = (*object)->args.at("dtype"); dtype.is_default) {
    dtype.data = std::string("float64");
  }
}

}  // namespace

bool Config::validates() const {
  return data.validation || fit.validation_split > 0 || data.split.validation > 0;
}

void bind_data(ConfigValue& tree, const std::string& first_file, Config& config,
               Diagnostics& diagnostics) {
  ConfigValue& data = tree.field("data");
  DataConfig& out = config.data;
  const ConfigValue& dir = data.field("dir");
  const std::string folder = folder_of(first_file);
  out.base_dir = dir.is_null() ? folder : resolve_path(dir, folder);
  const auto source = [&](std::string_view name) -> std::optional<ConfigObject> {
    const ConfigValue& value = data.field(name);
    if (!value.is_object()) {
      return std::nullopt;
    }
    ConfigObject object = value.object();
    const ClassSpec& spec = class_of_object(Category::kSource, object);
    resolve_paths(spec, out.base_dir, !dir.is_null(), first_file, object);
    // A source that takes the training's arguments repeats their problems.
    Diagnostics found = diagnostics;
    spec.check({object, config, tree, found});
    add_new(found, diagnostics);
    return object;
  };
  // In the tree, too: what is shown must mean the same when it is read again.
  for (const char* name : {"validation", "test"}) {
    const auto* const train = std::get_if<std::shared_ptr<ConfigObject>>(&data.field("train").data);
    const auto* const other = std::get_if<std::shared_ptr<ConfigObject>>(&data.field(name).data);
    if (train && other) {
      take_arguments(**train, **other);
    }
  }
  for (const char* name : {"train", "validation", "test"}) {
    widen_numbers(data.field(name), config.dtype_policy.value == "float64");
  }
  out.train = source("train");
  out.validation = source("validation");
  out.test = source("test");
  for (std::optional<ConfigObject>* part : {&out.validation, &out.test}) {
    if (out.train && *part) {
      read_like_training(*out.train, **part);
      check_has_masks(*out.train, **part, diagnostics);
    }
  }
  const ConfigValue& transform = data.field("transform");
  if (transform.is_list()) {
    for (const ConfigValue& entry : transform.list()) {
      if (transforms_columns(entry.object())) {
        diagnostics
            .error("E113", entry.object().loc,
                   fmt::format("`{}` changes a column of a table, not whole inputs",
                               entry.object().class_name))
            .help("write it in `preprocessing` of the source `csv`");
        continue;
      }
      if (const auto& check = class_of_object(Category::kTransform, entry.object()).check) {
        check({entry.object(), config, tree, diagnostics});
      }
      out.transform.push_back(entry.object());
    }
  }
  out.seed = config.seed;
  out.is_for_float64 = config.dtype_policy.value == "float64";
  bind_cache(data.field("cache"), folder, out, diagnostics);
  check_random_split(config, diagnostics);
}

}  // namespace meshtrain
