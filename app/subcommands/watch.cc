// meshtrain watch: the curves of runs while they are written.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/signals.h"
#include "output.h"
#include "record/run_list.h"
#include "record/run_summary.h"
#include "record/watch_text.h"
#include "subcommand.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

struct WatchFlags {
  std::vector<std::string> runs, logs;
  double interval = 1;
  bool once = false;
};

int terminal_rows() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

class Watch {
 public:
  explicit Watch(const WatchFlags& flags) : flags_(flags), shown_epochs_(flags.runs.size()) {
    for (const std::string& run : flags.runs) {
      folders_.push_back(run_folder(run));
      if (!is_run_dir(folders_.back()))
        no_run_in(run);
    }
    ends_.resize(folders_.size());
  }

  // Whether all runs have ended, or nobody writes them any more.
  bool read() {
    runs_.clear();
    bool is_any_open = false;
    for (size_t i = 0; i < folders_.size(); ++i) {
      // Before the record: a run that ends in between has its end in it.
      const bool is_unused = run_use(folders_[i]) == RunUse::kUnused;
      runs_.push_back(read_run_record(folders_[i]));
      const bool has_end = runs_.back().sessions.back().exit_code.has_value();
      ends_[i] = has_end || is_unused;
      is_any_open |= !ends_[i];
    }
    return !is_any_open;
  }

  void show() {
    if (out_stream().is_terminal()) {
      draw();
      return;
    }
    for (size_t i = 0; i < runs_.size(); ++i) {
      for (size_t& epoch = shown_epochs_[i]; epoch < runs_[i].epochs.size(); ++epoch)
        out_stream().write(prefix(i) + epoch_row(runs_[i], epoch) + "\n");
    }
  }

  void show_end() {
    if (out_stream().is_terminal())
      return;  // the heads say it
    for (size_t i = 0; i < runs_.size(); ++i)
      out_stream().write(prefix(i) + run_state(summarize_run(runs_[i])) + "\n");
  }

  // Of the first run that did not finish.
  int exit_code() const {
    for (const RunRecord& run : runs_) {
      const int code = run.sessions.back().exit_code.value_or(1);
      if (code != 0)
        return code;
    }
    return 0;
  }

 private:
  std::string prefix(size_t run) const { return runs_.size() == 1 ? "" : folders_[run] + ": "; }

  void draw() {
    WatchOptions options{
        .columns = out_stream().columns(),
        .rows = terminal_rows(),
        .color = out_stream().has_color(),
        .is_alive = !std::all_of(ends_.begin(), ends_.end(), [](bool b) { return b; }),
        .logs = flags_.logs};
    const std::string text = watch_text(runs_, options);
    const std::string back = drawn_ == 0 ? "" : fmt::format("\x1b[{}A\x1b[J", drawn_);
    out_stream().write(back + text);
    drawn_ = std::count(text.begin(), text.end(), '\n');
  }

  const WatchFlags& flags_;
  std::vector<std::string> folders_;
  std::vector<RunRecord> runs_;
  std::vector<size_t> shown_epochs_;
  std::vector<bool> ends_;
  std::ptrdiff_t drawn_ = 0;  // rows on the screen
};

void wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    throw_if_stopped("watching; the run continues");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

int run_watch(const WatchFlags& flags, Invocation& invocation) {
  Watch watch(flags);
  invocation.started = invocation.result_is_on_stdout = true;
  catch_stop_signals();
  while (!watch.read() && !flags.once) {
    watch.show();
    wait(flags.interval);
  }
  watch.show();
  if (flags.once)
    return 0;
  watch.show_end();
  return watch.exit_code();
}

}  // namespace

void add_watch(Subcommands& to) {
  auto [app, options, subcommand] = to.add<WatchFlags>(
      "watch", "Curves of runs while they train; ends with them, and with their exit code",
      run_watch);
  app.add_option("RUN", options.runs, "Runs, or folders of runs, of which the newest counts")
      ->required();
  app.add_option("--log", options.logs, "Log to draw; may be repeated; default loss and one more")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--interval", options.interval, "Seconds from one look to the next; default 1")
      ->check(number_between(0.05, 3600));
  app.add_flag("--once", options.once, "Show what there is, and end");
  add_color_flag(app);
}

}  // namespace meshtrain
