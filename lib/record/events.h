// The events of a run as JSON, one object a line: metrics.jsonl, and stdout with --log-format json.
//
//   {"event":"start",...}                                     what is run (RunInfo)
//   {"event":"step","epoch":1,"step":1,"loss":...}            with run.log_steps; that batch's loss
//   {"event":"epoch","epoch":1,"steps":N,"seconds":...,"ms_per_step":...,"logs":{...}}
//     with "learning_rate", that of the next step, where a schedule says it
//   {"event":"validation","epoch":1,"step":N,"seconds":...,"logs":{...}}   within an epoch
//   {"event":"evaluate","steps":N,"seconds":...,"logs":{...}}
//   {"event":"warning","epoch":1,"step":5,"text":"..."}       shown after that step
//     without "step" after the epoch's last one, without both at the start
//   {"event":"stop","by":"EarlyStopping","epoch":2,"epochs":9,"best_epoch":1,"text":"..."}
//   {"event":"end","exit_code":0}
//
// Numbers have the shortest text that reads back as the same number of their type; a step's loss
// and a schedule's rate are float32 unless the dtype policy is float64. A non-finite value is null,
// as JSON has no such number. `seconds` include validation, `ms_per_step` does not. Epochs of
// models with an output for each token also have `tokens_per_second`, and `mfu` where the peak of
// the devices is known.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/hook.h"
#include "record/run_info.h"

namespace meshtrain {

class EventLog : public Hook {
 public:
  using LineSink = std::function<void(std::string_view line)>;  // a line without its end

  EventLog(bool log_steps, bool float64) : log_steps_(log_steps), float64_(float64) {}
  void add_sink(LineSink sink) { sinks_.push_back(std::move(sink)); }

  void start(const RunInfo& info);
  void end(int exit_code, std::string_view message = {});

  void on_train_step(const TrainPosition& position, const StepRunner& runner) override;
  void on_epoch_end(EpochReport& report) override;
  void on_pass_begin(const PassPosition& position) override;
  void on_pass_end(const PassPosition& position, const EvaluateReport& report) override;
  void on_stop(const StopReport& report) override;
  void on_warning(const std::string& text) override;

 private:
  void emit(std::string_view line) const;

  bool log_steps_;
  bool float64_;
  BatchWork work_;                // from start() on
  int64_t epoch_ = 0, step_ = 0;  // where the training is; step_ 0: after the epoch's steps
  std::vector<LineSink> sinks_;
};

std::string json_string(std::string_view text);  // quoted and escaped; bad UTF-8 is replaced
std::string json_number(double value);           // "null" when not finite

}  // namespace meshtrain
