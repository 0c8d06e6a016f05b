// Names of the files and folders that a run writes into its folder. Files that a checkpoint has too
// have the same names there.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace meshtrain::run_files {

inline constexpr const char* kConfig = "config.yaml";             // as written
inline constexpr const char* kResolved = "config.resolved.yaml";  // every value with its origin
inline constexpr const char* kMetrics = "metrics.jsonl";          // events, a JSON object a line
inline constexpr const char* kWeights = "weights.safetensors";    // at the end, by Keras' paths
inline constexpr const char* kLearned = "data.json";   // learned from the data: learned_json.h
inline constexpr const char* kPlanText = "plan.txt";   // what is sharded how
inline constexpr const char* kPlanJson = "plan.json";  // the same for programs
inline constexpr const char* kLayout = "layout.json";  // shards of every tensor
inline constexpr const char* kMeta = "meta.json";      // program, host, command, exit code
inline constexpr const char* kLog = "log.txt";         // messages with their times
inline constexpr const char* kReport = "report.html";  // the whole run on a page
inline constexpr const char* kEvaluation = "evaluation.json";  // of `evaluate --details`
inline constexpr const char* kNotes = "notes.json";            // the user's tags and notes
inline constexpr const char* kCheckpoints = "checkpoints";     // a folder of folders
inline constexpr const char* kProfile = "profile";             // the folder of `train --profile`

// Without the folder of checkpoints, in which callbacks may have files of their own.
inline constexpr std::array kAll = {kConfig,   kResolved,   kMetrics, kWeights, kLearned,
                                    kPlanText, kPlanJson,   kLayout,  kMeta,    kLog,
                                    kReport,   kEvaluation, kNotes,   kProfile};

constexpr bool is_of_run(std::string_view name) {
  return std::any_of(kAll.begin(), kAll.end(), [&](const char* own) { return name == own; });
}

}  // namespace meshtrain::run_files
