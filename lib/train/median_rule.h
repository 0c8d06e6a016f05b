// The median stopping rule (Golovin et al., Google Vizier, 2017, section 3.2.1): a run ends when
// its best value after some epochs is worse than the median of the finished runs' mean values up to
// that epoch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/report/record.h"
#include "train/sweep_plan.h"

namespace meshtrain {

struct MedianVerdict {
  int64_t epoch = 0;
  std::string monitor;
  double value = 0, median = 0;
  std::string text;  // "hopeless after epoch 3: loss 2.31, the median of 5 runs is 0.52"
};

class MedianJudge {
 public:
  explicit MedianJudge(MedianRule rule) : rule_(std::move(rule)) {}

  void add_finished(RunRecord run) { finished_.push_back(std::move(run)); }
  // Returns nothing while the run may still be good, or when too few runs have finished. Values
  // that differ by less than one in 10,000 are equal: meshes give the same losses but for rounding.
  std::optional<MedianVerdict> judge(const RunRecord& run) const;

 private:
  MedianRule rule_;
  std::vector<RunRecord> finished_;
};

}  // namespace meshtrain
