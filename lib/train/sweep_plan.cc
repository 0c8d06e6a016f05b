#include "train/sweep_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/hash.h"
#include "base/text.h"
#include "config/flow.h"
#include "config/reader.h"
#include "config/scalars.h"
#include "config/source.h"
#include "config/yaml.h"

namespace meshtrain {
namespace {

constexpr size_t kMostMembers = 100000;

// A key and what it may be: texts, or a range to draw from.
struct Parameter {
  std::string key;
  SourceLoc loc;
  std::vector<std::string> choices;
  double low = 0, high = 0;
  bool is_range = false, is_log = false, is_integer = false;
};

// Names that stand for keys, as flags of `train` do.
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

void check_range(const Parameter& parameter, Diagnostics& diagnostics) {
  if (parameter.is_log && parameter.low <= 0) {
    diagnostics.error("E113", parameter.loc,
                      fmt::format("`{}`: a logarithmic range begins above 0", parameter.key));
  } else if (!(parameter.low < parameter.high)) {
    diagnostics.error(
        "E113", parameter.loc,
        fmt::format("`{}`: the range is empty; the smaller number comes first", parameter.key));
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

Parameter parameter_of(const YamlNode& node, bool may_be_range, Diagnostics& diagnostics) {
  Parameter out{.key = whole_key(node.key), .loc = node.key_loc};
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

// "log:1e-4..1e-1", "int:16..256", "0..1"; nothing for other texts.
std::optional<Parameter> range_of(const std::string& text) {
  Parameter out;
  std::string_view rest = text;
  for (const auto& [prefix, flag] : {std::pair("log:", &out.is_log), {"int:", &out.is_integer}}) {
    if (starts_with(rest, prefix)) {
      *flag = true;
      rest.remove_prefix(4);
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

// "KEY=VALUE,VALUE" of the flag `name`.
Parameter parameter_of_flag(const char* name, const std::string& word, Diagnostics& diagnostics) {
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
  Parameter out;
  if (std::string_view(name) == "--random") {
    out = range_of(values).value_or(Parameter());
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
  return out;
}

std::vector<SweepValues> grid_of(const std::vector<Parameter>& parameters) {
  std::vector<SweepValues> out = {{}};
  for (const Parameter& parameter : parameters) {
    std::vector<SweepValues> longer;
    for (const SweepValues& values : out) {
      for (const std::string& choice : parameter.choices) {
        if (longer.size() >= kMostMembers) {
          throw ConfigError("E113", parameter.loc,
                            fmt::format("a sweep has at most {} runs", kMostMembers));
        }
        longer.push_back(values);
        longer.back().emplace_back(parameter.key, choice);
      }
    }
    out = std::move(longer);
  }
  return out;
}

std::vector<SweepValues> zip_of(const std::vector<Parameter>& parameters,
                                Diagnostics& diagnostics) {
  std::vector<SweepValues> out(parameters[0].choices.size());
  for (const Parameter& parameter : parameters) {
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

// A function of seed, trial and key: more trials or parameters leave the others as they are.
std::string drawn(const Parameter& parameter, int64_t seed, int64_t trial) {
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

std::vector<SweepValues> random_of(const std::vector<Parameter>& parameters, int64_t trials,
                                   int64_t seed) {
  std::vector<SweepValues> out;
  for (int64_t trial = 0; trial < trials; ++trial) {
    SweepValues& values = out.emplace_back();
    for (const Parameter& parameter : parameters) {
      values.emplace_back(parameter.key, drawn(parameter, seed, trial));
    }
  }
  return out;
}

const Section& median_section() {
  static const Section kSection{
      "early_stop",
      {text("monitor", "null", "a log; default what the runs monitor"),
       choice("mode", {"min", "max"}, "min", "which values are better"),
       integer("min_epochs", "1", "epochs that a run does in any case").least(1),
       integer("min_runs", "3", "runs that must have finished").least(1)}};
  return kSection;
}

const Section& sweep_section() {
  static const Section kSection{
      "",
      {make_spec("config", ValueKind::kTextList, "", "configs, as `train` takes them").required(),
       choice("method", {"grid", "zip", "random", "list"}, "grid", "how values are combined"),
       text("parameters", "null", "keys and their values").of_kind(ValueKind::kAny).nullable(),
       text("runs", "null", "of `method: list`").of_kind(ValueKind::kAny).nullable(),
       text("fixed", "null", "keys and values of all runs").of_kind(ValueKind::kAny).nullable(),
       integer("trials", "null", "of `method: random`").least(1).most(kMostMembers),
       integer("seed", "0", "of `method: random`"),
       integer("parallel", "1", "runs at a time").least(1).most(4096),
       section("early_stop", median_section(), "ends hopeless runs: the median rule")}};
  return kSection;
}

// What a sweep file says.
struct SweepFile {
  std::vector<std::string> configs;
  std::string method = "grid";
  std::vector<Parameter> parameters;
  std::vector<SweepValues> runs;
  SweepValues fixed;
  int64_t trials = 0, seed = 0, parallel = 1;
  std::optional<MedianRule> early_stop;
};

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

class FileReader {
 public:
  FileReader(const YamlNode& root, Diagnostics& diagnostics)
      : root_(root), diagnostics_(diagnostics) {}

  SweepFile read(const std::string& path) {
    ConfigValue tree = Reader(diagnostics_).section(&root_, sweep_section(), root_.loc);
    SweepFile out;
    if (diagnostics_.has_errors()) {
      return out;
    }
    const std::string folder = folder_of(path);
    for (const ConfigValue& config : tree.field("config").list()) {
      const bool is_absolute = starts_with(config.string(), "/");
      out.configs.push_back(is_absolute || folder.empty() ? config.string()
                                                          : folder + "/" + config.string());
    }
    out.method = tree.field("method").string();
    out.seed = tree.field("seed").integer();
    out.parallel = tree.field("parallel").integer();
    out.trials = tree.field("trials").is_null() ? 0 : tree.field("trials").integer();
    if (const YamlNode* fixed = root_.find("fixed"); fixed != nullptr && !fixed->is_null()) {
      out.fixed = values_of(*fixed, "`fixed`", diagnostics_);
    }
    read_median(tree.field("early_stop"), out);
    out.method == "list" ? read_runs(out) : read_parameters(out);
    return out;
  }

 private:
  void read_median(ConfigValue& tree, SweepFile& out) {
    if (root_.find("early_stop") == nullptr) {
      return;
    }
    MedianRule& rule = out.early_stop.emplace();
    rule.monitor = tree.field("monitor").is_null() ? "" : tree.field("monitor").string();
    rule.larger_is_better = tree.field("mode").string() == "max";
    rule.min_epochs = tree.field("min_epochs").integer();
    rule.min_runs = tree.field("min_runs").integer();
  }

  void read_parameters(SweepFile& out) {
    const YamlNode* parameters = root_.find("parameters");
    if (parameters == nullptr || !parameters->is_map()) {
      diagnostics_
          .error("E111", parameters == nullptr ? root_.loc : parameters->loc,
                 fmt::format("`method: {}` needs `parameters`, a map of keys", out.method))
          .help("write parameters: {compile.optimizer.learning_rate: [1e-2, 1e-3]}");
      return;
    }
    for (const YamlNode& child : parameters->children) {
      out.parameters.push_back(parameter_of(child, out.method == "random", diagnostics_));
    }
    refuse_key("runs", "`runs` is for `method: list`");
  }

  void read_runs(SweepFile& out) {
    const YamlNode* runs = root_.find("runs");
    if (runs == nullptr || !runs->is_list() || runs->children.empty()) {
      diagnostics_
          .error("E111", runs == nullptr ? root_.loc : runs->loc,
                 "`method: list` needs `runs`, a list of keys with values")
          .help("write runs: [{mesh: 8x1, seed: 1}, {mesh: 4x2}]");
      return;
    }
    for (const YamlNode& run : runs->children) {
      out.runs.push_back(values_of(run, "an entry of `runs`", diagnostics_));
    }
    refuse_key("parameters", "`parameters` are not for `method: list`");
  }

  void refuse_key(const char* key, const char* message) {
    if (const YamlNode* node = root_.find(key); node != nullptr && !node->is_null()) {
      diagnostics_.error("E113", node->key_loc, message);
    }
  }

  const YamlNode& root_;
  Diagnostics& diagnostics_;
};

// Reads the file when it describes a sweep: its top level has the key `config`.
std::optional<SweepFile> read_sweep_file(const std::string& path, Diagnostics& diagnostics) {
  if (path == "-") {
    return std::nullopt;
  }
  const std::shared_ptr<const SourceFile> source = read_source(path, {});
  Diagnostics problems;
  const std::optional<YamlNode> root = parse_yaml(source, problems);
  if (!root || root->find("config") == nullptr) {
    return std::nullopt;  // a config, whose problems are reported when it is loaded
  }
  diagnostics.append(problems);
  return FileReader(*root, diagnostics).read(path);
}

std::vector<Parameter> flag_parameters(const char* name, const std::vector<std::string>& words,
                                       Diagnostics& diagnostics) {
  std::vector<Parameter> out;
  for (const std::string& word : words) {
    out.push_back(parameter_of_flag(name, word, diagnostics));
  }
  return out;
}

// --grid, --zip and --random, of which one may be given.
void take_flags(const SweepFlags& flags, SweepFile& out, Diagnostics& diagnostics) {
  const struct {
    const char *name, *method;
    const std::vector<std::string>& words;
  } kinds[] = {{"--grid", "grid", flags.grid},
               {"--zip", "zip", flags.zip},
               {"--random", "random", flags.random}};
  std::vector<std::string> given;
  for (const auto& kind : kinds) {
    if (kind.words.empty()) {
      continue;
    }
    given.emplace_back(kind.name);
    const bool adds = out.method == kind.method && !out.parameters.empty();
    std::vector<Parameter> added = flag_parameters(kind.name, kind.words, diagnostics);
    if (!adds && (!out.parameters.empty() || !out.runs.empty())) {
      diagnostics.error("E140", {},
                        fmt::format("`{}` with a file of `method: {}`", kind.name, out.method));
    }
    out.method = kind.method;
    for (Parameter& parameter : added) {  // one of the file's key takes its place
      std::erase_if(out.parameters,
                    [&](const Parameter& other) { return other.key == parameter.key; });
      out.parameters.push_back(std::move(parameter));
    }
  }
  if (given.size() > 1) {
    diagnostics.error("E140", {}, fmt::format("{} do not go together", join(given, " and ")));
  }
  out.trials = flags.trials > 0 ? flags.trials : out.trials;
  out.seed = flags.seed != 0 ? flags.seed : out.seed;
  out.parallel = flags.parallel > 0 ? flags.parallel : out.parallel;
  if (flags.early_stop && !out.early_stop) {
    out.early_stop.emplace();
  }
}

std::vector<SweepValues> members_of(const SweepFile& file, Diagnostics& diagnostics) {
  if (file.method == "list") {
    return file.runs;
  }
  if (file.parameters.empty()) {
    diagnostics.error("E140", {}, "the sweep varies nothing")
        .help(
            "--grid compile.optimizer.learning_rate=1e-2,1e-3, or a sweep.yaml: `meshtrain sweep "
            "--help`");
    return {};
  }
  if (file.method == "random" && file.trials == 0) {
    diagnostics.error("E140", {}, "how many runs shall be drawn?").help("--trials 20");
  }
  return file.method == "grid"  ? grid_of(file.parameters)
         : file.method == "zip" ? zip_of(file.parameters, diagnostics)
                                : random_of(file.parameters, file.trials, file.seed);
}

std::string text_of(const SweepValues& values) {
  std::string out;
  for (const auto& [key, value] : values) {
    out += key + "=" + value + "\n";
  }
  return out;
}

// Loads the config of each run; the first of equal problems is reported.
void check_members(const SweepPlan& plan, Diagnostics& diagnostics) {
  constexpr int kMostErrors = 20;
  std::set<std::string> seen;
  for (const SweepValues& values : plan.members) {
    try {
      load_config(member_options(plan, values));
    } catch (const ConfigError& error) {
      for (const Diagnostic& problem : error.diagnostics().list()) {
        if (problem.severity == Severity::kError && diagnostics.num_errors() < kMostErrors &&
            seen.insert(problem.code + problem.message).second) {
          Diagnostic& added = diagnostics.error(problem.code, problem.loc, problem.message);
          added.label = problem.label;
          added.notes = problem.notes;
        }
      }
    }
  }
}

}  // namespace

SweepPlan make_sweep_plan(LoadOptions load, const SweepFlags& flags) {
  Diagnostics diagnostics;
  SweepFile file;
  std::vector<std::string> configs;
  for (const std::string& path : load.files) {
    std::optional<SweepFile> read = read_sweep_file(path, diagnostics);
    if (!read) {
      configs.push_back(path);
    } else if (load.files.size() > 1) {
      diagnostics.error("E140", {}, fmt::format("`{}` is a sweep: it names its configs", path));
    } else {
      file = std::move(*read);
      configs = file.configs;
    }
  }
  diagnostics.throw_if_errors();
  take_flags(flags, file, diagnostics);
  SweepPlan plan{.base = std::move(load), .method = file.method};
  plan.base.files = std::move(configs);
  std::vector<std::string> fixed;
  for (const auto& [key, value] : file.fixed) {
    fixed.push_back(key + "=" + value);
  }
  plan.base.overrides.insert(plan.base.overrides.begin(), fixed.begin(), fixed.end());
  plan.parallel = file.parallel;
  plan.early_stop = file.early_stop;
  diagnostics.throw_if_errors();
  std::set<std::string> seen;  // equal runs are one
  for (SweepValues& values : members_of(file, diagnostics)) {
    if (seen.insert(text_of(values)).second) {
      plan.members.push_back(std::move(values));
    }
  }
  diagnostics.throw_if_errors();
  check_members(plan, diagnostics);
  diagnostics.throw_if_errors();
  return plan;
}

LoadOptions member_options(const SweepPlan& plan, const SweepValues& values) {
  LoadOptions out = plan.base;
  for (const auto& [key, value] : plan.base.flags) {
    out.overrides.push_back(key + "=" + value);
  }
  for (const auto& [key, value] : values) {
    out.overrides.push_back(key + "=" + value);
  }
  out.flags.clear();
  out.flag_names.clear();
  return out;
}

std::vector<std::string> short_keys(const std::vector<std::string>& keys) {
  std::vector<std::string> out;
  for (const std::string& key : keys) {
    const std::vector<std::string> words = split(key, '.');
    std::string name;
    for (size_t count = 1; count <= words.size(); ++count) {
      name = join(std::span(words).last(count), ".");
      const auto same = std::count_if(keys.begin(), keys.end(), [&](const std::string& other) {
        return other == name || ends_with(other, "." + name);
      });
      if (same <= 1) {
        break;
      }
    }
    out.push_back(key == "distribution.device_mesh.shape" ? "mesh" : name);
  }
  return out;
}

std::string values_text(const SweepValues& values) {
  std::vector<std::string> keys, parts;
  for (const auto& [key, value] : values) {
    keys.push_back(key);
  }
  const std::vector<std::string> names = short_keys(keys);
  for (size_t i = 0; i < values.size(); ++i) {
    parts.push_back(names[i] + "=" + values[i].second);
  }
  return join(parts, " ");
}

}  // namespace meshtrain
