#include "train/sweep_file.h"

#include <fmt/format.h>

#include "base/text.h"
#include "config/reader.h"
#include "config/source.h"
#include "config/yaml.h"

namespace meshtrain {
namespace {

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
       integer("trials", "null", "of `method: random`").least(1).most(kMostSweepMembers),
       integer("seed", "0", "of `method: random`"),
       integer("parallel", "1", "runs at a time").least(1).most(4096),
       section("early_stop", median_section(), "ends hopeless runs: the median rule")}};
  return kSection;
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
    if (out.method != "random") {
      refuse_key("trials", "`trials` is for `method: random`");
      refuse_key("seed",
                 "`seed` is for `method: random`; `fixed: {seed: 1}` sets that of the runs");
    }
    const std::set<std::string> varied = out.varied_keys();
    for (const auto& [key, value] : out.fixed) {
      if (varied.contains(key)) {
        diagnostics_.error("E113", root_.find("fixed")->key_loc,
                           fmt::format("`{}` of `fixed` varies in the sweep, too", key));
      }
    }
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

}  // namespace

std::set<std::string> SweepFile::varied_keys() const {
  std::set<std::string> varied;
  for (const SweepParameter& parameter : parameters) {
    varied.insert(parameter.key);
  }
  for (const SweepValues& run : runs) {
    for (const auto& [key, value] : run) {
      varied.insert(key);
    }
  }
  return varied;
}

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

}  // namespace meshtrain
