// What the catalogue cannot say about an optimizer's arguments.
#include "mesh/layout_map.h"
#include "nn/arguments.h"
#include "nn/compile.h"

namespace meshtrain {
namespace {

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

}  // namespace

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
  check_patterns(optimizer, "exclude_layers", diagnostics);
  check_patterns(optimizer, "exclude_from_weight_decay", diagnostics);
  if (optimizer.has("ema_overwrite_frequency") && !optimizer.boolean("use_ema")) {
    diagnostics
        .error("E113", optimizer.loc_of("ema_overwrite_frequency"),
               fmt::format("`ema_overwrite_frequency` of {} needs `use_ema: true`",
                           optimizer.class_name))
        .help("there is no average to overwrite the weights with");
  }
}

}  // namespace meshtrain
