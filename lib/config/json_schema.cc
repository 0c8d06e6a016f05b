// json_schema: the schema and the catalogue for editors, JSON Schema draft 2020-12.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/cells.h"
#include "config/layout_presets.h"
#include "config/load.h"
#include "config/scalars.h"
#include "config/schema.h"

namespace meshtrain {
namespace {

using Json = nlohmann::ordered_json;

// Every single value may be an expression instead.
Json expression() {
  return Json{{"type", "string"}, {"pattern", "^=|\\$\\{"}};
}

Json any_of(std::vector<Json> options) {
  return Json{{"anyOf", std::move(options)}};
}

Json with_range(Json schema, const Spec& spec) {
  if (std::isfinite(spec.minimum)) {
    schema[spec.above_minimum ? "exclusiveMinimum" : "minimum"] = spec.minimum;
  }
  if (std::isfinite(spec.maximum)) {
    schema[spec.below_maximum ? "exclusiveMaximum" : "maximum"] = spec.maximum;
  }
  return schema;
}

std::string definition_name(Category category) {
  return category == Category::kSource ? "source" : std::string(category_name(category));
}

Json reference(Category category) {
  return Json{{"$ref", std::string("#/$defs/") + definition_name(category)}};
}

Json list_of(Json items) {
  return Json{{"type", "array"}, {"items", std::move(items)}};
}
Json map_of(Json values) {
  return Json{{"type", "object"}, {"additionalProperties", std::move(values)}};
}

Json any_text() {
  return Json{{"type", "string"}};
}

Json section_schema(const Section& section);

// Of a value that is a list, or may be one.
std::vector<Json> list_options(const Spec& spec) {
  const Json integer = with_range(Json{{"type", "integer"}}, spec);
  const Json null = Json{{"type", "null"}};
  switch (spec.kind) {
    case ValueKind::kIntOrList:
      return {integer,
              list_of(spec.allows_nested ? Json::object() : any_of({integer, expression()})),
              expression()};
    case ValueKind::kFloatOrList:
      return {with_range(Json{{"type", "number"}}, spec), list_of(Json::object()), expression()};
    case ValueKind::kShape:
      return {list_of(any_of({Json{{"type", "integer"}}, null, expression()})),
              Json{{"type", "integer"}}, any_text()};
    case ValueKind::kNames:
      return {any_text(), list_of(any_text()),
              map_of(spec.allows_nested ? any_of({any_text(), list_of(any_text())}) : any_text())};
    case ValueKind::kLayout:
      return {list_of(any_of({null, any_text(), list_of(any_text())}))};
    default:  // kTextList, kPaths
      return {any_text(), list_of(any_text())};
  }
}

// Of a value that names classes, or may name one.
std::vector<Json> class_options(const Spec& spec) {
  const Json number = with_range(Json{{"type", "number"}}, spec);
  const Json named = reference(spec.category);
  const Json null = Json{{"type", "null"}};
  switch (spec.kind) {
    case ValueKind::kActivation:
      return {reference(Category::kActivation)};
    case ValueKind::kFloatOrObject:
      return {number, named, expression()};
    case ValueKind::kObjectList:
      return {list_of(named)};
    case ValueKind::kObjectPerOutput:
      return {named, list_of(any_of({named, null})), map_of(any_of({named, null}))};
    case ValueKind::kObjectsPerOutput:
      return {named, list_of(any_of({named, list_of(named), null})),
              map_of(any_of({named, list_of(named), null}))};
    default:  // kObject
      return takes_cells(spec) ? std::vector<Json>{named, list_of(named)}
                               : std::vector<Json>{named};
  }
}

std::vector<Json> options_of(const Spec& spec) {
  const Json number = with_range(Json{{"type", "number"}}, spec);
  switch (spec.kind) {
    case ValueKind::kBool:
      return {Json{{"type", "boolean"}}, expression()};
    case ValueKind::kInt:
      return {with_range(Json{{"type", "integer"}}, spec), expression()};
    case ValueKind::kFloat:
      return {number, expression()};
    case ValueKind::kEnum:
      return {Json{{"enum", spec.allowed}}, expression()};
    case ValueKind::kFloatPerOutput:
      return {number, list_of(number), map_of(number), expression()};
    case ValueKind::kMap: {
      Spec element = spec;
      element.kind = spec.element;
      std::vector<Json> options = options_of(element);
      if (spec.element != ValueKind::kLayout) {
        return {map_of(any_of(options))};
      }
      Json presets = Json::array();
      for (const LayoutPreset& preset : layout_presets()) {
        presets.push_back(preset.name);
      }
      options.push_back(Json{{"enum", presets}});  // of the key `preset`
      return {map_of(any_of(options)), Json{{"enum", presets}}};
    }
    case ValueKind::kSection:
      return {section_schema(*spec.section)};
    case ValueKind::kAny:
      return {Json::object()};
    case ValueKind::kUnsupported:
      return {Json{{"type", "null"}}};
    case ValueKind::kIntOrList:
    case ValueKind::kFloatOrList:
    case ValueKind::kShape:
    case ValueKind::kTextList:
    case ValueKind::kPaths:
    case ValueKind::kNames:
    case ValueKind::kLayout:
      return list_options(spec);
    case ValueKind::kActivation:
    case ValueKind::kObject:
    case ValueKind::kFloatOrObject:
    case ValueKind::kObjectList:
    case ValueKind::kObjectPerOutput:
    case ValueKind::kObjectsPerOutput:
      return class_options(spec);
    default:
      return {any_text()};
  }
}

Json spec_schema(const Spec& spec) {
  std::vector<Json> options = options_of(spec);
  if (spec.is_nullable && spec.kind != ValueKind::kUnsupported) {
    options.push_back(Json{{"type", "null"}});
  }
  if (spec.kind == ValueKind::kSection) {
    options.push_back(Json{{"type", "null"}});
  }
  Json schema = options.size() == 1 ? options[0] : any_of(std::move(options));
  schema["description"] = spec.help;
  if (!spec.default_text.empty() && spec.default_text != "null") {
    const bool is_number = spec.kind == ValueKind::kInt || spec.kind == ValueKind::kFloat;
    const auto integer = try_integer(spec.default_text);
    schema["default"] = spec.kind == ValueKind::kBool ? Json(spec.default_text == "true")
                        : is_number && integer        ? Json(*integer)
                        : is_number                   ? Json(try_number(spec.default_text).value())
                                                      : Json(spec.default_text);
  }
  return schema;
}

Json properties(const std::vector<Spec>& specs, Json schema) {
  Json required = Json::array();
  for (const Spec& spec : specs) {
    if (spec.kind != ValueKind::kUnsupported) {
      schema["properties"][spec.name] = spec_schema(spec);
    }
    if (spec.is_required) {
      required.push_back(spec.name);
    }
  }
  if (!required.empty()) {
    schema["required"] = std::move(required);
  }
  schema["additionalProperties"] = false;
  return schema;
}

Json section_schema(const Section& section) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}};
  // What a file lacks may come from another one that it extends.
  schema = properties(section.fields, std::move(schema));
  schema.erase("required");
  return schema;
}

// What may stand below the name of a class: its arguments, or its first one.
Json values_schema(const ClassSpec& spec) {
  Json arguments = {{"type", "object"}, {"properties", Json::object()}};
  arguments = properties(spec.args, std::move(arguments));
  std::vector<Json> values = {std::move(arguments)};
  if (spec.args.empty() || !spec.args[0].is_required) {
    values.push_back(Json{{"type", "null"}});
  }
  if (!spec.args.empty()) {
    values.push_back(spec_schema(spec.args[0]));
  }
  return any_of(std::move(values));
}

// The names of a class, its own first.
std::vector<std::string> spellings_of(const ClassSpec& spec) {
  std::vector<std::string> names = {spec.name};
  std::vector<std::string> others = spec.aliases;
  others.push_back(to_snake_case(spec.name));
  others.push_back(to_lower(spec.name));
  for (const std::string& name : others) {
    if (find_class(spec.category, name) == &spec &&
        std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return names;
}

// The class by any of its names as the one key of a map; `values` is its values_schema's place.
Json class_schema(const ClassSpec& spec, const std::string& values) {
  Json schema = {{"type", "object"},   {"description", spec.help}, {"properties", Json::object()},
                 {"minProperties", 1}, {"maxProperties", 1},       {"additionalProperties", false}};
  for (const std::string& name : spellings_of(spec)) {
    schema["properties"][name] = Json{{"$ref", values}};
  }
  return schema;
}

// Those of the classes' values join `definitions`.
Json category_schema(Category category, Json& definitions) {
  std::vector<Json> options;
  Json names = Json::array();
  Json spellings = Json::array();
  for (const ClassSpec& spec : classes(category)) {
    const std::string definition = definition_name(category) + "." + spec.name;
    definitions[definition] = values_schema(spec);
    options.push_back(class_schema(spec, "#/$defs/" + definition));
    names.push_back(spec.name);
    for (const std::string& name : spellings_of(spec)) {
      spellings.push_back(name);
    }
  }
  // A layer's word may be a block's, which the schema does not know.
  const bool may_be_block = category == Category::kLayer;
  options.insert(options.begin(), may_be_block ? any_of({Json{{"enum", names}}, any_text()})
                                               : any_of({Json{{"enum", spellings}}, expression()}));
  const std::string key(class_key(category));
  options.push_back(Json{{"type", "object"},
                         {"properties", {{key, Json{{"enum", spellings}}}}},
                         {"required", Json::array({key})}});
  options.push_back(Json{{"type", "object"}, {"required", Json::array({"class_name"})}});
  if (category == Category::kLayer) {  // a use of a block: any other name alone
    options.push_back(Json{{"type", "object"},
                           {"minProperties", 1},
                           {"maxProperties", 1},
                           {"propertyNames", {{"not", {{"enum", names}}}}}});
  }
  return any_of(std::move(options));
}

// Changes `path: value`, as `override` and `profiles` have them; each path begins with a key of the
// top level.
Json changes_schema() {
  std::vector<std::string> keys;
  for (const Spec& spec : root_section().fields) {
    keys.push_back(spec.name);
  }
  const Json path = {{"pattern", "^(" + join(keys, "|") + ")([.\\[]|$)"}};
  return Json{{"type", "object"}, {"propertyNames", path}};
}

Json described(Json schema, const char* help) {
  schema["description"] = help;
  return schema;
}

}  // namespace

std::string json_schema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "meshtrain configuration"}};
  schema.update(section_schema(root_section()));
  schema["properties"]["extends"] = described(any_of({any_text(), list_of(any_text())}),
                                              "config files that this one changes, in order");
  schema["properties"]["override"] = described(
      changes_schema(), "path -> value, over what is extended: `fit.epochs: 5`; null removes");
  schema["properties"]["profiles"] =
      described(map_of(changes_schema()), "name -> changes that `--profile NAME` makes");
  for (int i = 0; i < kNumCategories; ++i) {
    const auto category = static_cast<Category>(i);
    Json definitions = Json::object();
    schema["$defs"][definition_name(category)] = category_schema(category, definitions);
    schema["$defs"].update(definitions);
  }
  return json_text(schema, 2) + "\n";
}

}  // namespace meshtrain
