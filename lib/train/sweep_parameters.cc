#include "train/sweep_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "base/hash.h"
#include "base/text.h"
#include "config/flow.h"
#include "config/reader.h"
#include "config/scalars.h"
#include "config/source.h"

namespace meshtrain {
namespace {

// As it is written in flow style.
std::string flow_text(const YamlNode& node) {
  if (node.is_list() || node.is_map()) {
    std::vector<std::string> parts;
    for (const YamlNode& child : node.children) {
      parts.push_back(node.is_map() ? child.key + ": " + flow_text(child) : flow_text(child));
    }
    return node.is_map() ? "{" + join(parts, ", ") + "}" : "[" + join(parts, ", ") + "]";
  }
  return node.is_null() ? "null" : node.quoted ? yaml_quoted(node.text) : node.text;
}

void check_range(const SweepParameter& parameter, Diagnostics& diagnostics) {
  if (parameter.is_log && parameter.low <= 0) {
    diagnostics.error("E113", parameter.loc,
                      fmt::format("`{}`: a logarithmic range begins above 0", parameter.key));
  } else if (!(parameter.low < parameter.high)) {
    diagnostics.error(
        "E113", parameter.loc,
        fmt::format("`{}`: the range is empty; the smaller number comes first", parameter.key));
  } else if (parameter.is_integer && (parameter.low != std::floor(parameter.low) ||
                                      parameter.high != std::floor(parameter.high))) {
    diagnostics.error(
        "E113", parameter.loc,
        fmt::format("`{}`: a range of whole numbers must have whole ends", parameter.key));
  }
}

const Section& range_section() {
  static const Section kSection{"range",
                                {number("min", "null", "smallest value").required(),
                                 number("max", "null", "largest value").required(),
                                 choice("scale", {"linear", "log"}, "linear", "how it is drawn"),
                                 boolean("integer", "false", "whole numbers only")}};
  return kSection;
}

// "8x1,4x2", "[1,2],[3]"; split at `;` where there is one.
std::vector<std::string> split_values(const std::string& text) {
  const char separator = text.find(';') != std::string::npos ? ';' : ',';
  std::vector<std::string> out = {""};
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote == 0 && depth == 0 && c == separator) {
      out.emplace_back();
      continue;
    }
    if (quote != 0) {
      quote = c == quote ? 0 : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
    out.back() += c;
  }
  return out;
}

// "log:1e-4..1e-1", "int:16..256", "log:int:16..256", "0..1"; nothing for other texts.
std::optional<SweepParameter> range_of(const std::string& text) {
  SweepParameter out;
  std::string_view rest = text;
  const std::pair<const char*, bool*> prefixes[] = {{"log:", &out.is_log},
                                                    {"int:", &out.is_integer}};
  for (size_t given = 0; given < std::size(prefixes); ++given) {  // in either order
    for (const auto& [prefix, flag] : prefixes) {
      if (!*flag && starts_with(rest, prefix)) {
        *flag = true;
        rest.remove_prefix(4);
      }
    }
  }
  const size_t dots = rest.find("..");
  if (dots == std::string_view::npos) {
    return std::nullopt;
  }
  const auto low = try_number(rest.substr(0, dots)), high = try_number(rest.substr(dots + 2));
  if (!low || !high) {
    return std::nullopt;
  }
  out.is_range = true;
  out.low = *low;
  out.high = *high;
  return out;
}

std::string drawn(const SweepParameter& parameter, int64_t seed, int64_t trial) {
  constexpr double kUnit = 0x1p-53;
  const uint64_t bits =
      hash_mix(hash_mix(static_cast<uint64_t>(seed), static_cast<uint64_t>(trial)),
               hash_text(parameter.key));
  const double u = static_cast<double>(bits >> 11) * kUnit;
  if (!parameter.is_range) {
    return parameter
        .choices[static_cast<size_t>(u * static_cast<double>(parameter.choices.size()))];
  }
  const double high = parameter.high + (parameter.is_integer ? 1 : 0);
  const double value = parameter.is_log ? parameter.low * std::pow(high / parameter.low, u)
                                        : parameter.low + u * (high - parameter.low);
  return parameter.is_integer ? fmt::format("{}", static_cast<int64_t>(std::floor(value)))
                              : fmt::format("{:.6g}", value);
}

}  // namespace

std::string whole_key(const std::string& key) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"mesh", "distribution.device_mesh.shape"},
      {"devices", "distribution.device_mesh.devices"},
      {"batch_size", "fit.batch_size"},
      {"batch-size", "fit.batch_size"},
      {"epochs", "fit.epochs"}};
  for (const auto& [name, whole] : kNames) {
    if (key == name) {
      return whole;
    }
  }
  return key;
}

SweepValues values_of(const YamlNode& map, const char* owner, Diagnostics& diagnostics) {
  SweepValues out;
  if (!map.is_map()) {
    diagnostics.error("E112", map.loc, fmt::format("{} must be keys with values", owner))
        .help("write {mesh: 8x1, fit.epochs: 2}");
    return out;
  }
  for (const YamlNode& child : map.children) {
    out.emplace_back(whole_key(child.key), flow_text(child));
  }
  return out;
}

SweepParameter parameter_of(const YamlNode& node, bool may_be_range, Diagnostics& diagnostics) {
  SweepParameter out{.key = whole_key(node.key), .loc = node.key_loc};
  if (node.is_map() && may_be_range) {
    const int before = diagnostics.num_errors();
    Section range = range_section();
    range.path = "parameters." + node.key;
    ConfigValue value = Reader(diagnostics).section(&node, range, node.key_loc);
    if (diagnostics.num_errors() == before) {
      out.is_range = true;
      out.low = value.field("min").number();
      out.high = value.field("max").number();
      out.is_log = value.field("scale").string() == "log";
      out.is_integer = value.field("integer").boolean();
      check_range(out, diagnostics);
    }
  } else if (node.is_list() && !node.children.empty()) {
    for (const YamlNode& child : node.children) {
      out.choices.push_back(flow_text(child));
    }
  } else {
    diagnostics
        .error("E112", node.loc, fmt::format("`{}` of `parameters` must be a list", node.key))
        .help(may_be_range ? "write [1e-2, 1e-3], or {min: 1e-4, max: 1e-1, scale: log}"
                           : "write [1e-2, 1e-3]");
  }
  return out;
}

namespace {

// `mesh=data=4,model=2` is one mesh to --mesh, and two to a list of values.
void refuse_split_mesh(const char* flag, const SweepParameter& parameter,
                       Diagnostics& diagnostics) {
  std::set<std::string> axes;
  for (const std::string& value : parameter.choices) {
    if (value.find('=') == std::string::npos || value.find(',') != std::string::npos) {
      return;
    }
    axes.emplace(trim(std::string_view(value).substr(0, value.find('='))));
  }
  if (parameter.key == "distribution.device_mesh.shape" && axes.size() > 1) {
    const std::string mesh = join(parameter.choices, ",");
    diagnostics
        .error("E140", parameter.loc,
               fmt::format("`,` parts values: these are {} meshes of one axis each, `{}`",
                           parameter.choices.size(), join(parameter.choices, "`, `")))
        .help(fmt::format("one mesh: {} 'mesh=\"{}\"'", flag, mesh))
        .help(fmt::format("several are parted by `;`: {} 'mesh={};...'", flag, mesh));
  }
}

}  // namespace

SweepParameter parameter_of_flag(const char* name, const std::string& word,
                                 Diagnostics& diagnostics) {
  const auto file = checked_source("command line", fmt::format("{} {}", name, word));
  const SourceLoc loc{file, 1, static_cast<int>(std::string_view(name).size()) + 2,
                      static_cast<int>(word.size())};
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
    diagnostics.error("E140", loc, fmt::format("`{}` names no key with values", word))
        .help(fmt::format("write {} compile.optimizer.learning_rate=1e-2,1e-3", name));
    return {};
  }
  const std::string values = word.substr(equals + 1);
  SweepParameter out;
  if (std::string_view(name) == "--random") {
    out = range_of(values).value_or(SweepParameter());
  }
  out.key = whole_key(word.substr(0, equals));
  out.loc = loc;
  if (out.is_range) {
    check_range(out, diagnostics);
    return out;
  }
  out.choices = split_values(values);
  if (std::any_of(out.choices.begin(), out.choices.end(),
                  [](const std::string& value) { return trim(value).empty(); })) {
    diagnostics.error("E140", loc, fmt::format("`{}` has a value without a text", word));
  }
  refuse_split_mesh(name, out, diagnostics);
  return out;
}

std::vector<SweepValues> grid_of(const std::vector<SweepParameter>& parameters) {
  std::vector<SweepValues> out = {{}};
  for (const SweepParameter& parameter : parameters) {
    std::vector<SweepValues> longer;
    for (const SweepValues& values : out) {
      for (const std::string& choice : parameter.choices) {
        if (std::ssize(longer) >= kMostSweepMembers) {
          throw ConfigError("E113", parameter.loc,
                            fmt::format("a sweep has at most {} runs", kMostSweepMembers));
        }
        longer.push_back(values);
        longer.back().emplace_back(parameter.key, choice);
      }
    }
    out = std::move(longer);
  }
  return out;
}

std::vector<SweepValues> zip_of(const std::vector<SweepParameter>& parameters,
                                Diagnostics& diagnostics) {
  std::vector<SweepValues> out(parameters[0].choices.size());
  for (const SweepParameter& parameter : parameters) {
    if (parameter.choices.size() != out.size()) {
      diagnostics.error(
          "E113", parameter.loc,
          fmt::format("`zip` needs as many values of each: `{}` has {}, `{}` has {}",
                      parameters[0].key, out.size(), parameter.key, parameter.choices.size()));
      return {};
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].emplace_back(parameter.key, parameter.choices[i]);
    }
  }
  return out;
}

std::vector<SweepValues> random_of(const std::vector<SweepParameter>& parameters, int64_t trials,
                                   int64_t seed) {
  std::vector<SweepValues> out;
  for (int64_t trial = 0; trial < trials; ++trial) {
    SweepValues& values = out.emplace_back();
    for (const SweepParameter& parameter : parameters) {
      values.emplace_back(parameter.key, drawn(parameter, seed, trial));
    }
  }
  return out;
}

}  // namespace meshtrain
