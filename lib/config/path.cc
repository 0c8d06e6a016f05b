#include "config/path.h"

#include <algorithm>

#include "base/text.h"
#include "config/layer_names.h"
#include "config/object_form.h"
#include "config/scalars.h"

namespace meshtrain {

std::optional<std::vector<std::string>> parse_path(std::string_view text) {
  std::vector<std::string> parts;
  size_t i = 0;
  bool wants_part = true;
  while (i < text.size()) {
    if (text[i] == '[') {
      const bool quoted = i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\'');
      const std::string close = quoted ? std::string(1, text[i + 1]) + "]" : "]";
      const size_t begin = i + (quoted ? 2 : 1);
      const size_t end = text.find(close, begin);
      if (end == std::string_view::npos || end == begin || (wants_part && !parts.empty())) {
        return std::nullopt;
      }
      parts.emplace_back(text.substr(begin, end - begin));
      i = end + close.size();
      wants_part = false;
    } else if (text[i] == '.') {
      if (wants_part) {
        return std::nullopt;
      }
      wants_part = true;
      ++i;
    } else {
      if (!wants_part) {
        return std::nullopt;
      }
      const size_t end = std::min(text.find_first_of(".[", i), text.size());
      parts.emplace_back(text.substr(i, end - i));
      i = end;
      wants_part = false;
    }
  }
  if (wants_part) {
    return std::nullopt;
  }
  return parts;
}

namespace {

// The entry of a list that `part` names: an index, or a layer's name.
std::optional<size_t> list_index(const YamlNode& list, const Spec* spec, const std::string& part) {
  if (const auto index = try_integer(part)) {
    const auto size = static_cast<int64_t>(list.children.size());
    const int64_t at = *index < 0 ? *index + size : *index;
    return at >= 0 && at < size ? std::optional<size_t>(static_cast<size_t>(at)) : std::nullopt;
  }
  if (spec != nullptr && spec->kind == ValueKind::kObjectList) {
    const std::vector<std::string> names = entry_names(list, spec->category);
    const auto it = std::find(names.begin(), names.end(), part);
    if (it != names.end()) {
      return static_cast<size_t>(it - names.begin());
    }
  }
  return std::nullopt;
}

// What the parts of a path lead through.
struct Walk {
  const YamlNode* node = nullptr;
  const Spec* spec = nullptr;             // of `node`
  const Section* section = nullptr;       // when `node` is a section
  const ClassSpec* class_spec = nullptr;  // when `node` is the map of an object's arguments
};

bool holds_object(const Spec* spec) {
  return spec != nullptr &&
         (spec->kind == ValueKind::kObject || spec->kind == ValueKind::kObjectList ||
          spec->kind == ValueKind::kFloatOrObject || spec->kind == ValueKind::kObjectPerOutput);
}

// The argument `part` of the object `node`, or its arguments when `part` is its class.
std::optional<Walk> step_into_object(const Walk& at, const std::string& part) {
  const auto form = object_form(*at.node, at.spec->category);
  if (!form) {
    return std::nullopt;
  }
  const ClassSpec* found = find_class(at.spec->category, form->spelled);
  if (part == form->spelled || (found != nullptr && part == found->name)) {
    return Walk{form->args != nullptr ? form->args : at.node, nullptr, nullptr, found};
  }
  if (found == nullptr) {
    return std::nullopt;
  }
  const Spec* arg = found->find(part);
  if (form->first != nullptr) {
    const bool is_first = !found->args.empty() && found->args[0].name == part;
    return is_first ? std::optional(Walk{form->first, arg, nullptr, nullptr}) : std::nullopt;
  }
  const YamlNode* child = form->args == nullptr ? nullptr : form->args->find(part);
  return child == nullptr ? std::nullopt : std::optional(Walk{child, arg, nullptr, nullptr});
}

std::optional<Walk> step(const Walk& at, const std::string& part) {
  if (at.class_spec == nullptr && holds_object(at.spec) && !at.node->is_list()) {
    return step_into_object(at, part);
  }
  if (at.node->is_list()) {
    const auto index = list_index(*at.node, at.spec, part);
    if (!index) {
      return std::nullopt;
    }
    return Walk{&at.node->children[*index], holds_object(at.spec) ? at.spec : nullptr, nullptr,
                nullptr};
  }
  const YamlNode* child = at.node->find(part);
  if (child == nullptr) {
    return std::nullopt;
  }
  const Spec* spec = at.section != nullptr      ? at.section->find(part)
                     : at.class_spec != nullptr ? at.class_spec->find(part)
                                                : nullptr;
  const bool is_section = spec != nullptr && spec->kind == ValueKind::kSection;
  return Walk{child, spec, is_section ? spec->section : nullptr, nullptr};
}

}  // namespace

const YamlNode* find_path(const YamlNode& root, const std::vector<std::string>& path) {
  Walk at{&root, nullptr, &root_section(), nullptr};
  for (const std::string& part : path) {
    const std::optional<Walk> next = step(at, part);
    if (!next) {
      return nullptr;
    }
    at = *next;
  }
  return at.node;
}

std::optional<std::string> default_at(const std::vector<std::string>& path) {
  const Section* section = &root_section();
  for (size_t i = 0; i < path.size(); ++i) {
    const Spec* field = section->find(path[i]);
    if (field == nullptr) {
      return std::nullopt;
    }
    if (field->kind != ValueKind::kSection) {
      const bool has_default = i + 1 == path.size() && !field->default_text.empty();
      return has_default ? std::optional(field->default_text) : std::nullopt;
    }
    section = field->section;
  }
  return std::nullopt;
}

}  // namespace meshtrain
