// What the catalogue cannot say about an optimizer's arguments.
#include "base/text.h"
#include "mesh/layout_map.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/schedules.h"

namespace meshtrain {
namespace {

void check_clips(const ConfigObject& optimizer, Diagnostics& diagnostics) {
  std::vector<std::string> clips;
  for (const char* name : {"clipnorm", "clipvalue", "global_clipnorm"}) {
    if (optimizer.has(name)) {
      clips.push_back(fmt::format("`{}`", name));
    }
  }
  if (clips.size() > 1) {
    diagnostics
        .error("E113", optimizer.loc,
               fmt::format("{} takes one way of clipping, got {}", optimizer.class_name,
                           join(clips, " and ")))
        .help("keep one of them");
  }
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
  const auto require = [&](std::string_view name, bool holds, std::string_view what) {
    if (!holds) {
      diagnostics.error("E113", optimizer.loc_of(name),
                        fmt::format("`{}` of {} {}", name, optimizer.class_name, what));
    }
  };
  check_clips(optimizer, diagnostics);
  check_patterns(optimizer, "exclude_layers", diagnostics);
  check_patterns(optimizer, "exclude_from_weight_decay", diagnostics);
  if (optimizer.has("momentum")) {
    const double momentum = optimizer.number("momentum");
    require("momentum", momentum >= 0 && momentum <= 1, "must be from 0 to 1");
  }
  if (optimizer.has("ema_overwrite_frequency")) {
    require("ema_overwrite_frequency", boolean_or(&optimizer, "use_ema", false),
            "needs `use_ema: true`");
  }
  if (optimizer.has("gradient_accumulation_steps")) {
    require("gradient_accumulation_steps", optimizer.integer("gradient_accumulation_steps") >= 2,
            "must be at least 2");
  }
  if (optimizer.has("learning_rate") && optimizer.arg("learning_rate").is_object()) {
    check_schedule(optimizer.arg("learning_rate").object(), diagnostics);
  }
}

}  // namespace meshtrain
