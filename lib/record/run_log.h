// log.txt: a line for each event with its time, over all starts of a run. Unlike metrics.jsonl it
// is a history: steps that a resumed run repeats are in it twice.
//
//   2026-01-05T14:03:22.123Z start meshtrain 0.1.0 mlp.yaml, mesh data=2 model=4
//   2026-01-05T14:03:25.871Z epoch 1 accuracy 0.8912 loss 0.3921
//   2026-01-05T14:03:25.875Z validation step 250 of epoch 1 val_loss 0.4021
//   2026-01-05T14:03:25.880Z saved step 469, the end of epoch 1 (1.2 MiB, 0.01 s, 0.000 s blocked)
//   2026-01-05T14:03:31.007Z end exit code 0
#pragma once

#include <string>
#include <string_view>

#include "engine/hook.h"
#include "record/line_log.h"
#include "record/run_info.h"

namespace meshtrain {

class RunLog : public Hook {
 public:
  // Appends to the file. Throws FileError (exit 74).
  RunLog(std::string path, LineLog::OnTrouble on_trouble);

  void start(const RunInfo& info);
  void saved(std::string_view text);  // "saved step 469, ..."
  void end(int exit_code, std::string_view message = {});
  // Why training ended before its last epoch; "" when it did not.
  const std::string& stopped() const { return stopped_; }

  void on_epoch_end(EpochReport& report) override;
  void on_pass_end(const PassPosition& position, const EvaluateReport& report) override;
  void on_stop(const StopReport& report) override;
  void on_warning(const std::string& text) override;

 private:
  void line(std::string_view text);

  LineLog log_;
  std::string stopped_;
  BatchWork work_;  // from start() on
};

// "2026-01-05T14:03:22.123Z"
std::string utc_time_ms();

}  // namespace meshtrain
