#include "train/restarts.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>

#include "base/host.h"
#include "base/streams.h"
#include "base/system_calls.h"
#include "base/text.h"
#include "checkpoint/reader.h"
#include "engine/distribution.h"
#include "engine/signals.h"
#include "record/run_list.h"
#include "train/resume_target.h"
#include "train/training_run.h"

namespace meshtrain {
namespace {

constexpr int kMostSecondsLocked = 30;

// Where the attempts write. What the processes would choose themselves is chosen here: another run
// of the same name may begin at any time.
class RunPlace {
 public:
  RunPlace(const LaunchRequest& request, const Config& config)
      : mode_(resume_mode(request.resume, config)),
        options_(run_dir_options(request.run_dir, config)) {
    if (!options_.dir.empty()) {
      return;
    }
    if (const ConfigObject* backup = deciding_backup(request.resume, config)) {
      options_.dir = interrupted_run(*backup, options_);
    } else if (mode_ == "auto" || mode_ == "latest" || mode_ == "best") {
      options_.dir = newest_run(runs_folder(options_));
    }
    is_found_ = !options_.dir.empty();
  }

  // For the first attempt.
  std::vector<std::string> words(std::vector<std::string> given) const {
    if (is_found_) {
      given.push_back("--run-dir=" + options_.dir);
    }
    return given;
  }
  // The name of the folder that the next attempt makes, where it makes one of its own.
  const std::string& next_folder() {
    options_.new_folder = new_folder_name();
    return options_.new_folder;
  }
  // After an attempt: "" when no folder of a run was begun or gone on with.
  std::string run() {
    if (options_.dir.empty() && goes_on_from_path()) {
      const ResumeTarget target = open_resume_path(mode_);
      options_.dir = target.own ? target.run.dir : "";
    }
    if (options_.dir.empty()) {
      const std::string made = runs_folder(options_) + "/" + options_.new_folder;
      options_.dir = is_run_dir(made) ? made : "";
    }
    return is_run_dir(options_.dir) ? options_.dir : "";
  }
  bool goes_on_from_path() const {
    return mode_ != "never" && mode_ != "auto" && mode_ != "latest" && mode_ != "best";
  }

 private:
  const std::string mode_;
  RunDirOptions options_;
  bool is_found_ = false;
};

// After a host was lost, a file system of several hosts may refuse for a moment.
NewestCheckpoint newest_of(const std::string& run) {
  constexpr int kTries = 10;
  for (int i = 1;; ++i) {
    try {
      return newest_checkpoint(run + "/checkpoints");
    } catch (const ConfigError& error) {
      if (error.diagnostics().list().front().code != "E409" || i == kTries) {
        throw;
      }
      sleep(1);
    }
  }
}

// What the next attempt is started with, and the step that it resumes from.
struct Next {
  std::vector<std::string> words;
  int64_t step = -1;  // no checkpoint
  std::string from;   // in words
};

Next next_attempt(const LaunchRequest& request, RunPlace& place) {
  Next out{request.words, -1, "from the beginning: there is no checkpoint yet"};
  const std::string run = place.run();
  if (run.empty()) {
    return out;
  }
  wait_for_lock(run);
  const NewestCheckpoint newest = newest_of(run);
  if (newest.reader == nullptr && place.goes_on_from_path()) {
    throw ConfigError("E400", {},
                      fmt::format("`{}` has no checkpoint of its own yet to start again from; "
                                  "begin it again in another folder",
                                  run));
  }
  out.words =
      without_flags(out.words, {"--resume", "--reset-cursor", "--reset-optimizer", "--run-dir"});
  out.words.insert(out.words.end(), {"--run-dir=" + run, "--resume=auto"});
  if (newest.reader != nullptr) {
    out.step = newest.reader->manifest().step;
    out.from = fmt::format("from step {} of {}", out.step, run);
  }
  return out;
}

bool is_worth_a_restart(int exit_code) {
  constexpr int kKilled = 137, kCrashed = 139;
  return exit_code == static_cast<int>(ExitCode::kRankLost) || exit_code == kKilled ||
         exit_code == kCrashed;
}

bool is_asked_to_stop(const ChildrenEnd& end, const Config& config) {
  return std::any_of(end.signals.begin(), end.signals.end(), [&](int number) {
    return asks_to_stop(signal_action(number, config.run.on_signal));
  });
}

int processes_for(const Config& config) {
  Diagnostics diagnostics;
  const Distribution distribution = make_distribution(config, 1, diagnostics);
  // What is wrong with the mesh is said with everything else that is wrong.
  return diagnostics.has_errors() ? 1 : processes_to_start(distribution.devices);
}

}  // namespace

std::vector<std::string> without_flags(std::vector<std::string> words,
                                       std::initializer_list<std::string_view> flags) {
  std::erase_if(words, [&](const std::string& word) {
    return std::any_of(flags.begin(), flags.end(), [&](std::string_view flag) {
      return starts_with(word, flag) && word.size() > flag.size() && word[flag.size()] == '=';
    });
  });
  return words;
}

void wait_for_lock(const std::string& run) {
  const int fd = open((run + "/checkpoints/LOCK").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  constexpr int kTriesPerSecond = 10;
  for (int i = 0; i < kMostSecondsLocked * kTriesPerSecond && flock(fd, LOCK_EX | LOCK_NB) != 0;
       ++i) {
    usleep(1000000 / kTriesPerSecond);
  }
  close(fd);
}

void say(const std::string& text) {
  err_stream().write(text + "\n");
}

int run_with_restarts(const LaunchRequest& request, const Config& config, const Attempt& attempt) {
  if (request.restarts == 0) {
    return attempt(request.words, {{"MESHTRAIN_RESTART", "0"}}).exit_code;
  }
  RunPlace place(request, config);
  const double began = steady_seconds();
  Next next{place.words(request.words), -1, ""};
  for (int64_t restart = 0;; ++restart) {
    const ChildrenEnd end = attempt(next.words, {{"MESHTRAIN_RESTART", std::to_string(restart)},
                                                 {kNewFolderVariable, place.next_folder()}});
    if (!is_worth_a_restart(end.exit_code) || is_asked_to_stop(end, config) ||
        restart == request.restarts) {
      return end.exit_code;
    }
    const int64_t begun_from = next.step;
    next = next_attempt(request, place);
    if (restart > 0 && next.step <= begun_from) {
      say(fmt::format(
          "not started again after exit code {}: no checkpoint was added since restart {}",
          end.exit_code, restart));
      return end.exit_code;
    }
    if (const double limit = config.run.max_time.value; limit > 0) {
      const int64_t left = static_cast<int64_t>(limit - (steady_seconds() - began));
      if (left < 1) {
        say(fmt::format("not started again after exit code {}: run.max_time is over",
                        end.exit_code));
        return end.exit_code;
      }
      next.words = without_flags(next.words, {"--max-time", "run.max_time", "--set=run.max_time"});
      next.words.push_back(fmt::format("--max-time={}s", left));
    }
    say(fmt::format("restart {} of {} after exit code {} of {}, {}", restart + 1, request.restarts,
                    end.exit_code, end.name, next.from));
  }
}

std::optional<int> run_own_processes(const LaunchRequest& request, const Config& config,
                                     const Processes& own) {
  const int count = own.group != nullptr ? 1 : processes_for(config);
  if (count == 1 && request.restarts == 0) {
    return std::nullopt;
  }
  check_files_can_be_shared(request.words);
  return run_with_restarts(
      request, config, [&](const std::vector<std::string>& words, const Environment& environment) {
        std::vector<std::string> command = {program_to_start()};
        command.insert(command.end(), words.begin(), words.end());
        return run_processes(
            command, count, environment,
            {.say = say, .even_if_ignored = changed_signals(config.run.on_signal)});
      });
}

void check_files_can_be_shared(const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), "-") != words.end()) {
    throw ConfigError("E140", {},
                      "several processes cannot share standard input (`-`); write the config to a "
                      "file");
  }
}

}  // namespace meshtrain
