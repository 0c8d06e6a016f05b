// Console: the output of a run for people. stdout is the record for a file or a pipe; stderr has
// the animation and messages.
//
//   verbose   stdout                                     stderr
//   auto      "Epoch 1/3", Keras' verbose-2 line         a terminal: Keras' bar while it moves
//   1         "Epoch 1/3", Keras' verbose-1 bytes        -
//   2         "Epoch 1/3", Keras' verbose-2 line         -
//   0         nothing                                    -
//
// On a terminal the finished line replaces the bar. Where stderr is no terminal, long epochs (auto,
// 2) get a line there every 60 s.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/hook.h"
#include "record/progress.h"

namespace meshtrain {

enum class LogFormat { kKeras, kPlain, kJson };

struct ConsoleOptions {
  Verbosity verbosity = Verbosity::kAuto;
  bool quiet = false;  // stdout gets only the final result: the evaluation, else the last epoch
  LogFormat format = LogFormat::kKeras;  // kPlain: one line per epoch; kJson: no text on stdout
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;
  bool color = true;  // of the animation; the record has Keras' bytes
  Clock now;
  TextSink out, err;
};

class Console : public Hook {
 public:
  explicit Console(ConsoleOptions options);

  void on_epoch_begin(const EpochStart& start) override;
  void on_train_step(const TrainPosition& position, const StepRunner& runner) override;
  void on_epoch_end(EpochReport& report) override;
  void on_pass_begin(const PassPosition& position) override;
  void on_pass_step(const PassPosition& position, const StepRunner& runner) override;
  void on_pass_end(const PassPosition& position, const EvaluateReport& report) override;
  void on_stop(const StopReport& report) override;
  void on_warning(const std::string& text) override;
  // Writes a callback's text, line feeds included.
  void print(const std::string& text);

  // The end: writes the final result in quiet mode.
  void finish();
  // Removes a moving bar from the terminal before an error is shown.
  void interrupt();

 private:
  void begin(std::string title, int64_t steps);
  void step(int64_t step, const std::function<Logs()>& logs);
  void end(int64_t steps, const Logs& logs);
  void beat(int64_t step, const std::function<Logs()>& logs);

  ConsoleOptions options_;
  int record_verbose_;  // of the Progbar on stdout
  bool animates_;
  bool beats_;
  std::string title_;  // "Epoch 1/3"; empty with a single epoch
  int64_t steps_ = 0;
  double start_ = 0;
  double last_beat_ = 0;
  std::optional<Progbar> record_, animation_;
  std::string result_;  // the last finished line, for quiet mode
};

}  // namespace meshtrain
