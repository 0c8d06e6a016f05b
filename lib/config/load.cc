#include "config/load.h"

#include <algorithm>
#include <tuple>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"
#include "config/expand.h"
#include "config/merge.h"
#include "config/path.h"
#include "config/rate_expression.h"
#include "config/reader.h"
#include "config/resolve.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxOverrides = 1000;

YamlNode load_files(const LoadOptions& options, Diagnostics& diagnostics) {
  YamlNode root{.kind = YamlNode::Kind::kMap};
  SourceLoc first;
  if (options.source != nullptr) {
    root = parse_yaml(options.source, diagnostics).value_or(root);
    root.failed = root.failed || diagnostics.has_errors();
    return root;
  }
  if (options.files.empty()) {
    diagnostics.error("E140", {}, "no configuration is given").help("meshtrain train config.yaml");
  }
  for (const std::string& file : options.files) {
    YamlNode loaded = load_file(file, diagnostics);
    first = first ? first : loaded.loc;
    merge_config(root, std::move(loaded));
  }
  root.loc = first;
  return root;
}

void apply_profile(YamlNode& root, const std::string& name, Diagnostics& diagnostics) {
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

// A flag and a word that write different things for the same key: neither is the last word. What
// the environment says is less than a word, and that is told.
void check_given_once(const LoadOptions& options, const std::string& word, const Override& change,
                      Diagnostics& diagnostics) {
  for (size_t i = 0; i < options.flags.size() && i < options.flag_names.size(); ++i) {
    const auto& [key, value] = options.flags[i];
    const std::string& flag = options.flag_names[i];
    const bool is_same = change.kind == Override::Kind::kSet && change.value_text == value;
    if (key != change.path || is_same) {
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

void apply_words(YamlNode& root, const LoadOptions& options, Diagnostics& diagnostics) {
  if (options.overrides.size() + options.flags.size() > kMaxOverrides) {
    diagnostics.error("E140", {},
                      fmt::format("{} overrides; at most {} are possible",
                                  options.overrides.size() + options.flags.size(), kMaxOverrides));
    return;
  }
  if (!options.overruled.empty()) {
    diagnostics.warning("W140", {}, options.overruled);
  }
  for (size_t i = 0; i < options.flags.size(); ++i) {
    const auto& [key, value] = options.flags[i];
    const std::string flag = i < options.flag_names.size() ? options.flag_names[i] : "--" + key;
    if (auto change = flag_override(flag, key, value, diagnostics)) {
      apply_override(root, std::move(*change), diagnostics);
    }
  }
  for (const std::string& word : options.overrides) {
    if (auto change = parse_override(word, diagnostics)) {
      check_given_once(options, word, *change, diagnostics);
      apply_override(root, std::move(*change), diagnostics);
    }
  }
}

// `shape: data=4,model=2` names and sizes the axes at once.
void split_mesh_shape(YamlNode& root, Diagnostics& diagnostics) {
  YamlNode* distribution = root.find("distribution");
  YamlNode* mesh = distribution == nullptr ? nullptr : distribution->find("device_mesh");
  YamlNode* shape = mesh == nullptr ? nullptr : mesh->find("shape");
  if (shape == nullptr || !shape->is_scalar() || starts_with(shape->text, "=") ||
      shape->text.find('=') == std::string::npos) {
    return;
  }
  const SourceLoc loc = shape->loc;
  YamlNode sizes{.kind = YamlNode::Kind::kList, .loc = loc};
  YamlNode names{.kind = YamlNode::Kind::kList, .loc = loc};
  for (const std::string& part : split(shape->text, ',')) {
    const size_t equals = part.find('=');
    const std::string name(trim(part.substr(0, equals)));
    const std::string size(equals == std::string::npos ? "" : trim(part.substr(equals + 1)));
    if (name.empty() || !try_integer(size)) {
      diagnostics.error("E112", loc, fmt::format("`{}` is no axis and size", part))
          .help("write data=4,model=2");
      shape->failed = true;
      return;
    }
    names.children.push_back(YamlNode::scalar(name, loc));
    sizes.children.push_back(YamlNode::scalar(size, loc));
  }
  sizes.key = shape->key;
  sizes.key_loc = shape->key_loc;
  *shape = std::move(sizes);
  YamlNode& axis_names = mesh->at_or_add("axis_names", loc);
  names.key = "axis_names";
  names.key_loc = axis_names.key_loc;
  axis_names = std::move(names);
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
  out.root = load_files(options, diagnostics);
  if (out.root.failed || !out.root.loc) {
    in_file_order(diagnostics)
        .throw_if_errors();  // a file is missing; what the rest lacks would be noise
  }
  apply_profile(out.root, options.profile, diagnostics);
  apply_words(out.root, options, diagnostics);
  split_mesh_shape(out.root, diagnostics);
  Expressions expressions(out.root, diagnostics);
  Expansion expansion = expand_blocks(out.root, expressions, diagnostics);
  bind_rate_expressions(out.root, expressions, diagnostics);
  expressions.evaluate(out.root);
  out.tree = Reader(diagnostics, std::move(expansion.block_names))
                 .section(&out.root, root_section(), out.root.loc);
  const std::string first_file = options.files.empty() ? std::string() : options.files[0];
  out.config = bind_config(out.tree, out.root, first_file, options.require_data, diagnostics);
  out.config.model.block_outputs = std::move(expansion.outputs);
  if (diagnostics.has_errors()) {  // otherwise that is found with all that the model decides
    check_axis_names(out.config.distribution, diagnostics);
  }
  diagnostics = in_file_order(diagnostics);
  diagnostics.throw_if_errors();
  out.config.source_text = out.root.loc.file->text;
  out.config.warnings = diagnostics;
  return out;
}

Config load_config(const LoadOptions& options) {
  return resolve_config(options).config;
}

}  // namespace meshtrain
