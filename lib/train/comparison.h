// Comparison: runs beside each other, a row each: what differs between their configs, mesh, last
// and best logs, time and memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "record/run_summary.h"

namespace meshtrain {

struct ComparedRun {
  std::string label;  // as short as makes it different from the others
  RunSummary summary;
  std::vector<std::pair<std::string, std::string>> values;  // config keys that differ, in one order
  std::string state;                                        // "finished", "hopeless", ...
  std::vector<std::string> tags;
  RunRecord record;  // for curves
};

struct Comparison {
  std::vector<std::string> keys;  // that differ: those of each run's values
  std::vector<ComparedRun> runs;
};

// Each of `paths` is a run, a folder with runs, or a sweep, of which members without a run count as
// well. Throws ConfigError E400 for a path that is none of these.
Comparison compare_runs(const std::vector<std::string>& paths);
// Orders rows by a log, a key or "ms_per_step"; "-" before the name: the largest first. Throws
// ConfigError E140 for another name.
void sort_runs(Comparison& comparison, const std::string& name);

enum class TableFormat { kText, kCsv, kJson, kMarkdown, kHtml };
std::string comparison_text(const Comparison& comparison, TableFormat format);

// Runs whose configs differ only in `distribution` are one group.
struct EqualityCheck {
  int groups = 0, runs = 0;              // that were compared
  double largest = 0;                    // relative difference of two losses
  std::vector<std::string> differences;  // beyond the tolerance, in words
  std::vector<std::string> missing;      // runs without a loss
};
// Compares the last losses (`loss`, `val_loss`, those of outputs, of evaluations) of each group,
// relative to the larger of two. Throws ConfigError E140 when no two runs differ in the mesh only.
EqualityCheck check_equal(const Comparison& comparison, double tolerance);

}  // namespace meshtrain
