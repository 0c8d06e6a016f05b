#include "config/flow.h"

#include <algorithm>

#include "base/text.h"
#include "config/catalogue.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

bool is_plain_text(std::string_view text) {
  constexpr std::string_view kSafe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  const std::string lower = to_lower(text);
  for (const std::string_view word :
       {"null", "none", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) {
      return false;
    }
  }
  return !text.empty() && text.find_first_not_of(kSafe) == std::string_view::npos &&
         text[0] != '-' && !try_number(text) && !try_integer(text);
}

std::string flow_object(const ConfigObject& object) {
  std::vector<std::string> parts;
  const ClassSpec* const spec = spec_of(object);
  for (const auto& [name, value] : object.args) {
    if (!says_default(value, spec == nullptr ? nullptr : spec->find(name))) {
      parts.push_back(fmt::format("{}: {}", name, yaml_argument(name, value)));
    }
  }
  // Without the braces it would be the word `accuracy`.
  const bool keeps_braces = object.class_name == "Accuracy";
  return parts.empty() && !keeps_braces
             ? yaml_key(object.spelled)
             : fmt::format("{{{}: {{{}}}}}", object.class_name, join(parts, ", "));
}

}  // namespace

bool says_default(const ConfigValue& value, const Spec* spec) {
  if (value.is_default || spec == nullptr || spec->is_required) {
    return value.is_default;
  }
  const std::string& text = spec->default_text;
  return value.is_number()   ? try_number(text) == value.number()
         : value.is_string() ? text == value.string() && text != "null"
         : value.is_bool()   ? text == (value.boolean() ? "true" : "false")
                             : value.is_null() && text == "null";
}

bool has_given_arguments(const ConfigObject& object) {
  const ClassSpec* const spec = spec_of(object);
  return std::any_of(object.args.begin(), object.args.end(), [&](const auto& arg) {
    return !says_default(arg.second, spec == nullptr ? nullptr : spec->find(arg.first));
  });
}

std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n' || c == '\t') {
      out += c == '\n' ? "\\n" : "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string yaml_key(std::string_view text) {
  return is_plain_text(text) ? std::string(text) : yaml_quoted(text);
}

std::string yaml_text(std::string_view text) {
  const bool is_evaluated = text.starts_with('=') || text.find("${") != std::string_view::npos;
  const char quote = text.find('"') == std::string_view::npos ? '"' : '\'';
  const bool has_both = quote == '\'' && text.find(quote) != std::string_view::npos;
  return is_evaluated && !has_both ? yaml_quoted(fmt::format("={0}{1}{0}", quote, text))
                                   : yaml_key(text);
}

std::string yaml_flow(const ConfigValue& value) {
  if (value.is_null()) {
    return "null";
  }
  if (value.is_bool()) {
    return value.boolean() ? "true" : "false";
  }
  if (value.is_int()) {
    return fmt::format("{}", value.integer());
  }
  if (value.is_number()) {
    return format_shortest(value.number());
  }
  if (value.is_string()) {
    return yaml_text(value.string());
  }
  if (value.is_object()) {
    return flow_object(value.object());
  }
  std::vector<std::string> parts;
  if (value.is_list()) {
    for (const ConfigValue& entry : value.list()) {
      parts.push_back(yaml_flow(entry));
    }
    return "[" + join(parts, ", ") + "]";
  }
  for (const auto& [key, entry] : value.dict()) {
    parts.push_back(fmt::format("{}: {}", yaml_key(key), yaml_flow(entry)));
  }
  return "{" + join(parts, ", ") + "}";
}

std::string yaml_argument(std::string_view name, const ConfigValue& value) {
  if (name == "function" && value.is_string()) {
    return yaml_key(value.string());
  }
  const std::string text = yaml_flow(value);
  const bool is_whole = value.is_number() && try_integer(text).has_value();
  return name == "learning_rate" && is_whole ? text + ".0" : text;
}

}  // namespace meshtrain
