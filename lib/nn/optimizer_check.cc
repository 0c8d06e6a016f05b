// What the catalogue cannot say about an optimizer's arguments.
#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "mesh/layout_map.h"
#include "nn/arguments.h"
#include "nn/compile.h"

namespace meshtrain {
namespace {

constexpr std::string_view kPatternArguments[] = {"exclude_layers", "exclude_from_weight_decay"};

// The paths and the names that they consist of, each once.
std::vector<std::string> parts_of(std::span<const std::string> paths) {
  std::set<std::string> parts;
  for (const std::string& path : paths) {
    for (const std::string& part : split(path, '/')) {
      parts.insert(part);
    }
    parts.insert(path);
  }
  return {parts.begin(), parts.end()};
}

void check_patterns(const ConfigObject& optimizer, std::string_view argument,
                    Diagnostics& diagnostics) {
  const ConfigValue& patterns = value_or_null(optimizer, argument);
  if (!patterns.is_list()) {
    return;
  }
  for (const ConfigValue& pattern : patterns.list()) {
    try {
      Pattern(pattern.string(), pattern.loc);
    } catch (const ConfigError& error) {
      diagnostics.append(error.diagnostics());
    }
  }
}

void check_matches(const ConfigObject& optimizer, std::string_view argument,
                   std::span<const std::string> paths, Diagnostics& diagnostics) {
  const ConfigValue& patterns = value_or_null(optimizer, argument);
  for (size_t i = 0; patterns.is_list() && i < patterns.list().size(); ++i) {
    const ConfigValue& given = patterns.list()[i];
    const Pattern pattern(given.string(), given.loc);
    if (std::any_of(paths.begin(), paths.end(),
                    [&](const std::string& path) { return pattern.search(path); })) {
      continue;
    }
    Diagnostic& d = diagnostics.warning(
        "W202", given.loc,
        fmt::format("`{}` of `{}` is in no path of a weight", given.string(), argument));
    constexpr size_t kMaxCompared = 2000;  // each comparison takes microseconds
    const auto compared = paths.first(std::min(paths.size(), kMaxCompared));
    suggest(d, given.string(), parts_of(compared));
    if (!compared.empty()) {
      d.note("closest paths: " + join(nearest_names(given.string(), compared, 2), ", "));
    }
  }
}

}  // namespace

void check_optimizer_patterns(const ConfigObject& optimizer, std::span<const std::string> paths,
                              Diagnostics& diagnostics) {
  if (optimizer.class_name == "LossScaleOptimizer") {
    check_optimizer_patterns(optimizer.arg("inner_optimizer").object(), paths, diagnostics);
    return;
  }
  for (const std::string_view argument : kPatternArguments) {
    check_matches(optimizer, argument, paths, diagnostics);
  }
}

void check_optimizer(const ConfigObject& optimizer, Diagnostics& diagnostics) {
  if (optimizer.class_name == "LossScaleOptimizer") {
    if (!optimizer.has("inner_optimizer")) {
      return;  // reported by the reader
    }
    const ConfigObject& inner = optimizer.arg("inner_optimizer").object();
    if (inner.class_name == "LossScaleOptimizer") {
      diagnostics.error("E113", inner.loc, "a LossScaleOptimizer cannot be inside of another")
          .help("name the optimizer that updates the weights, such as Adam");
      return;
    }
    check_optimizer(inner, diagnostics);
    return;
  }
  for (const std::string_view argument : kPatternArguments) {
    check_patterns(optimizer, argument, diagnostics);
  }
  if (optimizer.has("ema_overwrite_frequency") && !optimizer.boolean("use_ema")) {
    diagnostics
        .error("E113", optimizer.loc_of("ema_overwrite_frequency"),
               fmt::format("`ema_overwrite_frequency` of {} needs `use_ema: true`",
                           optimizer.class_name))
        .help("there is no average to overwrite the weights with");
  }
}

}  // namespace meshtrain
