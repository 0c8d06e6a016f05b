#include "config/merge.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "base/text.h"
#include "config/object_form.h"
#include "config/path.h"
#include "config/source.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxExtends = 16;  // files within each other
constexpr int kMaxFiles = 200;      // files in all

// How a map's entries are described, if they are.
struct MapShape {
  const Section* section = nullptr;
  const ClassSpec* class_spec = nullptr;
  bool is_free = false;  // vars: maps merge at every depth
};

void merge_map(YamlNode& base, YamlNode over, const MapShape& shape);

// A map of arguments alone: the class is that of the map below.
bool has_only_arguments(const YamlNode& over, Category category, const ClassSpec& spec) {
  return over.is_map() && !over.children.empty() &&
         std::all_of(over.children.begin(), over.children.end(), [&](const YamlNode& child) {
           return child.key != class_key(category) && spec.find(child.key) != nullptr &&
                  find_class(category, child.key) == nullptr;
         });
}

bool merge_objects(YamlNode& base, YamlNode& over, Category category) {
  const auto a = object_form(base, category);
  const auto b = object_form(over, category);
  const ClassSpec* class_a = a ? find_class(category, a->spelled) : nullptr;
  if (class_a != nullptr && has_only_arguments(over, category, *class_a)) {
    YamlNode* args = normalize_object(base, category);
    if (args != nullptr) {
      merge_map(*args, std::move(over), {nullptr, class_a, false});
    }
    return args != nullptr;
  }
  const ClassSpec* class_b = b ? find_class(category, b->spelled) : nullptr;
  if (class_a == nullptr || class_a != class_b || !over.is_map()) {
    return false;
  }
  YamlNode* args_a = normalize_object(base, category);
  YamlNode* args_b = normalize_object(over, category);
  if (args_a == nullptr || args_b == nullptr) {
    return false;
  }
  merge_map(*args_a, std::move(*args_b), {nullptr, class_a, false});
  return true;
}

void merge_entry(YamlNode& base, YamlNode over, const Spec* spec, bool is_free) {
  const auto both_maps = base.is_map() && over.is_map();
  if (spec != nullptr && spec->kind == ValueKind::kSection) {
    if (over.is_null()) {
      return;  // a heading with nothing below
    }
    if (both_maps) {
      base.loc = over.loc;
      base.key_loc = over.key_loc;
      merge_map(base, std::move(over), {spec->section, nullptr, false});
      return;
    }
  }
  const bool is_map = spec != nullptr && spec->kind == ValueKind::kMap;
  if (both_maps && (is_free || is_map)) {
    merge_map(base, std::move(over),
              {nullptr, nullptr, is_free || spec->element == ValueKind::kAny});
    return;
  }
  const bool is_object = spec != nullptr && (spec->kind == ValueKind::kObject ||
                                             spec->kind == ValueKind::kFloatOrObject ||
                                             spec->kind == ValueKind::kObjectPerOutput);
  if (is_object && merge_objects(base, over, spec->category)) {
    return;
  }
  base = std::move(over);
}

void merge_map(YamlNode& base, YamlNode over, const MapShape& shape) {
  std::unordered_map<std::string, size_t> places;  // looked up only
  for (size_t i = 0; i < base.children.size(); ++i) {
    places.emplace(base.children[i].key, i);
  }
  std::vector<size_t> removed;
  for (YamlNode& child : over.children) {
    const auto found = places.find(child.key);
    if (found == places.end()) {
      base.children.push_back(std::move(child));
      continue;
    }
    const Spec* spec = shape.section != nullptr      ? shape.section->find(child.key)
                       : shape.class_spec != nullptr ? shape.class_spec->find(child.key)
                                                     : nullptr;
    if (child.is_null() && child.explicit_null && !null_is_value(spec)) {
      removed.push_back(found->second);
      continue;
    }
    merge_entry(base.children[found->second], std::move(child), spec, shape.is_free);
  }
  std::sort(removed.begin(), removed.end());
  size_t next = 0;
  size_t kept = 0;
  for (size_t i = 0; i < base.children.size() && !removed.empty(); ++i) {
    if (next < removed.size() && removed[next] == i) {
      ++next;
    } else {
      if (kept != i) {
        base.children[kept] = std::move(base.children[i]);
      }
      ++kept;
    }
  }
  if (!removed.empty()) {
    base.children.resize(kept);
  }
}

// Loads a file over those that it extends.
class FileLoader {
 public:
  explicit FileLoader(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  YamlNode load(const std::string& path, const SourceLoc& named_at) {
    YamlNode own;
    try {
      const auto source = read_source(path, named_at);
      auto parsed = parse_yaml(source, diagnostics_);
      if (!parsed) {
        return YamlNode{.kind = YamlNode::Kind::kMap, .failed = true};
      }
      own = std::move(*parsed);
    } catch (const ConfigError& e) {
      diagnostics_.append(e.diagnostics());
      return YamlNode{.kind = YamlNode::Kind::kMap, .failed = true};
    }
    if (own.is_null()) {
      diagnostics_.error("E101", named_at, fmt::format("no configuration in `{}`", path))
          .help("`model` and `data` are needed at least");
      return YamlNode{.kind = YamlNode::Kind::kMap, .failed = true};
    }
    if (!own.is_map()) {
      diagnostics_.error("E112", own.loc, "a configuration is a map of keys such as `model:`");
      return YamlNode{.kind = YamlNode::Kind::kMap, .failed = true};
    }
    open_.push_back(identity(path));
    YamlNode merged = load_bases(own, path);
    open_.pop_back();
    take(own, "extends");
    const std::optional<YamlNode> changes = take(own, "override");
    merge_config(merged, std::move(own));
    if (changes) {
      apply_changes(merged, *changes, "override", diagnostics_);
    }
    return merged;
  }

 private:
  static std::string identity(const std::string& path) {
    std::error_code error;
    const auto canonical = std::filesystem::weakly_canonical(path, error);
    return error ? path : canonical.string();
  }

  static std::optional<YamlNode> take(YamlNode& node, std::string_view key) {
    YamlNode* found = node.find(key);
    if (found == nullptr) {
      return std::nullopt;
    }
    YamlNode out = std::move(*found);
    node.children.erase(node.children.begin() + (found - node.children.data()));
    return out;
  }

  YamlNode load_bases(const YamlNode& own, const std::string& path) {
    YamlNode merged{.kind = YamlNode::Kind::kMap, .loc = own.loc};
    const YamlNode* extends = own.find("extends");
    if (extends == nullptr || extends->is_null()) {
      return merged;
    }
    const bool is_list = extends->is_list();
    for (size_t i = 0; i < (is_list ? extends->children.size() : 1); ++i) {
      const YamlNode& base = is_list ? extends->children[i] : *extends;
      if (!base.is_scalar() || base.text.empty()) {
        merged.failed = true;
        diagnostics_.error("E130", base.loc,
                           "`extends` must be the path of a file, or a list of paths");
      } else if (may_extend(base, path)) {
        const auto folder = std::filesystem::path(path == "-" ? "" : path).parent_path();
        YamlNode loaded = load((folder / base.text).lexically_normal().string(), base.loc);
        merged.failed = merged.failed || loaded.failed;
        merge_config(merged, std::move(loaded));
      } else {
        merged.failed = true;
      }
    }
    return merged;
  }

  bool may_extend(const YamlNode& base, const std::string& path) {
    const std::filesystem::path wanted(base.text);
    const bool leaves =
        std::any_of(wanted.begin(), wanted.end(), [](const auto& part) { return part == ".."; });
    const bool is_config = ends_with(base.text, ".yaml") || ends_with(base.text, ".yml");
    if (wanted.is_absolute() || (leaves && !is_config)) {
      diagnostics_
          .error("E130", base.loc,
                 fmt::format("`extends: {}` leaves the folder of the file", base.text))
          .help(wanted.is_absolute() ? "give a relative path, or both files on the command line"
                                     : "outside of that folder a config ends in .yaml or .yml");
      return false;
    }
    const auto folder = std::filesystem::path(path == "-" ? "" : path).parent_path();
    const std::string id = identity((folder / wanted).string());
    if (std::find(open_.begin(), open_.end(), id) != open_.end()) {
      diagnostics_.error("E130", base.loc,
                         fmt::format("`extends: {}` leads back to itself", base.text));
      return false;
    }
    if (open_.size() >= kMaxExtends || ++num_files_ > kMaxFiles) {
      diagnostics_.error("E130", base.loc,
                         fmt::format("`extends` leads through more than {} {}",
                                     open_.size() >= kMaxExtends ? kMaxExtends : kMaxFiles,
                                     open_.size() >= kMaxExtends ? "levels" : "files"));
      return false;
    }
    return true;
  }

  Diagnostics& diagnostics_;
  int num_files_ = 0;
  std::vector<std::string> open_;  // files being loaded, outermost first
};

// The section that the path leads to, or nullptr.
const Section* section_at(const std::string& path) {
  const auto parts = parse_path(path);
  const Section* section = &root_section();
  for (size_t i = 0; parts && section != nullptr && i < parts->size(); ++i) {
    const Spec* field = section->find((*parts)[i]);
    section = field != nullptr && field->kind == ValueKind::kSection ? field->section : nullptr;
  }
  return parts ? section : nullptr;
}

Override change_of(const std::string& path, const YamlNode& value) {
  Override change;
  change.kind =
      value.is_null() && value.explicit_null ? Override::Kind::kRemove : Override::Kind::kSet;
  change.path = path;
  change.path_loc = value.key_loc;
  change.value = value;
  return change;
}

void apply_change(YamlNode& root, const std::string& path, const YamlNode& value,
                  const UsedNames& used, Diagnostics& diagnostics) {
  if (value.is_map() && section_at(path) != nullptr) {
    for (const YamlNode& child : value.children) {
      apply_change(root, path + "." + child.key, child, used, diagnostics);
    }
    return;
  }
  Override change = change_of(path, value);
  if (check_variables(root, used, change, diagnostics)) {
    apply_override(root, std::move(change), diagnostics);
  }
}

}  // namespace

void merge_config(YamlNode& base, YamlNode over) {
  base.loc = over.loc;
  base.failed = base.failed || over.failed;
  // `profiles` is no section of the schema; profiles of one name are merged by path.
  if (YamlNode* theirs = over.find("profiles"); theirs != nullptr && theirs->is_map()) {
    if (YamlNode* ours = base.find("profiles"); ours != nullptr && ours->is_map()) {
      YamlNode more = *theirs;
      over.erase("profiles");
      merge_map(*ours, std::move(more), {nullptr, nullptr, true});
    }
  }
  merge_map(base, std::move(over), {&root_section(), nullptr, false});
}

YamlNode load_file(const std::string& path, Diagnostics& diagnostics) {
  return FileLoader(diagnostics).load(path, {});
}

void apply_changes(YamlNode& root, const YamlNode& changes, const std::string& owner,
                   Diagnostics& diagnostics) {
  if (changes.is_null()) {
    return;
  }
  if (!changes.is_map()) {
    diagnostics
        .error("E112", changes.loc, fmt::format("`{}` must be a map of paths and values", owner))
        .help("write `fit.epochs: 20`");
    return;
  }
  UsedNames used;
  used.add(root);
  used.add(changes);
  for (const YamlNode& child : changes.children) {
    apply_change(root, child.key, child, used, diagnostics);
  }
}

void check_changed_variables(const YamlNode& root, const YamlNode& changes, const UsedNames& used,
                             Diagnostics& diagnostics) {
  for (const YamlNode& child : changes.children) {
    check_variables(root, used, change_of(child.key, child), diagnostics);
  }
}

}  // namespace meshtrain
