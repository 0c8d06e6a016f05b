// Every form in which Keras writes an argument of a layer: the config that import writes reads as
// Keras means it.
#include <doctest/doctest.h>

#include "base/json.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "interop/keras/export_json.h"
#include "keras_files.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

size_t rank_of(const ClassSpec& layer) {
  const size_t digit = layer.name.find_first_of("123");
  return digit == std::string::npos ? 1 : static_cast<size_t>(layer.name[digit] - '0');
}

bool is_edges(const ClassSpec& layer, const Spec& arg) {
  return (starts_with(layer.name, "ZeroPadding") && arg.name == "padding") ||
         (starts_with(layer.name, "Cropping") && arg.name == "cropping");
}

bool is_per_dimension(const Spec& arg) {
  for (const char* name : {"kernel_size", "strides", "dilation_rate", "pool_size", "size",
                           "output_size", "output_padding"}) {
    if (arg.name == name) {
      return true;
    }
  }
  return false;
}

// `entry` once for each spatial dimension.
Json repeated(const Json& entry, size_t rank) {
  Json out = Json::array();
  for (size_t i = 0; i < rank; ++i) {
    out.push_back(entry);
  }
  return out;
}

// 1, 2, ... for each spatial dimension.
Json counted(size_t rank) {
  Json out = Json::array();
  for (size_t i = 0; i < rank; ++i) {
    out.push_back(i + 1);
  }
  return out;
}

// (before, after) of each dimension, as keras.utils.argument_validation reads padding and cropping.
Json edges_meant(const Json& value, size_t rank) {
  if (value.is_number()) {
    return repeated({value, value}, rank);
  }
  if (rank == 1) {
    return Json::array({value});
  }
  Json out = Json::array();
  for (const Json& entry : value) {
    out.push_back(entry.is_number() ? Json::array({entry, entry}) : entry);
  }
  return out;
}

// What Keras takes the value for, in full.
Json meant(const Json& value, const ClassSpec& layer, const Spec& arg) {
  if (value.is_null() || (arg.kind == ValueKind::kIntOrList && value.empty())) {
    return nullptr;
  }
  if (is_edges(layer, arg)) {
    return edges_meant(value, rank_of(layer));
  }
  if (arg.kind == ValueKind::kIntOrList && value.is_number()) {
    return repeated(value, is_per_dimension(arg) ? rank_of(layer) : 1);
  }
  return value;
}

// The forms in which Keras may write the argument; none where it is a single value in every form.
std::vector<Json> forms(const ClassSpec& layer, const Spec& arg) {
  const size_t rank = rank_of(layer);
  std::vector<Json> out;
  if (is_edges(layer, arg)) {
    out = {0,
           1,
           repeated({0, 1}, rank),
           repeated({1, 0}, rank),
           repeated({1, 1}, rank),
           repeated({2, 1}, rank)};
    if (rank == 1) {  // (before, after) stands alone
      return {0, 1, {0, 1}, {1, 0}, {1, 1}};
    }
    out.push_back(counted(rank));
    out.push_back(repeated(1, rank));
    out.push_back(repeated({0, 1}, rank));
    out.back()[0] = {0, 2};
    out.push_back(repeated({1, 1}, rank));
    out.back()[0] = {2, 2};
    out.push_back(repeated(1, rank));
    out.back()[rank - 1] = {0, 1};
  } else if (arg.kind == ValueKind::kIntOrList && is_per_dimension(arg)) {
    out = {1, 2, repeated(1, rank), repeated(2, rank), counted(rank)};
  } else if (arg.kind == ValueKind::kIntOrList) {
    out = {1, -1, {1}, {-1}, {1, 2}, {1, 1}, {-2, -1}};
    if (arg.is_nullable && arg.default_text != "null") {  // Normalization's axis=None
      out.push_back(Json::array());
    }
  } else if (arg.kind == ValueKind::kFloatOrList) {
    out = {0.25, {0.25}, {0.25, 0.25}, {0.25, 0.5}, {{0.25, 0.5}}, {{0.25, 0.25}, {0.25, 0.25}}};
    if (!(arg.minimum >= 0)) {
      out.insert(out.end(), {-0.25, {-0.25, 0.5}, {-0.25, 0.25}});
    }
  } else if (arg.kind == ValueKind::kShape) {
    out = {{3}, {2, 2}, {2, 3}, {1}};
    if (arg.allows_unknown) {
      out.insert(out.end(), {{nullptr, 2}, {nullptr}});
    }
    if (arg.allows_infer) {
      out.insert(out.end(), {{-1}, {-1, 2}});
    }
    if (arg.allows_empty) {
      out.push_back(Json::array());
    }
  }
  if (!out.empty() && arg.is_nullable) {
    out.emplace_back(nullptr);
  }
  return out;
}

// As Keras 2 writes tuples.
Json as_tuples(const Json& value) {
  if (!value.is_array()) {
    return value;
  }
  Json items = Json::array();
  for (const Json& entry : value) {
    items.push_back(as_tuples(entry));
  }
  return {{"class_name", "__tuple__"}, {"items", items}};
}

Json required_value(const Spec& arg) {
  switch (arg.kind) {
    case ValueKind::kFloat:
    case ValueKind::kFloatOrList:
      return 0.5;
    case ValueKind::kShape:
      return Json::array({2});
    case ValueKind::kActivation:
      return "relu";
    case ValueKind::kText:
      return "abc,cd->abd";
    default:
      return 3;
  }
}

// A model of the one layer, its other required arguments with values of the right type.
std::string model_with(const ClassSpec& layer, const Spec& arg, const Json& value) {
  Json config = {{"name", "it"}};
  for (const Spec& other : layer.args) {
    if (other.is_required) {
      config[other.name] = required_value(other);
    }
  }
  config[arg.name] = value;
  const Json input = {{"name", "x"},
                      {"class_name", "InputLayer"},
                      {"config", {{"name", "x"}, {"batch_shape", {nullptr, 8, 8, 8, 3}}}},
                      {"inbound_nodes", Json::array()}};
  const Json tensor = {{"class_name", "__keras_tensor__"},
                       {"config", {{"keras_history", {"x", 0, 0}}}}};
  const Json tensors = repeated(tensor, layer.name == "Dot" ? 2 : 1);
  const Json node = {{"args", tensors}, {"kwargs", Json::object()}};
  const Json made = {{"name", "it"},
                     {"class_name", layer.name},
                     {"config", config},
                     {"inbound_nodes", Json::array({node})}};
  return Json{{"class_name", "Functional"},
              {"config",
               {{"name", "m"},
                {"layers", {input, made}},
                {"input_layers", Json::array({{"x", 0, 0}})},
                {"output_layers", Json::array({{"it", 0, 0}})}}}}
      .dump();
}

Json json_of(const ConfigValue& value) {
  if (value.is_null()) {
    return nullptr;
  }
  if (value.is_list()) {
    Json out = Json::array();
    for (const ConfigValue& entry : value.list()) {
      out.push_back(json_of(entry));
    }
    return out;
  }
  return value.is_int() ? Json(value.integer()) : Json(value.number());
}

Json argument_of(const Config& config, const Spec& arg) {
  return json_of(config.model.layers.at(1).object.arg(arg.name));
}

LoadOptions options_of(const std::string& yaml) {
  LoadOptions options;
  options.source = std::make_shared<SourceFile>(SourceFile{"imported.yaml", yaml});
  options.require_data = false;
  return options;
}

// Whether import, and `config show` of what it writes, keep the meaning of `written`.
void check_reading(const ClassSpec& layer, const Spec& arg, const Json& written,
                   const Json& expected) {
  CAPTURE(layer.name);
  CAPTURE(arg.name);
  CAPTURE(written.dump());
  try {
    const std::string yaml = test::import_text(model_with(layer, arg, written)).yaml;
    CAPTURE(yaml);
    CHECK(meant(argument_of(test::config_of(yaml), arg), layer, arg) == expected);
    const std::string shown = show_config(options_of(yaml), false);
    CHECK(meant(argument_of(test::config_of(shown), arg), layer, arg) == expected);
  } catch (const ConfigError& error) {
    FAIL_CHECK(std::string(error.what()));
  }
}

TEST_CASE("an imported argument reads as Keras means it, however Keras writes it") {
  int checked = 0;
  for (const ClassSpec& layer : classes(Category::kLayer)) {
    for (const Spec& arg : layer.args) {
      for (const Json& form : layer.name == "Input" ? std::vector<Json>() : forms(layer, arg)) {
        const Json expected = meant(form, layer, arg);
        check_reading(layer, arg, form, expected);
        check_reading(layer, arg, as_tuples(form), expected);
        ++checked;
      }
    }
  }
  CHECK(checked > 300);
}

}  // namespace
}  // namespace meshtrain
