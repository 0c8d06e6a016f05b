#include "config/load.h"

#include <algorithm>
#include <tuple>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"
#include "config/expand.h"
#include "config/layout_presets.h"
#include "config/merge.h"
#include "config/mesh_axes.h"
#include "config/path.h"
#include "config/rate_expression.h"
#include "config/reader.h"
#include "config/resolve.h"
#include "config/scalars.h"
#include "config/tensor_expression.h"
#include "config/variables.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxOverrides = 1000;

// `main_file` becomes the last file of the command line, which nothing else is laid over.
YamlNode load_files(const LoadOptions& options, const SourceFile*& main_file,
                    Diagnostics& diagnostics) {
  YamlNode root{.kind = YamlNode::Kind::kMap};
  SourceLoc first;
  if (options.source != nullptr) {
    root = parse_yaml(options.source, diagnostics).value_or(root);
    root.failed = root.failed || diagnostics.has_errors();
    main_file = options.source.get();
    return root;
  }
  if (options.files.empty()) {
    diagnostics.error("E140", {}, "no configuration is given").help("meshtrain train config.yaml");
  }
  for (const std::string& file : options.files) {
    YamlNode loaded = load_file(file, diagnostics);
    first = first ? first : loaded.loc;
    main_file = loaded.loc.file.get();
    merge_config(root, std::move(loaded));
  }
  root.loc = first;
  return root;
}

// Profiles that are not chosen are not applied; what can be said of those of the main file without
// that are W111.
void check_unchosen(const YamlNode& profile, const YamlNode& root, const UsedNames& used,
                    Diagnostics& diagnostics) {
  if (profile.is_null() || (profile.is_map() && profile.children.empty())) {
    diagnostics.warning("W111", profile.key_loc,
                        fmt::format("the profile `{}` changes nothing", profile.key));
    return;
  }
  Diagnostics found;
  check_changed_variables(root, profile, used, found);
  for (const Diagnostic& d : found.list()) {
    Diagnostic& copy = diagnostics.warning(
        "W111", d.loc,
        fmt::format("the profile `{}` would be refused: {}", profile.key, d.message));
    copy.label = d.label;
    copy.notes = d.notes;
  }
}

void apply_profile(YamlNode& root, const std::string& name, const SourceFile* main_file,
                   const UsedNames& used, Diagnostics& diagnostics) {
  const YamlNode* found = root.find("profiles");
  if (name.empty() && found == nullptr) {
    return;
  }
  const YamlNode profiles = found == nullptr ? YamlNode{} : *found;
  root.erase("profiles");
  if (found != nullptr && !profiles.is_map() && !profiles.is_null()) {
    diagnostics.error("E112", profiles.loc, "`profiles` must be a map of names")
        .help("write `profiles: {debug: {fit.limit_steps: 5}}`");
    return;
  }
  for (const YamlNode& profile : profiles.children) {
    if (profile.key != name && profile.key_loc.file.get() == main_file) {
      check_unchosen(profile, root, used, diagnostics);
    }
  }
  if (name.empty()) {
    return;
  }
  if (const YamlNode* profile = profiles.find(name)) {
    apply_changes(root, *profile, fmt::format("profiles.{}", name), diagnostics);
    return;
  }
  std::vector<std::string> names;
  for (const YamlNode& child : profiles.children) {
    names.push_back(child.key);
  }
  Diagnostic& d =
      diagnostics.error("E140", profiles.key_loc, fmt::format("there is no profile `{}`", name));
  suggest(d, name, names);
  d.notes.push_back(names.empty() ? std::string("the configuration has no `profiles`")
                                  : fmt::format("profiles: {}", join(names, ", ")));
}

// Refuses a flag and a word that set one key to different values: E140. A word overrides what the
// environment says, with a warning.
void check_given_once(const LoadOptions& options, const std::string& word, const Override& change,
                      Diagnostics& diagnostics) {
  for (size_t i = 0; i < options.flags.size() && i < options.flag_names.size(); ++i) {
    const auto& [key, value] = options.flags[i];
    const std::string& flag = options.flag_names[i];
    const bool is_same = change.kind == Override::Kind::kSet && change.value_text == value;
    const bool names_axes = key == "distribution.device_mesh.shape" &&
                            change.path == "distribution.device_mesh.axis_names" &&
                            value.find('=') != std::string::npos;
    if ((key != change.path && !names_axes) || is_same) {
      continue;
    }
    if (starts_with(flag, "--")) {
      diagnostics.error("E140", change.path_loc,
                        fmt::format("`{}` is given twice: {} {} and {}", key, flag, value, word));
    } else {
      diagnostics.warning("W140", {}, fmt::format("`{}` counts, not {}={}", word, flag, value));
    }
  }
}

// Whether the key of a flag is part of what a word changes: --mesh of ~distribution.
bool holds_flag(const Override& change, const LoadOptions& options) {
  return std::any_of(options.flags.begin(), options.flags.end(),
                     [&](const auto& flag) { return starts_with(flag.first, change.path + "."); });
}

// `used`: what the files mention.
void apply_words(YamlNode& root, const LoadOptions& options, UsedNames used,
                 Diagnostics& diagnostics) {
  if (options.overrides.size() + options.flags.size() > kMaxOverrides) {
    diagnostics.error("E140", {},
                      fmt::format("{} overrides; at most {} are possible",
                                  options.overrides.size() + options.flags.size(), kMaxOverrides));
    return;
  }
  if (!options.overruled.empty()) {
    diagnostics.warning("W140", {}, options.overruled);
  }
  std::vector<Override> changes;
  size_t before_flags = 0;  // so many: a flag is not undone by a word for what it is part of
  for (const std::string& word : options.overrides) {
    if (auto change = parse_override(word, diagnostics)) {
      check_given_once(options, word, *change, diagnostics);
      used.add(change->value);
      changes.push_back(std::move(*change));
      before_flags = holds_flag(changes.back(), options) ? changes.size() : before_flags;
    }
  }
  const auto apply_some = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (check_variables(root, used, changes[i], diagnostics)) {
        apply_override(root, std::move(changes[i]), diagnostics);
      }
    }
  };
  apply_some(0, before_flags);
  for (size_t i = 0; i < options.flags.size(); ++i) {
    const auto& [key, value] = options.flags[i];
    const std::string flag = i < options.flag_names.size() ? options.flag_names[i] : "--" + key;
    if (auto change = flag_override(flag, key, value, diagnostics)) {
      apply_override(root, std::move(*change), diagnostics);
    }
  }
  apply_some(before_flags, changes.size());
}

// In the order of the text, not of the checks; what has no place comes first.
Diagnostics in_file_order(const Diagnostics& found) {
  std::vector<Diagnostic> list = found.list();
  std::vector<const SourceFile*> files;  // as they first occur
  const auto rank = [&](const Diagnostic& d) {
    const auto it = std::find(files.begin(), files.end(), d.loc.file.get());
    return std::make_tuple(it - files.begin(), d.loc.line, d.loc.column);
  };
  files.push_back(nullptr);
  for (const Diagnostic& d : list) {
    if (std::find(files.begin(), files.end(), d.loc.file.get()) == files.end()) {
      files.push_back(d.loc.file.get());
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  Diagnostics out;
  const auto is_same = [](const Diagnostic& a, const Diagnostic& b) {
    return a.loc.use != nullptr && a.loc.file == b.loc.file && a.loc.line == b.loc.line &&
           a.loc.column == b.loc.column && a.code == b.code && a.message == b.message;
  };
  // A slip in a block is one, however often the block is used.
  list.erase(std::unique(list.begin(), list.end(), is_same), list.end());
  for (Diagnostic& d : list) {
    Diagnostic& copy = d.severity == Severity::kError ? out.error(d.code, d.loc, d.message)
                                                      : out.warning(d.code, d.loc, d.message);
    copy.label = std::move(d.label);
    copy.notes = std::move(d.notes);
  }
  return out;
}

}  // namespace

ResolvedConfig resolve_config(const LoadOptions& options) {
  Diagnostics diagnostics;
  ResolvedConfig out;
  const SourceFile* main_file = nullptr;
  out.root = load_files(options, main_file, diagnostics);
  if (out.root.failed || !out.root.loc) {
    in_file_order(diagnostics)
        .throw_if_errors();  // a file is missing; what the rest lacks would be noise
  }
  UsedNames in_files;
  in_files.add(out.root);
  const DefaultBatchAxes batch_axes = default_batch_axes(out.root);
  apply_profile(out.root, options.profile, main_file, in_files, diagnostics);
  apply_words(out.root, options, in_files, diagnostics);
  drop_default_axis_names(out.root);
  split_mesh_shape(out.root, diagnostics);
  keep_batch_axis(out.root, batch_axes, diagnostics);
  Diagnostics unused;
  UsedNames in_all;
  in_all.add(out.root);
  warn_unused(out.root, main_file, in_files, in_all, unused);
  const std::string first_file = options.files.empty() ? std::string() : options.files[0];
  Expressions expressions(out.root, diagnostics, first_file, options.weights);
  Expansion expansion = expand_blocks(out.root, expressions, diagnostics, options.most_times);
  bind_rate_expressions(out.root, expressions, diagnostics);
  make_lambdas_of_outputs(out.root);
  expressions.evaluate(out.root);
  expand_layout_preset(out.root, diagnostics);
  if (!options.sections.empty()) {
    diagnostics = Diagnostics();  // those of all sections are found when all are read
    std::erase_if(out.root.children, [&](const YamlNode& child) {
      return std::find(options.sections.begin(), options.sections.end(), child.key) ==
             options.sections.end();
    });
  }
  out.tree = Reader(diagnostics, std::move(expansion.block_names))
                 .section(&out.root, root_section(), out.root.loc);
  out.config = bind_config(out.tree, out.root, first_file, options.require_data, diagnostics);
  out.config.model.block_outputs = std::move(expansion.outputs);
  if (diagnostics.has_errors()) {  // otherwise that is found with all that the model decides
    check_axis_names(out.config.distribution, diagnostics);
  }
  if (!diagnostics.has_errors()) {  // what is refused may be what would have used it
    diagnostics.append(unused);
  }
  diagnostics = in_file_order(diagnostics);
  diagnostics.throw_if_errors();
  out.config.source_text = out.root.loc.file->text;
  out.config.warnings = diagnostics;
  return out;
}

std::vector<std::string> given_overrides(const LoadOptions& options) {
  std::vector<std::string> out = options.overrides;
  for (const auto& [key, value] : options.flags) {
    out.push_back(key + "=" + value);
  }
  return out;
}

Config load_config(const LoadOptions& options) {
  return resolve_config(options).config;
}

LoadOptions on_mesh(LoadOptions options, const std::vector<int64_t>& shape,
                    const std::vector<std::string>& axis_names) {
  const std::string mesh = "distribution.device_mesh.";
  for (size_t i = options.flags.size(); i-- > 0;) {
    if (options.flags[i].first == mesh + "shape") {
      options.flags.erase(options.flags.begin() + static_cast<long>(i));
      options.flag_names.erase(options.flag_names.begin() + static_cast<long>(i));
    }
  }
  std::vector<std::string> names;
  for (const std::string& name : axis_names) {
    names.push_back(fmt::format("\"{}\"", name));
  }
  options.overrides.push_back(fmt::format("{}shape=[{}]", mesh, fmt::join(shape, ", ")));
  options.overrides.push_back(fmt::format("{}axis_names=[{}]", mesh, join(names, ", ")));
  return options;
}

}  // namespace meshtrain
