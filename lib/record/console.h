// Console: the output of a run for people. stdout is the record for a file or a pipe; stderr has
// the animation and messages.
//
//   verbose   stdout                                     stderr
//   auto      a terminal: "Epoch 1/3", Keras' full bar   a terminal: a bar while it moves
//             else: "Epoch 1/3", Keras' verbose-2 line
//   1         "Epoch 1/3", Keras' verbose-1 bytes        -
//   2         "Epoch 1/3", Keras' verbose-2 line         -
//   0         nothing                                    -
//
// The moving bar is taken away when the epoch ends. With stdout in a file the finished bar is shown
// on stderr; not with stdout in a pipe, whose reader (tee) shows the line. Where stderr is no
// terminal, long epochs (auto, 2) get a line there every 60 s.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/hook.h"
#include "record/moving_bar.h"
#include "record/progress.h"

namespace meshtrain {

enum class LogFormat { kKeras, kPlain, kJson };

struct ConsoleOptions {
  Verbosity verbosity = Verbosity::kAuto;
  bool quiet = false;  // stdout gets only the final result: the evaluation, else the last epoch
  LogFormat format = LogFormat::kKeras;  // kPlain: one line per epoch; kJson: no text on stdout
  bool stdout_is_terminal = false;
  bool stderr_is_terminal = false;
  bool stdout_is_pipe = false;
  // Whether the reader of that pipe has taken everything; it may write to the same terminal (tee).
  std::function<bool()> pipe_is_empty = [] { return true; };
  bool color = true;        // of the animation; the record has Keras' bytes
  bool has_escapes = true;  // see MovingBarOptions
  std::function<int()> columns = [] { return 80; };  // of the terminal
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
  // What a training step computes: rates follow its time.
  void set_work(const BatchWork& work) { work_ = work; }

 private:
  void begin(std::string title, int64_t steps, int64_t done = 0);
  bool waits_for_reader() const;
  void animate(const std::string& label, int64_t steps, int64_t done, const std::string& text,
               const BatchWork& work = {});
  void step(int64_t step, const std::function<Logs()>& logs);
  void end(int64_t steps, const Logs& logs, const std::string& rates = "");
  void beat(int64_t step, const std::function<Logs()>& logs);
  std::optional<double> seconds_of_later_epochs() const;
  void write_painted(const TextSink& sink, std::string_view text) const;

  ConsoleOptions options_;
  int record_verbose_;  // of the Progbar on stdout
  bool animates_;
  bool beats_;
  bool shows_end_only_;  // the record is a bar that does not move: the animation does
  BatchWork work_;
  EpochStart epoch_;
  double epoch_seconds_ = 0;  // of the last whole epoch; 0: none yet
  bool has_stepped_ = false;
  int64_t last_step_ = 0;
  double last_record_ = 0;  // when something was written to stdout
  std::string title_;       // "Epoch 1/3"; empty with a single epoch
  int64_t steps_ = 0;
  double start_ = 0;
  double last_beat_ = 0;
  std::optional<Progbar> record_, copy_;  // copy_: the finished bar on stderr
  std::optional<MovingBar> animation_;
  std::string result_;  // the last finished line, for quiet mode
};

}  // namespace meshtrain
