#include "config/spec.h"

#include <algorithm>

namespace meshtrain {

Spec make_spec(std::string name, ValueKind kind, std::string default_text, std::string help) {
  Spec spec;
  spec.name = std::move(name);
  spec.kind = kind;
  spec.is_nullable = default_text == "null";
  spec.default_text = std::move(default_text);
  spec.help = std::move(help);
  return spec;
}

Spec choice(std::string name, std::vector<std::string> allowed, std::string default_text,
            std::string help) {
  Spec spec =
      make_spec(std::move(name), ValueKind::kEnum, std::move(default_text), std::move(help));
  spec.allowed = std::move(allowed);
  return spec;
}

Spec unsupported(std::string name, std::string help) {
  return make_spec(std::move(name), ValueKind::kUnsupported, "null", std::move(help));
}

Spec object(std::string name, ValueKind kind, Category category, std::string default_text,
            std::string help) {
  Spec spec = make_spec(std::move(name), kind, std::move(default_text), std::move(help));
  spec.category = category;
  return spec;
}

Spec section(std::string name, const Section& section, std::string help) {
  Spec spec = make_spec(std::move(name), ValueKind::kSection, "", std::move(help));
  spec.section = &section;
  if (section.owner != typeid(void)) {
    spec.owner = section.owner;
    spec.store = [&section](void* owner, const ConfigValue& value, const StoreScope& scope) {
      section.store(owner, value, scope);
      return true;
    };
  }
  return spec;
}

const Spec* Section::find(std::string_view name) const {
  const auto it = std::find_if(fields.begin(), fields.end(),
                               [&](const Spec& field) { return field.name == name; });
  return it == fields.end() ? nullptr : &*it;
}

std::vector<std::string> Section::names() const {
  std::vector<std::string> out;
  for (const Spec& field : fields) {
    if (field.kind != ValueKind::kUnsupported) {
      out.push_back(field.name);
    }
  }
  return out;
}

std::optional<std::string> Section::find_below(std::string_view name) const {
  for (const Spec& field : fields) {
    if (field.kind == ValueKind::kSection) {
      if (field.section->find(name) != nullptr) {
        return field.section->path + "." + std::string(name);
      }
      if (auto found = field.section->find_below(name)) {
        return found;
      }
    }
  }
  return std::nullopt;
}

void Section::store(void* owner, const ConfigValue& tree, const StoreScope& scope) const {
  for (const Spec& field : fields) {
    if (field.store) {
      field.store(owner, tree.field(field.name), scope);
    }
  }
}

}  // namespace meshtrain
