#include "train/sweep_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "train/sweep_file.h"

namespace meshtrain {
namespace {

std::vector<SweepParameter> flag_parameters(const char* name, const std::vector<std::string>& words,
                                            Diagnostics& diagnostics) {
  std::vector<SweepParameter> out;
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
  const bool has_file = !out.parameters.empty() || !out.runs.empty();
  const std::string method = out.method;
  for (const auto& kind : kinds) {
    if (kind.words.empty()) {
      continue;
    }
    given.emplace_back(kind.name);
    const bool adds = method == kind.method && !out.parameters.empty();
    std::vector<SweepParameter> added = flag_parameters(kind.name, kind.words, diagnostics);
    if (!adds && has_file) {
      diagnostics.error("E140", {},
                        fmt::format("`{}` with a file of `method: {}`", kind.name, method));
    }
    out.method = kind.method;
    std::set<std::string> seen;
    for (const SweepParameter& parameter : added) {
      if (!seen.insert(parameter.key).second) {
        diagnostics
            .error("E140", {}, fmt::format("`{} {}` is given twice", kind.name, parameter.key))
            .help("write all values behind one `=`: 0.1,0.2,0.3");
      }
    }
    for (SweepParameter& parameter : added) {  // one of the file's key takes its place
      std::erase_if(out.parameters,
                    [&](const SweepParameter& other) { return other.key == parameter.key; });
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

// Keys that vary, and are set for all runs on the command line, which would be lost.
void refuse_set_keys(const LoadOptions& load, const SweepFile& file, Diagnostics& diagnostics) {
  const std::set<std::string> varied = file.varied_keys();
  std::vector<std::string> set;
  for (const std::string& word : load.overrides) {
    set.push_back(word.substr(0, word.find('=')));
  }
  for (const auto& [key, value] : load.flags) {
    set.push_back(key);
  }
  for (const std::string& key : set) {
    if (varied.contains(whole_key(key))) {
      diagnostics
          .error("E140", {}, fmt::format("`{}` varies in the sweep and is set for all runs", key))
          .help("leave one of them out");
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
  refuse_set_keys(load, file, diagnostics);
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
    } else {
      ++plan.repeated;
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