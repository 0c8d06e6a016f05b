// What the catalogue cannot say about an optimizer's arguments.
#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "config/optimizer_members.h"
#include "mesh/layout_map.h"
#include "nn/arguments.h"
#include "nn/optimizer_rules.h"

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

void check_pattern(const std::string& pattern, const SourceLoc& loc, Diagnostics& diagnostics) {
  try {
    Pattern(pattern, loc);
  } catch (const ConfigError& error) {
    diagnostics.append(error.diagnostics());
  }
}

void check_patterns(const ConfigObject& optimizer, std::string_view argument,
                    Diagnostics& diagnostics) {
  const ConfigValue& patterns = value_or_null(optimizer, argument);
  if (!patterns.is_list()) {
    return;
  }
  for (const ConfigValue& pattern : patterns.list()) {
    check_pattern(pattern.string(), pattern.loc, diagnostics);
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

// Adds a W212 for each argument that acts only together with another one, which is not there.
void warn_of_no_effect(const ConfigObject& optimizer, Diagnostics& diagnostics) {
  const auto warn = [&](const ConfigObject& object, const char* argument, const std::string& help) {
    diagnostics
        .warning("W212", object.loc_of(argument),
                 fmt::format("`{}` of {} has no effect", argument, object.class_name))
        .help(help);
  };
  const auto is_given = [](const ConfigObject& object, const char* argument) {
    return object.has(argument) && !object.arg(argument).is_default;
  };
  if (is_given(optimizer, "nesterov") && optimizer.boolean("nesterov") &&
      number_or(optimizer, "momentum", 1) == 0) {
    warn(optimizer, "nesterov", "`momentum: 0.9` gives it something to look ahead with");
  }
  if (is_given(optimizer, "ema_momentum") && !optimizer.boolean("use_ema")) {
    warn(optimizer, "ema_momentum", "`use_ema: true` keeps the average");
  }
  if (is_given(optimizer, "exclude_from_weight_decay") &&
      number_or(optimizer, "weight_decay", 0) == 0 &&
      !optimizer.args.contains("adam_weight_decay")) {
    warn(optimizer, "exclude_from_weight_decay", "no weight decays: `weight_decay: 0.01` would");
  }
  const ConfigValue& rate = value_or_null(optimizer, "learning_rate");
  if (!rate.is_object() || rate.object().has("warmup_target")) {
    return;
  }
  const ConfigObject& schedule = rate.object();
  if (is_given(schedule, "warmup_steps") && schedule.integer("warmup_steps") > 0) {
    warn(schedule, "warmup_steps", "`warmup_target: 1e-3` is the rate that they lead to");
  }
  if (schedule.class_name != "PolynomialDecay" &&
      number_or(schedule, "initial_learning_rate", 1) == 0) {
    diagnostics
        .warning("W212", schedule.loc_of("initial_learning_rate"),
                 fmt::format("the learning rate of {} is 0 at all steps", schedule.class_name))
        .help(schedule.args.contains("warmup_target")
                  ? "`warmup_target` is the rate after a warm-up from 0"
                  : "write the rate of the first step");
  }
}

// Adds what is wrong with the keys of a MultiOptimizer for these weights.
void check_keys(const ConfigObject& optimizer, std::span<const std::string> paths,
                Diagnostics& diagnostics) {
  const std::vector<OptimizerMember> members = optimizer_members(optimizer);
  std::vector<bool> acts(members.size());
  std::set<std::pair<size_t, size_t>> reported;
  std::vector<Pattern> patterns;
  for (const OptimizerMember& member : members) {
    patterns.emplace_back(member.key, member.loc);
  }
  for (const std::string& path : paths) {
    size_t pattern = 0, exact = 0;
    for (size_t m = 1; m < members.size(); ++m) {
      exact = members[m].key == path ? m : exact;
      if (members[m].key == path || !patterns[m].full_match(path)) {
        continue;
      }
      acts[m] = true;
      if (pattern != 0 && exact == 0 && reported.insert({pattern, m}).second) {
        diagnostics
            .error("E121", members[m].loc,
                   fmt::format("two keys of `optimizer_map` match the weight `{}`: `{}` and `{}`",
                               path, members[pattern].key, members[m].key))
            .help(fmt::format("make one narrower, or add `{}` itself", path));
      }
      pattern = m;
    }
    acts[exact] = true;
  }
  for (size_t m = 1; m < members.size(); ++m) {
    if (!acts[m]) {
      Diagnostic& d = diagnostics.warning(
          "W202", members[m].loc,
          fmt::format("`{}` of `optimizer_map` matches no whole path of a weight", members[m].key));
      d.note("closest paths: " + join(nearest_names(members[m].key, paths, 2), ", "));
    }
  }
}

// Of members: no wrapper within, and what acts on all weights at once stands once.
void check_members(const ConfigObject& optimizer, Diagnostics& diagnostics) {
  const std::vector<OptimizerMember> members = optimizer_members(optimizer);
  for (const OptimizerMember& member : members) {
    const ConfigObject& own = *member.config;
    if (own.class_name == "LossScaleOptimizer" || own.class_name == "MultiOptimizer") {
      diagnostics
          .error("E113", own.loc,
                 fmt::format("a {} cannot be inside of a MultiOptimizer", own.class_name))
          .help("a LossScaleOptimizer can be around it; name optimizers that update weights");
      continue;
    }
    check_optimizer(own, diagnostics);
    if (own.has("loss_scale_factor")) {
      diagnostics.error("E113", own.loc_of("loss_scale_factor"),
                        "`loss_scale_factor` belongs to the MultiOptimizer: there is one loss");
    }
    if (accumulation_steps(own) != accumulation_steps(*members[0].config)) {
      diagnostics.error(
          "E113",
          own.has("gradient_accumulation_steps") ? own.loc_of("gradient_accumulation_steps")
                                                 : own.loc,
          "`gradient_accumulation_steps` must be the same for all optimizers of a MultiOptimizer");
    }
    check_pattern(member.key, member.loc, diagnostics);
  }
}

}  // namespace

void check_optimizer_patterns(const ConfigObject& optimizer, std::span<const std::string> paths,
                              Diagnostics& diagnostics) {
  check_keys(optimizer, paths, diagnostics);
  for (const OptimizerMember& member : optimizer_members(optimizer)) {
    for (const std::string_view argument : kPatternArguments) {
      check_matches(*member.config, argument, paths, diagnostics);
    }
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
  if (optimizer.class_name == "MultiOptimizer") {
    if (optimizer.has("default_optimizer")) {  // else reported by the reader
      check_members(optimizer, diagnostics);
    }
    return;
  }
  for (const std::string_view argument : kPatternArguments) {
    check_patterns(optimizer, argument, diagnostics);
  }
  warn_of_no_effect(optimizer, diagnostics);
  if (optimizer.has("ema_overwrite_frequency") && !optimizer.boolean("use_ema")) {
    diagnostics
        .error("E113", optimizer.loc_of("ema_overwrite_frequency"),
               fmt::format("`ema_overwrite_frequency` of {} needs `use_ema: true`",
                           optimizer.class_name))
        .help("there is no average to overwrite the weights with");
  }
}

}  // namespace meshtrain
