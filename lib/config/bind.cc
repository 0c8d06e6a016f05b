#include "config/bind.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/text.h"
#include "config/precision.h"
#include "config/scalars.h"
#include "config/schema.h"
#include "config/source.h"
#include "config/source_classes.h"

namespace meshtrain {
namespace {

// "mlp", or with the folders of a group of runs "sweep/mlp".
bool is_folder_name(const std::string& name) {
  const std::vector<std::string> parts = split(name, '/');
  return name.find('\\') == std::string::npos &&
         std::none_of(parts.begin(), parts.end(),
                      [](const std::string& part) { return part.empty() || part[0] == '.'; });
}

// Whether the folder of the runs would stand where the link to the newest run of a name is made.
bool is_of_link(const std::string& name) {
  const std::vector<std::string> parts = split(name, '/');
  return std::find(parts.begin() + 1, parts.end(), "latest") != parts.end();
}

void bind_name(ConfigValue& tree, const std::string& first_file, Located<std::string>& name,
               Diagnostics& diagnostics) {
  const std::string stem = std::filesystem::path(first_file).stem().string();
  derive(tree, name, first_file == "-" ? "stdin" : stem.empty() ? "config" : stem);
  constexpr size_t kLongest = 255;
  if (!is_folder_name(name.value)) {
    diagnostics.error(
        "E113", tree.loc,
        fmt::format("`name` must be usable as a folder's name, not `{}`", name.value));
  } else if (is_of_link(name.value)) {
    diagnostics
        .error(
            "E113", tree.loc,
            fmt::format("`name` cannot be `{}`: `latest` is the link to the newest run of a name",
                        name.value))
        .help("another word: a/newest");
  } else if (name->size() > kLongest) {
    diagnostics.error("E113", tree.loc,
                      fmt::format("`name` must be usable as a folder's name: {} bytes, at most {}",
                                  name->size(), kLongest));
  }
}

void bind_fit(const ConfigValue& tree, FitConfig& out, Diagnostics& diagnostics) {
  const ConfigValue& frequency = tree.field("validation_freq");
  if (frequency.is_list()) {
    out.validation_epochs = frequency.integers();
  }
  out.validation_freq = located(frequency, frequency.is_int() ? frequency.integer() : 1);
  for (const auto& [key, weight] : tree.field("class_weight").dict()) {
    const auto index = try_integer(key);
    if (index &&
        std::any_of(out.class_weight.begin(), out.class_weight.end(),
                    [&](const auto& other) { return try_integer(other.first) == index; })) {
      diagnostics.error(
          "E113", weight.loc,
          fmt::format("`{}` of `class_weight`: class {} has a weight already", key, *index));
    }
    out.class_weight.emplace_back(key, located<double>(weight, weight.number()));
  }
}

// ">= 0.9"
std::optional<LogBound> parse_bound(const std::string& log, const ConfigValue& value) {
  using Kind = LogBound::Kind;
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"<=", Kind::kLessEqual},
                                                          {">=", Kind::kGreaterEqual},
                                                          {"<", Kind::kLess},
                                                          {">", Kind::kGreater}};
  const std::string_view text = value.string();
  for (const auto& [sign, kind] : kKinds) {
    if (starts_with(text, sign)) {
      const auto number = try_number(trim(text.substr(sign.size())));
      return number ? std::optional(LogBound{log, kind, *number, located(value, std::string(text))})
                    : std::nullopt;
    }
  }
  return std::nullopt;
}

void bind_bounds(const ConfigValue& tree, std::vector<LogBound>& out, Diagnostics& diagnostics) {
  for (const auto& [log, value] : tree.dict()) {
    if (std::optional<LogBound> bound = parse_bound(log, value)) {
      out.push_back(std::move(*bound));
    } else {
      diagnostics
          .error("E112", value.loc,
                 fmt::format("`{}` of `expect` is no bound: `{}`", log, value.string()))
          .help("write it in quotes with <, <=, > or >= and a number: \">= 0.9\"");
    }
  }
}

void bind_signals(const ConfigValue& tree, SignalChanges& out, Diagnostics& diagnostics) {
  static const std::vector<std::string> kSignals = {"SIGTERM", "SIGUSR1", "SIGUSR2",
                                                    "SIGHUP",  "SIGINT",  "SIGQUIT"};
  for (const auto& [name, action] : tree.dict()) {
    const auto known = find_word_of<SignalAction>(action.string());
    if (std::find(kSignals.begin(), kSignals.end(), name) == kSignals.end()) {
      diagnostics.error("E112", action.loc, fmt::format("`on_signal` has no signal `{}`", name))
          .help("signals: " + join(kSignals, ", "));
    } else if (!known) {
      diagnostics
          .error("E112", action.loc, fmt::format("`{}` cannot do `{}`", name, action.string()))
          .help("actions: " + join(words_of<SignalAction>(), ", "));
    } else {
      out.emplace_back(name, *known);
    }
  }
}

void check_checkpoint(const CheckpointConfig& checkpoint, Diagnostics& diagnostics) {
  if (checkpoint.keep_every->unit == Interval::Unit::kSeconds) {
    diagnostics
        .error("E112", checkpoint.keep_every.loc, "`keep_every` counts steps or epochs, not time")
        .help("write 1000 steps or 10 epochs");
  }
}

// Not given, or given as null. What was given but could not be read has been reported already.
bool is_absent(const YamlNode& root, const char* section, const char* key) {
  const YamlNode* node = root.find(section);
  const YamlNode* given = node == nullptr ? nullptr : node->find(key);
  return given == nullptr || (given->is_null() && !given->failed);
}

void check_data(ConfigValue& tree, const YamlNode& root, const Config& config,
                Diagnostics& diagnostics) {
  const DataConfig& data = config.data;
  if (is_absent(root, "data", "train") && is_absent(root, "data", "validation") &&
      is_absent(root, "data", "test")) {
    diagnostics.error("E112", data.loc, "`data` names no samples")
        .help("write `data: {train: digits}` to try the model on built-in digits");
  }
  // `loss: [null, null]` gives none either.
  const bool has_loss = !config.compile.loss.empty() ||
                        (!is_absent(root, "compile", "loss") && diagnostics.has_errors());
  if (data.train && !has_loss) {
    const ConfigValue& loss = tree.field("compile").field("loss");
    diagnostics
        .error("E112", loss.is_default ? config.compile.loc : loss.loc,
               "`loss` of `compile` is missing")
        .help("write `compile: {loss: mse}`");
  }
  const bool has_split = config.fit.validation_split.value > 0;
  if (has_split && data.validation) {
    diagnostics
        .warning("W113", config.fit.validation_split.loc,
                 "`validation_split` is not used: there is `data.validation`")
        .with_label("leave it out");
    return;
  }
  const auto folder = data.train ? class_folder_of(*data.train) : std::nullopt;
  if (has_split && folder && !folder->is_shuffled) {
    diagnostics
        .error("E113", config.fit.validation_split.loc,
               fmt::format("`validation_split` takes the last {}, and `{}` sorts them by class",
                           folder->files, data.train->class_name))
        .help("give `data.train` a `seed`: it shuffles the files once");
  }
}

}  // namespace

Config bind_config(ConfigValue& tree, const YamlNode& root, const std::string& first_file,
                   bool require_data, Diagnostics& diagnostics) {
  Config config;
  Diagnostics unread;  // texts of plain members that cannot be read
  root_section().store(&config, tree, {folder_of(first_file), unread});
  bind_name(tree.field("name"), first_file, config.name, diagnostics);
  bind_distribution(tree.field("distribution"), root.find("distribution"), config.distribution,
                    diagnostics);
  bind_model(tree.field("model"), config.model, diagnostics);
  diagnostics.append(unread);  // now: the model's checks depend on what is wrong before it
  bind_compile(tree.field("compile"), config.model, config.compile, diagnostics);
  bind_precision(tree, config, diagnostics);
  bind_data(tree, first_file, config, diagnostics);
  bind_fit(tree.field("fit"), config.fit, diagnostics);
  bind_bounds(tree.field("expect").field("logs"), config.expect.logs, diagnostics);
  bind_bounds(tree.field("expect").field("evaluate"), config.expect.evaluate, diagnostics);
  bind_signals(tree.field("run").field("on_signal"), config.run.on_signal, diagnostics);
  check_checkpoint(config.checkpoint, diagnostics);
  bind_callbacks(tree, config, diagnostics);  // last: it looks at the rest
  if (require_data) {
    check_data(tree, root, config, diagnostics);
  }
  return config;
}

bool LogBound::holds_for(double logged) const {
  return kind == Kind::kLess        ? logged < value
         : kind == Kind::kLessEqual ? logged <= value
         : kind == Kind::kGreater   ? logged > value
                                    : logged >= value;
}

}  // namespace meshtrain
