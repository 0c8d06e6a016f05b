#include "train/sweep_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "config/path.h"
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

// --trials and --sweep-seed of a sweep that draws nothing.
void refuse_draw_flags(const SweepFlags& flags, const std::string& method,
                       Diagnostics& diagnostics) {
  const std::pair<bool, const char*> given[] = {{flags.trials > 0, "--trials"},
                                                {flags.seed.has_value(), "--sweep-seed"}};
  for (const auto& [is_given, name] : given) {
    if (is_given) {
      diagnostics
          .error(
              "E140", {},
              fmt::format("`{}` is for drawn values; the method of this sweep is {}", name, method))
          .help("leave it out, or draw: --random KEY=log:1e-4..1e-1 --trials 20");
    }
  }
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
  if (out.method != "random") {
    refuse_draw_flags(flags, out.method, diagnostics);
  }
  out.trials = flags.trials > 0 ? flags.trials : out.trials;
  out.seed = flags.seed.value_or(out.seed);
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
    diagnostics.error("E140", {}, "a random sweep needs a number of trials")
        .help("--trials 20, or `trials: 20` in a file");
  }
  return file.method == "grid"  ? grid_of(file.parameters)
         : file.method == "zip" ? zip_of(file.parameters, diagnostics)
                                : random_of(file.parameters, file.trials, file.seed);
}

// The parts of the key that an override sets; none of what is no override.
std::vector<std::string> path_of(const std::string& word) {
  Diagnostics ignored;  // load_config() reports them
  const std::optional<Override> change = parse_override(word, ignored);
  return change ? parse_path(change->path).value_or(std::vector<std::string>())
                : std::vector<std::string>();
}

bool is_below(const std::vector<std::string>& path, const std::vector<std::string>& above) {
  return path.size() > above.size() && std::equal(above.begin(), above.end(), path.begin());
}

// The words in their order, but each before those that change a part of what it sets: setting
// `compile.optimizer` replaces the whole object, with the `learning_rate` that was set before.
std::vector<std::string> objects_first(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  std::vector<std::vector<std::string>> paths;  // of `out`
  for (const std::string& word : words) {
    const std::vector<std::string> path = path_of(word);
    const auto part = std::find_if(paths.begin(), paths.end(), [&](const auto& other) {
      return !path.empty() && is_below(other, path);
    });
    out.insert(out.begin() + (part - paths.begin()), word);
    paths.insert(part, path);
  }
  return out;
}

std::string text_of(const SweepValues& values) {
  std::string out;
  for (const auto& [key, value] : values) {
    out += key + "=" + value + "\n";
  }
  return out;
}

// Loads the config of each run. Of equal problems the first is reported; one that only some runs
// have names the values of the first of these.
void check_members(const SweepPlan& plan, Diagnostics& diagnostics) {
  constexpr size_t kMostErrors = 20;
  struct Problem {
    Diagnostic diagnostic;
    const SweepValues* values;
    size_t num_runs = 0;
  };
  std::vector<Problem> problems;
  for (const SweepValues& values : plan.members) {
    try {
      load_config(member_options(plan, values));
    } catch (const ConfigError& error) {
      for (const Diagnostic& found : error.diagnostics().list()) {
        if (found.severity != Severity::kError) {
          continue;
        }
        auto known = std::find_if(problems.begin(), problems.end(), [&](const Problem& other) {
          return other.diagnostic.code == found.code && other.diagnostic.message == found.message;
        });
        if (known == problems.end() && problems.size() < kMostErrors) {
          known = problems.insert(known, {found, &values});
        }
        if (known != problems.end()) {
          ++known->num_runs;
        }
      }
    }
  }
  for (Problem& problem : problems) {
    Diagnostic& added = diagnostics.error("", {}, "");
    added = std::move(problem.diagnostic);
    if (problem.num_runs < plan.members.size()) {
      added.note(fmt::format("in the run with {}", values_text(*problem.values)));
    }
  }
}

// A sweep names the folder of each run itself.
void refuse_run_dir(const LoadOptions& load, const SweepFile& file, Diagnostics& diagnostics) {
  std::set<std::string> keys = file.varied_keys();
  for (const auto& [key, value] : file.fixed) {
    keys.insert(key);
  }
  for (const std::string& word : load.overrides) {
    keys.insert(word.substr(0, word.find('=')));
  }
  if (keys.contains("run.dir")) {
    diagnostics.error("E140", {}, "a sweep sets `run.dir` of each run itself")
        .help("leave it out; -o DIR names the sweep's folder, in which the runs are 001, 002, ...");
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
  refuse_run_dir(load, file, diagnostics);
  SweepPlan plan{.base = std::move(load), .method = file.method};
  plan.base.files = std::move(configs);
  std::vector<std::string> fixed;
  for (const auto& [key, value] : file.fixed) {
    fixed.push_back(key + "=" + value);
  }
  plan.base.overrides.insert(plan.base.overrides.begin(), fixed.begin(), fixed.end());
  plan.base.overrides = objects_first(plan.base.overrides);
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
  out.overrides = given_overrides(plan.base);
  for (const auto& [key, value] : values) {
    out.overrides.push_back(key + "=" + value);
  }
  out.overrides = objects_first(out.overrides);
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