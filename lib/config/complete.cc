#include "config/complete.h"

#include "base/text.h"
#include "config/layer_names.h"
#include "config/object_form.h"
#include "config/schema.h"

namespace meshtrain {
namespace {

// What stands at a path: its values by name, and the value itself.
struct Place {
  const Section* section = nullptr;
  const Spec* spec = nullptr;         // of the value, where it is no section
  const ClassSpec* object = nullptr;  // whose arguments are the names
  const YamlNode* node = nullptr;     // where the config has it
};

const YamlNode* child_of(const YamlNode* node, std::string_view name) {
  return node != nullptr && node->is_map() ? node->find(name) : nullptr;
}

bool is_object_list(const Spec& spec) {
  return spec.kind == ValueKind::kObjectList || spec.kind == ValueKind::kObjectsPerOutput;
}

bool is_object(const Spec& spec) {
  return spec.kind == ValueKind::kObject || spec.kind == ValueKind::kFloatOrObject ||
         spec.kind == ValueKind::kObjectPerOutput;
}

// The arguments of the object that a node writes, or that a default names.
Place object_at(const YamlNode* node, Category category, std::string_view otherwise) {
  const auto form = node == nullptr ? std::nullopt : object_form(*node, category);
  const ClassSpec* found = find_class(category, form ? std::string_view(form->spelled) : otherwise);
  return {nullptr, nullptr, found, form ? form->args : nullptr};
}

// What `part` leads to; a place of nothing where it leads nowhere.
Place step(const Place& at, const std::string& part) {
  const Spec* field = at.section != nullptr  ? at.section->find(part)
                      : at.object != nullptr ? at.object->find(part)
                                             : nullptr;
  if (field != nullptr) {
    const YamlNode* node = child_of(at.node, part);
    if (field->kind == ValueKind::kSection) {
      return {field->section, nullptr, nullptr, node};
    }
    if (is_object(*field)) {
      Place place = object_at(node, field->category, field->default_text);
      place.spec = field;
      return place;
    }
    return {nullptr, field, nullptr, node};
  }
  if (at.spec != nullptr && is_object_list(*at.spec) && at.node != nullptr && at.node->is_list()) {
    const std::vector<std::string> names = entry_names(*at.node, at.spec->category);
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == part) {
        return object_at(&at.node->children[i], at.spec->category, "");
      }
    }
  }
  return {};
}

// "epochs=" or "compile.": how a name is continued.
std::string with_end(const Spec& spec) {
  const bool has_parts = spec.kind == ValueKind::kSection || is_object_list(spec) ||
                         spec.kind == ValueKind::kMap || spec.kind == ValueKind::kAny;
  return spec.name + (has_parts ? "." : "=");
}

std::vector<std::string> names_below(const Place& at) {
  std::vector<std::string> out;
  const std::vector<Spec>* fields = at.section != nullptr  ? &at.section->fields
                                    : at.object != nullptr ? &at.object->args
                                                           : nullptr;
  if (fields != nullptr) {
    for (const Spec& field : *fields) {
      if (field.kind != ValueKind::kUnsupported) {
        out.push_back(with_end(field));
        if (is_object(field)) {
          out.push_back(field.name + ".");
        }
      }
    }
    return out;
  }
  if (at.spec == nullptr || at.node == nullptr) {
    return out;
  }
  if (is_object_list(*at.spec) && at.node->is_list()) {
    for (const std::string& name : entry_names(*at.node, at.spec->category)) {
      out.push_back(name + ".");
    }
  } else if (at.node->is_map()) {  // vars, layout_map
    for (const YamlNode& child : at.node->children) {
      out.push_back(child.key + "=");
    }
  }
  return out;
}

std::vector<std::string> values_of(const Spec& spec) {
  if (spec.kind == ValueKind::kBool) {
    return {"true", "false"};
  }
  if (is_object(spec) || spec.kind == ValueKind::kActivation) {
    return class_names(spec.category);
  }
  return spec.allowed;
}

std::vector<std::string> starting_with(std::string_view word, std::string_view before,
                                       const std::vector<std::string>& ends) {
  std::vector<std::string> out;
  for (const std::string& end : ends) {
    if (std::string whole = std::string(before) + end; starts_with(whole, word)) {
      out.push_back(std::move(whole));
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> complete_override(std::string_view word, const YamlNode* root) {
  const size_t equals = word.find('=');
  const std::string_view path = word.substr(0, equals);
  const size_t dot = equals == std::string_view::npos ? path.rfind('.') : std::string_view::npos;
  const std::string_view leading = equals != std::string_view::npos ? path
                                   : dot != std::string_view::npos  ? path.substr(0, dot)
                                                                    : std::string_view();
  Place at = {&root_section(), nullptr, nullptr, root};
  if (!leading.empty()) {
    for (const std::string& part : split(leading, '.')) {
      at = step(at, part);
    }
  }
  if (equals == std::string_view::npos) {
    const std::string_view before = dot == std::string_view::npos ? "" : path.substr(0, dot + 1);
    return starting_with(word, before, names_below(at));
  }
  return at.spec == nullptr ? std::vector<std::string>()
                            : starting_with(word, word.substr(0, equals + 1), values_of(*at.spec));
}

}  // namespace meshtrain
