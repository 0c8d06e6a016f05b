#include "train/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "config/config_changes.h"
#include "record/run_dir.h"
#include "record/run_list.h"
#include "train/resume_target.h"
#include "train/sweep_journal.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<std::pair<std::string, std::string>>;

// Keys that say where a run is or what it is called, not what it does.
bool is_name(const std::string& key) {
  return key == "name" || key == "model.name" || key == "run.dir" || key == "run.resume" ||
         key == "run.verbose";
}

bool is_mesh_key(const std::string& key) {
  return starts_with(key, "distribution.");
}

void add_run(const std::string& folder, std::vector<ComparedRun>& out) {
  ComparedRun& run = out.emplace_back();
  run.record = read_run_record(folder);
  run.summary = summarize_run(run.record);
  run.state = run_state(run.summary);
  run.label = folder;
  run.values = config_values(run.record.resolved_config);
  run.tags = read_notes(folder).tags;
}

// The members of a sweep, with the values that it gave them: what else is in their configs is the
// same in a sweep that is compared alone.
void add_sweep(const std::string& folder, bool is_alone, std::vector<ComparedRun>& out) {
  for (const SweepMember& member : read_journal(folder).members) {
    const std::string path = folder + "/" + member.run;
    if (is_run_dir(path)) {
      add_run(path, out);
    } else {
      out.emplace_back().label = path;
      out.back().summary.folder = path;
    }
    ComparedRun& run = out.back();
    if (member.exit_code || !is_run_dir(path)) {  // else a task of Slurm's, or one that runs now
      run.state = member_state(member);
      run.summary.message = member.message.empty() ? run.summary.message : member.message;
      run.summary.exit_code = member.exit_code;
    }
    run.values = is_alone ? member.values : std::move(run.values);
  }
}

// Removes what all paths begin with.
void shorten_labels(std::vector<ComparedRun>& runs) {
  for (ComparedRun& run : runs) {
    run.label = fs::path(run.label).lexically_normal().string();
  }
  while (!runs.empty()) {
    const size_t slash = runs[0].label.find('/');
    if (slash == std::string::npos) {
      return;
    }
    const std::string first = runs[0].label.substr(0, slash + 1);
    if (!std::all_of(runs.begin(), runs.end(),
                     [&](const ComparedRun& run) { return starts_with(run.label, first); })) {
      return;
    }
    for (ComparedRun& run : runs) {
      run.label.erase(0, first.size());
    }
  }
}

const std::string* find_value(const Values& values, const std::string& key) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](const auto& entry) { return entry.first == key; });
  return found == values.end() ? nullptr : &found->second;
}

// The keys whose values differ, in the order of the first run that has them.
std::vector<std::string> differing_keys(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> order;
  std::map<std::string, std::map<std::string, size_t>> counts;
  for (const ComparedRun& run : runs) {
    for (const auto& [key, value] : run.values) {
      if (!counts.count(key)) {
        order.push_back(key);
      }
      ++counts[key][value];
    }
  }
  // A run that was killed at its start may have no config.
  const auto with_config = static_cast<size_t>(std::count_if(
      runs.begin(), runs.end(), [](const ComparedRun& run) { return !run.values.empty(); }));
  std::erase_if(order, [&](const std::string& key) {
    const auto& values = counts[key];
    return is_name(key) || (values.size() == 1 && values.begin()->second == with_config);
  });
  return order;
}

}  // namespace

Comparison compare_runs(const std::vector<std::string>& paths) {
  Comparison out;
  for (const std::string& path : paths) {
    if (is_run_dir(path)) {
      add_run(path, out.runs);
    } else if (is_sweep_dir(path)) {
      add_sweep(path, paths.size() == 1, out.runs);
    } else {
      const std::vector<std::string> found_runs = find_runs(path);
      if (found_runs.empty()) {
        no_run_in(path);
      }
      for (const std::string& run : found_runs) {
        add_run(run, out.runs);
      }
    }
  }
  shorten_labels(out.runs);
  out.keys = differing_keys(out.runs);
  for (ComparedRun& run : out.runs) {
    Values values;
    for (const std::string& key : out.keys) {
      const std::string* value = find_value(run.values, key);
      values.emplace_back(key, value == nullptr ? "" : *value);
    }
    run.values = std::move(values);
  }
  return out;
}

void sort_runs(Comparison& comparison, const std::string& name) {
  const bool descends = starts_with(name, "-");
  const std::string wanted = descends ? name.substr(1) : name;
  std::vector<std::string> names = {"ms_per_step", "best"};
  const auto keys = comparison.keys;
  const auto short_names = short_keys(keys);
  const auto value_of = [&](const ComparedRun& run) -> std::optional<double> {
    if (wanted == "ms_per_step") {
      return run.summary.ms_per_step > 0 ? std::optional(run.summary.ms_per_step) : std::nullopt;
    }
    for (size_t k = 0; k < keys.size(); ++k) {
      if (wanted == keys[k] || wanted == short_names[k]) {
        char* end = nullptr;
        const double number = std::strtod(run.values[k].second.c_str(), &end);
        return *end == '\0' && !run.values[k].second.empty() ? std::optional(number) : std::nullopt;
      }
    }
    const bool is_best = wanted == "best";  // of the monitored log
    const double* log = find_log(is_best ? run.summary.best_logs : run.summary.logs,
                                 is_best ? run.summary.monitor : wanted);
    return log == nullptr ? std::nullopt : std::optional(*log);
  };
  if (std::none_of(comparison.runs.begin(), comparison.runs.end(),
                   [&](const ComparedRun& run) { return value_of(run).has_value(); })) {
    for (const ComparedRun& run : comparison.runs) {
      for (const auto& [log, value] : run.summary.logs) {
        names.push_back(log);
      }
    }
    names.insert(names.end(), short_names.begin(), short_names.end());
    ConfigError error("E140", {}, fmt::format("no run has a number `{}` to sort by", wanted));
    if (const auto nearest = nearest_name(wanted, names)) {
      error.help(fmt::format("did you mean `{}`?", *nearest));
    }
    throw error;
  }
  std::stable_sort(comparison.runs.begin(), comparison.runs.end(),
                   [&](const ComparedRun& a, const ComparedRun& b) {
                     const auto left = value_of(a), right = value_of(b);
                     return left && right ? (descends ? *left > *right : *left < *right)
                                          : left.has_value() && !right.has_value();
                   });
}

namespace {

bool is_loss(const std::string& log) {
  return log == "loss" || ends_with(log, "_loss");
}

// The losses of a run, by name; those of evaluations with "evaluated ".
std::map<std::string, double> losses_of(const ComparedRun& run) {
  std::map<std::string, double> out;
  for (const auto& [log, value] : run.summary.logs) {
    if (is_loss(log)) {
      out[log] = value;
    }
  }
  for (const auto& [log, value] : run.summary.evaluation) {
    if (is_loss(log)) {
      out["evaluated " + log] = value;
    }
  }
  return out;
}

// What is the same in all runs of a group.
std::string group_of(const ComparedRun& run) {
  std::string out;
  for (const auto& [key, value] : run.values) {
    out += is_mesh_key(key) ? "" : fmt::format("{}={}\n", key, value);
  }
  return out;
}

void compare_two(const ComparedRun& a, const ComparedRun& b, double tolerance, EqualityCheck& out) {
  const auto left = losses_of(a), right = losses_of(b);
  if (a.summary.epochs != b.summary.epochs) {
    out.differences.push_back(fmt::format("{} did {} epochs, {} did {}", a.label, a.summary.epochs,
                                          b.label, b.summary.epochs));
    return;
  }
  const auto lacks = [&](const std::string& log, const ComparedRun& without,
                         const ComparedRun& with) {
    out.differences.push_back(
        fmt::format("{}: {} has none, {} has", log, without.label, with.label));
  };
  for (const auto& [log, value] : right) {
    if (!left.contains(log)) {
      lacks(log, a, b);
    }
  }
  for (const auto& [log, value] : left) {
    const auto other = right.find(log);
    if (other == right.end()) {
      lacks(log, b, a);
      continue;
    }
    const double size = std::max(std::abs(value), std::abs(other->second));
    const double gap = size == 0 ? 0 : std::abs(value - other->second) / size;
    if (std::isfinite(gap)) {
      out.largest = std::max(out.largest, gap);
    }
    if (!(gap <= tolerance)) {
      out.differences.push_back(fmt::format("{}: {} ({}) and {} ({}) differ by {:.2g}: {} and {}",
                                            log, a.label, mesh_text(a.summary.mesh), b.label,
                                            mesh_text(b.summary.mesh), gap, format_shortest(value),
                                            format_shortest(other->second)));
    }
  }
}

}  // namespace

EqualityCheck check_equal(const Comparison& comparison, double tolerance) {
  std::map<std::string, std::vector<const ComparedRun*>> groups;
  EqualityCheck out;
  for (const ComparedRun& run : comparison.runs) {
    groups[group_of(run)].push_back(&run);
  }
  bool is_any = false;
  for (const auto& [name, runs] : groups) {
    if (runs.size() < 2) {
      continue;
    }
    is_any = true;
    const ComparedRun* first = nullptr;
    ++out.groups;
    for (const ComparedRun* run : runs) {
      if (losses_of(*run).empty()) {
        out.missing.push_back(fmt::format("{}: {}", run->label, run->state));
        continue;
      }
      ++out.runs;
      if (first != nullptr) {
        compare_two(*first, *run, tolerance, out);
      }
      first = first == nullptr ? run : first;
    }
  }
  if (!is_any) {
    throw ConfigError("E140", {}, "--check-equal: no two of these runs differ in their mesh alone")
        .help("it compares the losses of runs whose other values are equal");
  }
  return out;
}

}  // namespace meshtrain
