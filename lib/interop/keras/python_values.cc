#include "interop/keras/python_values.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "interop/keras/export_model.h"
#include "interop/keras/export_objects.h"

namespace meshtrain {
namespace {

// Keywords, and names that the script uses itself.
constexpr std::string_view kTaken[] = {
    "False",     "None",       "True",       "and",    "as",   "assert", "async",  "await",
    "break",     "class",      "continue",   "def",    "del",  "elif",   "else",   "except",
    "finally",   "for",        "from",       "global", "if",   "import", "in",     "is",
    "lambda",    "nonlocal",   "not",        "or",     "pass", "raise",  "return", "try",
    "while",     "with",       "yield",      "keras",  "os",   "mesh",   "model",  "jax",
    "optimizer", "layout_map", "build_model"};

// A function with arguments, which Keras takes as a callable.
std::string activation(const ConfigObject& object) {
  std::vector<std::string> parts;
  for (const auto& [spec, value] : keras_args(object, Category::kActivation, false)) {
    parts.push_back(fmt::format("{}={}", spec->name, python_argument(*value, *spec)));
  }
  return parts.empty() ? python_text(object.class_name)
                       : fmt::format("lambda x: keras.activations.{}(x, {})", object.class_name,
                                     join(parts, ", "));
}

}  // namespace

std::string python_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string python_value(const ConfigValue& value, const Spec& spec) {
  if (value.is_object()) {
    return spec.kind == ValueKind::kActivation ? activation(value.object())
                                               : python_object(value.object(), spec.category);
  }
  if (value.is_null()) {
    return "None";
  }
  if (value.is_bool()) {
    return value.boolean() ? "True" : "False";
  }
  if (value.is_int()) {
    return fmt::format("{}", value.integer());
  }
  if (value.is_number()) {
    return std::isfinite(value.number()) ? python_float(value.number())
                                         : fmt::format("float(\"{}\")", value.number());
  }
  if (value.is_string()) {
    return python_text(value.string());
  }
  std::vector<std::string> parts;
  if (value.is_list()) {
    for (const ConfigValue& entry : value.list()) {
      parts.push_back(python_value(entry, spec));
    }
    return "[" + join(parts, ", ") + "]";
  }
  for (const auto& [key, entry] : value.dict()) {
    parts.push_back(python_text(key) + ": " + python_value(entry, spec));
  }
  return "{" + join(parts, ", ") + "}";
}

std::string python_argument(const ConfigValue& value, const Spec& spec) {
  const std::string text = python_value(value, spec);
  return spec.is_always_list && value.is_number() ? "[" + text + "]" : text;
}

std::string python_object(const ConfigObject& object, Category category) {
  std::vector<std::string> parts;
  const bool has_members = object.class_name == "MultiOptimizer";
  if (has_members) {  // Keras has a class for its map
    const Spec& member = *class_of(object, category).find("default_optimizer");
    parts.push_back(fmt::format("keras.optimizers.OptimizerMap({}, {})",
                                python_value(object.arg("default_optimizer"), member),
                                python_value(object.arg("optimizer_map"), member)));
  }
  for (const auto& [spec, value] : keras_args(object, category, false)) {
    if (has_members && (spec->name == "default_optimizer" || spec->name == "optimizer_map")) {
      continue;
    }
    parts.push_back(fmt::format("{}={}", spec->name, python_argument(*value, *spec)));
  }
  return fmt::format(
      "{}.{}({})",
      category == Category::kLayer ? module_of_layer(object.class_name) : keras_module(category),
      object.class_name, join(parts, ", "));
}

std::string python_identifier(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    out += plain ? c : '_';
  }
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0])) != 0 ||
      std::find(std::begin(kTaken), std::end(kTaken), out) != std::end(kTaken)) {
    out = "x_" + out;
  }
  return out;
}

}  // namespace meshtrain
