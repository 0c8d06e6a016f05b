// Overrides: parsing the words of the command line, and changing the tree at a path.
#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "config/layer_names.h"
#include "config/object_form.h"
#include "config/other_names.h"
#include "config/path.h"
#include "config/scalars.h"
#include "config/source.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxWordBytes = 64 << 10;

SourceLoc place_in(const std::shared_ptr<const SourceFile>& file, size_t offset, size_t length) {
  return {file, 1, static_cast<int>(offset) + 1, std::max(1, static_cast<int>(length))};
}

// The first `=` outside of quotes and brackets.
size_t find_equals(std::string_view word) {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    if (quote != 0) {
      quote = c == quote ? 0 : quote;
    } else if (depth > 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '[') {
      ++depth;
    } else if (c == ']') {
      --depth;
    } else if (c == '=' && depth <= 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

Diagnostic& refuse(Diagnostics& diagnostics, const SourceLoc& loc, std::string message) {
  return diagnostics.error("E140", loc, std::move(message));
}

bool is_list_kind(const Spec* spec) {
  return spec != nullptr &&
         (spec->kind == ValueKind::kShape || spec->kind == ValueKind::kTextList ||
          spec->kind == ValueKind::kIntOrList || spec->kind == ValueKind::kFloatOrList ||
          spec->kind == ValueKind::kObjectList || spec->kind == ValueKind::kObjectsPerOutput ||
          spec->kind == ValueKind::kLayout || spec->kind == ValueKind::kFloatPerOutput);
}

bool is_object_kind(const Spec* spec) {
  return spec != nullptr &&
         (spec->kind == ValueKind::kObject || spec->kind == ValueKind::kFloatOrObject ||
          spec->kind == ValueKind::kActivation || spec->kind == ValueKind::kObjectPerOutput);
}

bool has_parts(const Spec& spec) {
  return is_list_kind(&spec) || is_object_kind(&spec) || spec.kind == ValueKind::kSection ||
         spec.kind == ValueKind::kMap || spec.kind == ValueKind::kNames ||
         spec.kind == ValueKind::kAny;
}

// Walks down to the place of an override, making what is missing on the way.
class Applier {
 public:
  Applier(YamlNode& root, Override change, Diagnostics& diagnostics)
      : root_(root), change_(std::move(change)), diagnostics_(diagnostics) {}

  void run() {
    const auto parsed = parse_path(change_.path);
    if (!parsed) {
      refuse(diagnostics_, change_.path_loc, fmt::format("`{}` is no path to a key", change_.path))
          .help("write fit.epochs=20, or distribution.layout_map[\"d1/kernel\"]=[null,model]");
      return;
    }
    parts_ = *parsed;
    in_section(root_, root_section(), 0);
  }

 private:
  bool is_last(size_t i) const { return i + 1 == parts_.size(); }

  std::string so_far(size_t i) const { return join(std::span(parts_).first(i), "."); }

  // `elsewhere`: the key that it is in another section. `other`: what to write for it; may be "".
  void unknown(size_t i, const std::string& where, const std::optional<std::string>& elsewhere,
               const std::vector<std::string>& names, const std::string& other = "") {
    Diagnostic& d = diagnostics_.error("E111", change_.path_loc,
                                       fmt::format("unknown key `{}` in {}", parts_[i], where));
    if (elsewhere) {
      d.help(fmt::format("there is `{}`", *elsewhere));
      if (parts_[i] == "mesh") {
        d.help("as a flag: --mesh 2x4");
      }
    } else if (!other.empty()) {
      d.help(other);
    } else {
      suggest(d, parts_[i], names);
    }
    if (!names.empty()) {
      d.notes.push_back("keys here: " + known_names(parts_[i], names));
    }
  }

  // `node` is the section's map (or nothing yet); parts_[i] a key of it.
  void in_section(YamlNode& node, const Section& section, size_t i) {
    const Spec* field = section.find(parts_[i]);
    if (field == nullptr) {
      unknown(i, section.path.empty() ? "the top level" : fmt::format("`{}`", section.path),
              section_with_key(parts_[i]), section.names(),
              instead_of_key(section.path, parts_[i]));
      return;
    }
    at_child(node, *field, i);
  }

  // The entry parts_[i] of the map `node`, whose value is described by `spec`.
  void at_child(YamlNode& node, const Spec& spec, size_t i) {
    if (is_last(i)) {
      change(node, &spec, parts_[i]);
      return;
    }
    if (change_.kind == Override::Kind::kRemove && node.find(parts_[i]) == nullptr) {
      return;
    }
    if (!has_parts(spec)) {
      refuse(diagnostics_, change_.path_loc,
             fmt::format("`{}` has no parts; `.{}` leads nowhere", so_far(i + 1), parts_[i + 1]));
      return;
    }
    YamlNode& child = node.at_or_add(parts_[i], change_.path_loc);
    const bool names_class = find_class(spec.category, parts_[i + 1]) != nullptr;
    if (child.is_null() && is_object_kind(&spec) && !names_class && spec.default_text != "null" &&
        !spec.default_text.empty()) {
      set_value(child, YamlNode::scalar(spec.default_text, change_.path_loc));
    }
    into(child, spec, i + 1);
  }

  // Inside of the value `node`, described by `spec`.
  void into(YamlNode& node, const Spec& spec, size_t i) {
    switch (spec.kind) {
      case ValueKind::kSection:
        return in_section(node, *spec.section, i);
      case ValueKind::kMap: {
        Spec element = spec;
        element.kind = spec.element;
        return at_child(node, element, i);
      }
      case ValueKind::kNames:
        if (node.is_map() || node.is_null()) {
          Spec entry = spec;
          entry.kind = spec.allows_nested ? ValueKind::kTextList : ValueKind::kText;
          return at_child(node, entry, i);
        }
        break;
      case ValueKind::kAny:
        return in_anything(node, i);
      default:
        break;
    }
    if (node.is_list()) {
      return in_list(node, spec, i);
    }
    if (is_object_kind(&spec) || spec.kind == ValueKind::kObjectList ||
        spec.kind == ValueKind::kObjectsPerOutput) {
      return in_object(node, spec.category, i);
    }
    refuse(diagnostics_, change_.path_loc,
           fmt::format("`{}` has no parts; `.{}` leads nowhere", so_far(i), parts_[i]));
  }

  void in_anything(YamlNode& node, size_t i) {
    static const Spec kAnything = make_spec("", ValueKind::kAny, "null", "");
    if (node.is_list()) {
      return in_list(node, kAnything, i);
    }
    at_child(node, kAnything, i);
  }

  void in_list(YamlNode& list, const Spec& spec, size_t i) {
    std::vector<std::string> names;
    if (spec.kind == ValueKind::kObjectList || spec.kind == ValueKind::kObjectsPerOutput) {
      names = entry_names(list, spec.category);
    }
    const auto found = std::find(names.begin(), names.end(), parts_[i]);
    const auto index = try_integer(parts_[i]);
    const auto size = static_cast<int64_t>(list.children.size());
    int64_t at = found != names.end() ? found - names.begin() : index.value_or(-1);
    at = index && found == names.end() && *index < 0 ? *index + size : at;
    if (at < 0 || at >= size) {
      Diagnostic& d = refuse(diagnostics_, change_.path_loc,
                             fmt::format("`{}` has no entry `{}`", so_far(i), parts_[i]));
      suggest(d, parts_[i], names);
      d.notes.push_back(
          names.empty()
              ? fmt::format("entries are 0 ... {}", size - 1)
              : fmt::format("entries: {}", join(nearest_names(parts_[i], names, 8), ", ")));
      return;
    }
    YamlNode& entry = list.children[static_cast<size_t>(at)];
    if (is_last(i)) {
      if (change_.kind == Override::Kind::kRemove) {
        list.children.erase(list.children.begin() + at);
      } else if (change_.kind == Override::Kind::kSet) {
        set_value(entry, std::move(change_.value));
      } else {
        append_to(entry, nullptr);
      }
      return;
    }
    if (names.empty()) {
      return in_anything(entry, i + 1);
    }
    in_object(entry, spec.category, i + 1);
  }

  void in_object(YamlNode& node, Category category, size_t i) {
    const std::string key(class_key(category));
    if (node.is_null()) {
      if (const ClassSpec* named = find_class(category, parts_[i])) {
        set_value(node, YamlNode::scalar(named->name, change_.path_loc));
      } else if (parts_[i] == key && is_last(i) && change_.value.is_scalar()) {
        set_value(node, std::move(change_.value));
        return;
      }
    }
    if (const YamlNode* block = category == Category::kLayer ? block_of(node) : nullptr) {
      return in_use(node, *block, i);
    }
    YamlNode* args = normalize_object(node, category);
    const auto form = object_form(node, category);
    const ClassSpec* spec = form ? find_class(category, form->spelled) : nullptr;
    if (args == nullptr || spec == nullptr) {
      refuse(diagnostics_, change_.path_loc,
             fmt::format("`{}` is no {} with arguments", so_far(i), category_name(category)));
      return;
    }
    if (find_class(category, parts_[i]) == spec && spec->find(parts_[i]) == nullptr) {
      if (is_last(i)) {
        set_value(*args, std::move(change_.value));
        return;
      }
      ++i;
    } else if (const ClassSpec* other = find_class(category, parts_[i]);
               other != nullptr && spec->find(parts_[i]) == nullptr) {
      refuse(diagnostics_, change_.path_loc,
             fmt::format("`{}` is {}, not {}", so_far(i), spec->name, other->name))
          .help(fmt::format("to change the class write {}={}", so_far(i), other->name));
      return;
    }
    if (parts_[i] == key && spec->find(key) == nullptr) {
      args->at_or_add(key, change_.path_loc);
      change(*args, nullptr, key);
      return;
    }
    const Spec* arg = spec->find(parts_[i]);
    if (arg == nullptr) {
      unknown(i, fmt::format("`{}`", spec->name), std::nullopt, spec->arg_names());
      return;
    }
    at_child(*args, *arg, i);
  }

  // The definition that the layer `node` is a use of, or nullptr.
  const YamlNode* block_of(const YamlNode& node) const {
    const auto form = object_form(node, Category::kLayer);
    const YamlNode* blocks = form ? root_.find("blocks") : nullptr;
    return blocks == nullptr ? nullptr : blocks->find(form->spelled);
  }

  // An argument of a use of a block: whether there is such a parameter is seen when it is expanded.
  void in_use(YamlNode& node, const YamlNode& block, size_t i) {
    static const Spec kArgument = make_spec("", ValueKind::kAny, "null", "");
    const auto form = object_form(node, Category::kLayer);
    YamlNode use{
        .kind = YamlNode::Kind::kMap, .loc = node.loc, .key = node.key, .key_loc = node.key_loc};
    YamlNode& args = use.at_or_add(form->spelled, form->loc);
    args.kind = YamlNode::Kind::kMap;
    if (form->args != nullptr) {
      args.children = form->args->children;
      args.erase(form->skipped);
    } else if (form->first != nullptr) {
      const YamlNode* params = block.find("params");
      if (params != nullptr && !params->children.empty()) {
        const YamlNode& first = params->children[0];
        args.children.push_back(*form->first);
        args.children[0].key = params->is_map() ? first.key : first.text;
      }
    }
    node = std::move(use);
    if (parts_[i] == node.children[0].key && !is_last(i)) {
      ++i;
    }
    at_child(node.children[0], kArgument, i);
  }

  // Sets, appends to or removes the entry `name` of the map `parent`.
  void change(YamlNode& parent, const Spec* spec, const std::string& name) {
    if (change_.kind == Override::Kind::kRemove) {
      const bool is_null = change_.value.explicit_null && null_is_value(spec);
      if (is_null) {
        set_value(parent.at_or_add(name, change_.path_loc), std::move(change_.value));
      } else {
        parent.erase(name);
      }
      return;
    }
    const bool appends = change_.kind == Override::Kind::kAppend;
    if (appends && spec != nullptr && !is_list_kind(spec) && spec->kind != ValueKind::kAny &&
        spec->kind != ValueKind::kMap) {
      refuse(diagnostics_, change_.path_loc,
             fmt::format("`{}` is no list; `+=` appends to lists", change_.path));
      return;
    }
    read_bare_list(spec);
    YamlNode& child = parent.at_or_add(name, change_.path_loc);
    if (appends) {
      append_to(child, spec);
    } else {
      set_value(child, std::move(change_.value));
    }
    child.key_loc = change_.path_loc;
  }

  void append_to(YamlNode& node, const Spec* spec) {
    if (spec != nullptr && spec->kind == ValueKind::kMap && change_.value.is_map()) {
      for (YamlNode& child : change_.value.children) {
        const std::string key = child.key;
        YamlNode& place = node.at_or_add(key, change_.path_loc);
        set_value(place, std::move(child));
      }
      return;
    }
    if (!node.is_list()) {
      YamlNode list{.kind = YamlNode::Kind::kList, .loc = change_.path_loc};
      if (!node.is_null()) {
        list.children.push_back(node);
        list.children[0].key.clear();
      }
      set_value(node, std::move(list));
    }
    if (change_.value.is_list()) {
      for (YamlNode& child : change_.value.children) {
        node.children.push_back(std::move(child));
      }
    } else {
      node.children.push_back(std::move(change_.value));
    }
  }

  // `4,2` and `a,b` where the schema has a list: brackets are a nuisance in shells.
  void read_bare_list(const Spec* spec) {
    const std::string& text = change_.value_text;
    if (!is_list_kind(spec) || !change_.value.is_scalar() || change_.value.quoted ||
        text.find(',') == std::string::npos || text.find('=') != std::string::npos) {
      return;
    }
    SourceLoc at = change_.value.loc;
    --at.column;  // the bracket that was not written
    if (auto list = parse_yaml_at("[" + text + "]", at, diagnostics_)) {
      list->loc = change_.value.loc;
      change_.value = std::move(*list);
    }
  }

  // Replaces the value, keeping the entry's key.
  void set_value(YamlNode& node, YamlNode value) {
    value.key = std::move(node.key);
    value.key_loc = node.key_loc;
    node = std::move(value);
  }

  YamlNode& root_;
  Override change_;
  Diagnostics& diagnostics_;
  std::vector<std::string> parts_;
};

// Parses `text`, which stands at `offset` of the word in `file`.
bool read_value(Override& change, const std::shared_ptr<const SourceFile>& file, size_t offset,
                const std::string& text, Diagnostics& diagnostics) {
  const SourceLoc at = place_in(file, offset, text.size());
  if (trim(text).empty()) {
    refuse(diagnostics, place_in(file, 0, file->text.size()),
           fmt::format("`{}` has no value", change.path))
        .help(fmt::format("write {0}=VALUE, or ~{0} for the default", change.path));
    return false;
  }
  auto value = parse_yaml_at(text, at, diagnostics);
  if (!value) {
    return false;
  }
  change.value = std::move(*value);
  change.value_text = text;
  if (change.value.is_null()) {
    change.value.explicit_null = true;
    change.value.loc = at;
  }
  return true;
}

}  // namespace

bool null_is_value(const Spec* spec) {
  return spec != nullptr && spec->is_nullable && spec->default_text != "null";
}

std::optional<Override> parse_override(const std::string& word, Diagnostics& diagnostics) {
  if (word.size() > kMaxWordBytes) {
    refuse(diagnostics, {},
           fmt::format("an argument has {}; at most {} are possible",
                       format_bytes(static_cast<int64_t>(word.size())),
                       format_bytes(static_cast<int64_t>(kMaxWordBytes))));
    return std::nullopt;
  }
  const auto file = checked_source("command line", word);
  Override change;
  if (starts_with(word, "~")) {
    change.kind = Override::Kind::kRemove;
    change.path = word.substr(1);
    change.path_loc = place_in(file, 1, change.path.size());
    return change;
  }
  const size_t equals = find_equals(word);
  if (equals == std::string::npos || equals == 0) {
    refuse(diagnostics, place_in(file, 0, word.size()), fmt::format("`{}` is no override", word))
        .help("write key=value, list+=item or ~key");
    return std::nullopt;
  }
  const bool appends = equals > 1 && word[equals - 1] == '+';
  change.kind = appends ? Override::Kind::kAppend : Override::Kind::kSet;
  change.path = word.substr(0, appends ? equals - 1 : equals);
  change.path_loc = place_in(file, 0, change.path.size());
  if (!read_value(change, file, equals + 1, word.substr(equals + 1), diagnostics)) {
    return std::nullopt;
  }
  return change;
}

std::optional<Override> flag_override(const std::string& flag, const std::string& key,
                                      const std::string& value, Diagnostics& diagnostics) {
  if (value.size() > kMaxWordBytes) {
    return parse_override(value, diagnostics);
  }
  const auto file = checked_source("command line", flag + " " + value);
  Override change;
  change.path = key;
  change.path_loc = place_in(file, 0, flag.size());
  if (!read_value(change, file, flag.size() + 1, value, diagnostics)) {
    return std::nullopt;
  }
  return change;
}

void apply_override(YamlNode& root, Override change, Diagnostics& diagnostics) {
  Applier(root, std::move(change), diagnostics).run();
}

}  // namespace meshtrain
