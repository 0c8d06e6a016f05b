// `run` and `checkpoint`: lengths and signal names, checked.
#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "config/bind.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

constexpr std::string_view kSignals[] = {"SIGTERM", "SIGUSR1", "SIGUSR2",
                                         "SIGHUP",  "SIGINT",  "SIGQUIT"};
constexpr std::string_view kActions[] = {"checkpoint-exit", "checkpoint", "report", "exit",
                                         "ignore"};

std::string listed(std::span<const std::string_view> words) {
  return join(std::vector<std::string>(words.begin(), words.end()), ", ");
}

// The parsed text of a key that may be null; E112 when it cannot be read.
template <class T>
Located<T> parsed(const ConfigValue& value, std::string_view key,
                  std::optional<T> (*parse)(std::string_view), const char* example,
                  Diagnostics& diagnostics) {
  if (value.is_null()) {
    return located(value, T{});
  }
  const std::optional<T> result = parse(value.string());
  if (!result) {
    diagnostics.error("E112", value.loc, fmt::format("`{}` cannot be `{}`", key, value.string()))
        .help(example);
  }
  return located(value, result.value_or(T{}));
}

void bind_signals(const ConfigValue& value, RunConfig& out, Diagnostics& diagnostics) {
  for (const auto& [name, action] : value.dict()) {
    if (std::find(std::begin(kSignals), std::end(kSignals), name) == std::end(kSignals)) {
      diagnostics.error("E112", action.loc, fmt::format("`on_signal` has no signal `{}`", name))
          .help("signals: " + listed(kSignals));
    } else if (std::find(std::begin(kActions), std::end(kActions), action.string()) ==
               std::end(kActions)) {
      diagnostics
          .error("E112", action.loc, fmt::format("`{}` cannot do `{}`", name, action.string()))
          .help("actions: " + listed(kActions));
    } else {
      out.on_signal.emplace_back(name, action.string());
    }
  }
}

}  // namespace

void bind_run(ConfigValue& tree, RunConfig& out, Diagnostics& diagnostics) {
  const ConfigValue& dir = field_of(tree, "dir");
  out.dir = located<std::string>(dir, dir.is_null() ? std::string() : dir.string());
  const ConfigValue& log_steps = field_of(tree, "log_steps");
  out.log_steps = located<bool>(log_steps, log_steps.boolean());
  const ConfigValue& verbose = field_of(tree, "verbose");
  out.verbose = located<int64_t>(verbose, try_integer(verbose.string()).value_or(-1));
  const ConfigValue& resume = field_of(tree, "resume");
  out.resume = located<std::string>(resume, resume.string());
  out.max_time = parsed<double>(field_of(tree, "max_time"), "max_time", parse_duration,
                                "write 23h30m, 90 min or 45s", diagnostics);
  const ConfigValue& check_replicas = field_of(tree, "check_replicas");
  out.check_replicas = located<int64_t>(check_replicas, check_replicas.integer());
  bind_signals(field_of(tree, "on_signal"), out, diagnostics);
}

void bind_checkpoint(ConfigValue& tree, CheckpointConfig& out, Diagnostics& diagnostics) {
  const auto get = [&](std::string_view name) -> const ConfigValue& {
    return field_of(tree, name);
  };
  constexpr const char* kExample = "write 200 steps, 2 epochs, 30 min or never";
  out.every = parsed<Interval>(get("every"), "every", parse_interval, kExample, diagnostics);
  out.keep = located<int64_t>(get("keep"), get("keep").integer());
  out.keep_every =
      parsed<Interval>(get("keep_every"), "keep_every", parse_interval, kExample, diagnostics);
  if (out.keep_every.value.unit == Interval::Unit::kSeconds) {
    diagnostics.error("E112", out.keep_every.loc, "`keep_every` counts steps or epochs, not time")
        .help("write 1000 steps or 10 epochs");
  }
  const ConfigValue& monitor = get("monitor");
  out.monitor = located<std::string>(monitor, monitor.is_null() ? std::string() : monitor.string());
  out.mode = located<std::string>(get("mode"), get("mode").string());
  out.on_error = located<std::string>(get("on_error"), get("on_error").string());
  out.gather = located<std::string>(get("gather"), get("gather").string());
  out.async = located<bool>(get("async"), get("async").boolean());
  out.memory =
      parsed<int64_t>(get("memory"), "memory", parse_bytes, "write 512 MiB or 2 GiB", diagnostics);
}

}  // namespace meshtrain
