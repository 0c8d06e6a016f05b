#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "config/bind.h"
#include "config/catalogue.h"
#include "config/scalars.h"
#include "config/source.h"
#include "config/source_like.h"
#include "config/split.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

void check_csv(const ConfigObject& source, Diagnostics& diagnostics) {
  const std::string& missing = source.string("missing");
  if (missing != "error" && missing != "mean" && !try_number(missing)) {
    diagnostics
        .error("E113", source.loc_of("missing"), fmt::format("`missing` of `csv` is `{}`", missing))
        .help("`error`, `mean`, or a number that missing features become");
  } else if (missing == "mean" && source.string("dtype") == "int32") {
    diagnostics
        .error("E113", source.loc_of("missing"),
               "`missing: mean` needs fractions, and `dtype` is `int32`")
        .help("`dtype: float32`, or a whole number for `missing`");
  }
  for (const auto& [column, texts] : source.arg("vocabulary").dict()) {
    std::set<std::string> seen;
    for (const ConfigValue& text : texts.list()) {
      if (!seen.insert(text.string()).second) {
        diagnostics.error(
            "E318", text.loc,
            fmt::format("`{}` is twice in the vocabulary of `{}`", text.string(), column));
      }
    }
  }
}

void check_image_folder(const ConfigObject& source, Diagnostics& diagnostics) {
  const auto wrong = [&](const char* arg, std::string message) -> Diagnostic& {
    return diagnostics.error("E113", source.loc_of(arg), std::move(message));
  };
  if (source.arg("image_size").list().size() > 2) {
    wrong("image_size", "`image_size` is height and width").help("write `[180, 180]`");
  }
  if (source.boolean("crop_to_aspect_ratio") && source.boolean("pad_to_aspect_ratio")) {
    wrong("pad_to_aspect_ratio",
          "`crop_to_aspect_ratio` and `pad_to_aspect_ratio` exclude each other");
  }
  // Also as what was refused already: a default has the place of the class.
  const auto is_given = [&](const char* arg) {
    const ConfigValue& value = source.arg(arg);
    return !value.is_null() || value.loc.to_string() != source.loc.to_string();
  };
  if (is_given("validation_split") != is_given("subset")) {
    wrong(is_given("subset") ? "subset" : "validation_split",
          "`validation_split` and `subset` need each other")
        .help(
            "`{validation_split: 0.2, subset: training, seed: 1}`, and `subset: validation` for "
            "the rest");
  } else if (source.has("validation_split") && !source.has("seed")) {
    wrong("validation_split", "`validation_split` needs `seed`, the order that is split")
        .note("the files are sorted by class: the last of them would be of the last classes only");
  }
  const bool has_labels = source.has("label_mode") && source.string("label_mode") != "none";
  if (source.has("class_names") && !has_labels) {
    wrong("class_names", "there are no classes with `label_mode: none`");
  }
}

void check_windows(const ConfigObject& source, Diagnostics& diagnostics) {
  if ((source.class_name == "text" || source.class_name == "tokens") &&
      !source.has("sequence_length")) {
    diagnostics.error(
        "E111", source.loc,
        fmt::format("`{}` needs `sequence_length`: length of a sample", source.class_name));
  }
  if (source.class_name == "text" && source.has("characters") + source.has("characters_file") +
                                             (source.string("vocabulary") == "bytes") >
                                         1) {
    diagnostics.error("E113", source.loc,
                      "`characters`, `characters_file` and `vocabulary: bytes` of `text` exclude "
                      "each other");
  }
}

// A folder has a slash, so that a slip in one of the words is none.
void bind_cache(const ConfigValue& value, const std::string& folder, DataConfig& out,
                Diagnostics& diagnostics) {
  const std::string& cache = out.cache.value;
  if (cache.find('/') != std::string::npos) {
    out.cache.value = resolve_path(value, folder);
  } else if (!value.is_null() && cache != "memory" && cache != "file" && cache != "none") {
    diagnostics.error("E113", value.loc, fmt::format("`cache` cannot be `{}`", cache))
        .help("`memory`, `file`, `none`, or a folder for the file: `./cache`");
  }
}

void check_split(const ConfigObject& source, const ClassSpec& spec, Diagnostics& diagnostics) {
  const Spec* const split = spec.find("split");
  if (split == nullptr) {
    return;
  }
  const SplitString parsed = parse_split(source.string("split"), split->allowed);
  if (!parsed.problem.empty()) {
    diagnostics
        .error(
            "E113", source.loc_of("split"),
            fmt::format("cannot read the split `{}`: {}", source.string("split"), parsed.problem))
        .help("write `train`, `train[:90%]`, `train[-1000:]`, or several with `+` between");
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
ConfigObject bind_source(const ConfigValue& value, const std::string& base_dir, bool has_dir,
                         const std::string& first_file, Diagnostics& diagnostics) {
  ConfigObject source = value.object();
  const ClassSpec& spec = *find_class(Category::kSource, source.class_name);
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
    if (!names_files(spec, arg)) {
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
  if (source.class_name == "random" && source.has("labels") && source.has("classes")) {
    diagnostics.error("E113", source.loc_of("classes"), "`labels` and `classes` exclude each other")
        .help("`labels` is the shape of normal labels, `classes` the number of integer labels");
  }
  Diagnostics found;  // a source that takes the training's arguments repeats their problems
  if (source.class_name == "csv") {
    check_csv(source, found);
  } else if (source.class_name == "image_folder") {
    check_image_folder(source, found);
  }
  add_new(found, diagnostics);
  check_split(source, spec, diagnostics);
  return source;
}

}  // namespace

void bind_data(ConfigValue& tree, const std::string& first_file, DataConfig& out,
               Diagnostics& diagnostics) {
  const ConfigValue& dir = tree.field("dir");
  const std::string folder = folder_of(first_file);
  out.base_dir = dir.is_null() ? folder : resolve_path(dir, folder);
  const auto source = [&](std::string_view name) -> std::optional<ConfigObject> {
    const ConfigValue& value = tree.field(name);
    if (!value.is_object()) {
      return std::nullopt;
    }
    return bind_source(value, out.base_dir, !dir.is_null(), first_file, diagnostics);
  };
  // In the tree, too: what is shown must mean the same when it is read again.
  for (const char* name : {"validation", "test"}) {
    const auto* const train = std::get_if<std::shared_ptr<ConfigObject>>(&tree.field("train").data);
    const auto* const other = std::get_if<std::shared_ptr<ConfigObject>>(&tree.field(name).data);
    if (train && other) {
      take_arguments(**train, **other);
    }
  }
  out.train = source("train");
  out.validation = source("validation");
  out.test = source("test");
  for (std::optional<ConfigObject>* part : {&out.train, &out.validation, &out.test}) {
    if (out.train && *part && part != &out.train) {
      read_like_training(*out.train, **part);
    }
    if (*part) {
      check_windows(**part, diagnostics);
    }
  }
  const ConfigValue& transform = tree.field("transform");
  if (transform.is_list()) {
    for (const ConfigValue& entry : transform.list()) {
      out.transform.push_back(entry.object());
    }
  }
  bind_cache(tree.field("cache"), folder, out, diagnostics);
}

}  // namespace meshtrain
