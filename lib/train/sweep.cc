#include "train/sweep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/host.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/folder.h"
#include "comm/child_queue.h"
#include "config/config_changes.h"
#include "config/run_files.h"
#include "engine/signals.h"
#include "record/progress.h"
#include "record/run_dir.h"
#include "record/run_log.h"
#include "record/run_summary.h"
#include "train/device_shares.h"
#include "train/median_rule.h"
#include "train/restarts.h"
#include "train/sweep_dir.h"
#include "train/sweep_journal.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMostConfig = uint64_t{1} << 26;

std::string dumped(const OrderedJson& json) {
  return json_text(json, -1, OrderedJson::error_handler_t::replace);
}

OrderedJson json_of(const SweepValues& values) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [key, value] : values) {
    out[key] = value;
  }
  return out;
}

OrderedJson json_of(const std::optional<MedianRule>& rule) {
  return rule ? OrderedJson{{"monitor", rule->monitor},
                            {"mode", rule->larger_is_better ? "max" : "min"},
                            {"min_epochs", rule->min_epochs},
                            {"min_runs", rule->min_runs}}
              : OrderedJson();
}

size_t size_of(const std::string& file) {
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  return error ? 0 : static_cast<size_t>(size);
}

// The error that a member printed before it had a run's folder; its log has those of earlier starts
// before `begin`.
std::string first_error(const std::string& log, size_t begin) {
  std::error_code error;
  if (!fs::is_regular_file(log, error)) {
    return "";
  }
  const std::string text = read_file(log, kMostConfig);
  for (const std::string& line : split(text.substr(std::min(begin, text.size())), '\n')) {
    if (starts_with(line, "error")) {
      return line;
    }
  }
  return "";
}

class Sweep {
 public:
  Sweep(SweepRequest request, SweepPlan plan, std::string dir)
      : request_(std::move(request)),
        plan_(std::move(plan)),
        dir_(std::move(dir)),
        lock_(dir_, new_run_id()),
        journal_(dir_) {
    if (request_.prints_events) {
      journal_.set_echo([this](std::string_view line) { request_.out(fmt::format("{}\n", line)); });
    }
    state_ = read_journal(dir_);
    check_config();
    begin();
    rule_ = std::make_unique<MedianJudge>(plan_.early_stop.value_or(MedianRule{}));
  }

  // As a job array of the members that are not done.
  int submit(const SlurmOptions& slurm) {
    collect_waiting();
    std::vector<std::vector<std::string>> commands;
    for (auto member = waiting_.rbegin(); member != waiting_.rend(); ++member) {
      commands.push_back(member_words(plan_, (*member)->values, run_dir(**member)));
    }
    if (commands.empty()) {
      return finish();
    }
    const std::string script =
        slurm_array_script(slurm, fs::path(dir_).filename().string(), commands, plan_.parallel);
    return submit_script(dir_ + "/sweep.sbatch", script, request_.out);
  }

  int run() {
    collect_waiting();
    say(fmt::format("sweep       {}: {} runs, {} to do, {} at a time{}\n", dir_,
                    state_.members.size(), waiting_.size(), plan_.parallel,
                    plan_.repeated == 0
                        ? ""
                        : fmt::format("; {} more were drawn with equal values", plan_.repeated)));
    const int slots = static_cast<int>(
        std::min<int64_t>(plan_.parallel, std::max<int64_t>(1, std::ssize(waiting_))));
    shares_ = device_shares(slots, request_.threads);
    running_.assign(static_cast<size_t>(slots), nullptr);
    log_begins_.assign(static_cast<size_t>(slots), 0);
    const SignalChanges changes =
        load_config(member_options(plan_, plan_.members.front())).run.on_signal;
    const int signal = run_child_queue(
        {.slots = slots,
         .next = [this](int slot) { return next(slot); },
         .started = [this](int slot, int pid) { started(slot, pid); },
         .ended = [this](int slot, int code) { ended(slot, code); },
         .stops = [&](int number) { return asks_to_stop(signal_action(number, changes)); },
         .to_stop = [this] { return hopeless(); }});
    if (signal != 0) {
      journal_.write("stop", dumped({{"signal", signal}, {"time", utc_time_ms()}}));
      say(
          fmt::format("stopped; the same command with --resume continues it, or: meshtrain sweep "
                      "{}\n",
                      dir_));
      return static_cast<int>(ExitCode::kStopped);
    }
    return finish();
  }

 private:
  void say(const std::string& text) const {
    if (!request_.is_quiet) {
      request_.err(text);
    }
  }

  // What all members share. It is no config where it sets an argument of a class that varies: then
  // that of the first member.
  std::string shared_config() const {
    try {
      return show_config(plan_.base, false);
    } catch (const ConfigError&) {
      return show_config(member_options(plan_, plan_.members.front()), false);
    }
  }

  // The config of all members must be what it was: else the rows of the table cannot be compared.
  void check_config() {
    const std::string path = dir_ + "/" + run_files::kResolved;
    const std::string now = shared_config();
    std::error_code error;
    if (!fs::exists(path, error)) {
      write_file_atomic(path, now);
      return;
    }
    const std::vector<ConfigChange> changes = config_changes(read_file(path, kMostConfig), now);
    if (!changes.empty()) {
      throw ConfigError("E149", {},
                        fmt::format("the config has changed since the sweep in `{}` began", dir_))
          .note(changes_text(changes))
          .help("undo that, or begin a new sweep: without --resume, in another folder");
    }
  }

  // Records this start, and the members that are not in the journal yet.
  void begin() {
    std::error_code error;
    journal_.write("sweep", dumped({{"version", request_.version},
                                    {"command_line", request_.command_line},
                                    {"folder", fs::current_path(error).string()},
                                    {"config", plan_.base.files},
                                    {"overrides", member_options(plan_, {}).overrides},
                                    {"profile", plan_.base.profile},
                                    {"method", plan_.method},
                                    {"parallel", plan_.parallel},
                                    {"early_stop", json_of(plan_.early_stop)},
                                    {"members", plan_.members.size()},
                                    {"time", utc_time_ms()}}));
    for (const SweepValues& values : plan_.members) {
      const bool is_known =
          std::any_of(state_.members.begin(), state_.members.end(),
                      [&](const SweepMember& member) { return member.values == values; });
      if (!is_known) {
        SweepMember& member = state_.members.emplace_back();
        member.number = std::ssize(state_.members);
        member.run = fmt::format("{:03}", member.number);
        member.values = values;
        journal_.write(
            "member",
            dumped({{"member", member.number}, {"run", member.run}, {"values", json_of(values)}}));
      }
    }
  }

  std::string run_dir(const SweepMember& member) const { return dir_ + "/" + member.run; }

  // Members to run. One whose end the journal lacks may have come to its end all the same.
  void collect_waiting() {
    for (SweepMember& member : state_.members) {
      const std::string run = run_dir(member);
      if (!member.is_finished() && is_run_dir(run) && is_finished_run(run)) {
        record_end(member, 0, 0);
      } else if (member.is_finished() && !is_run_dir(run)) {
        member.exit_code.reset();  // somebody removed it
        member.is_hopeless = false;
      }
      if (member.is_finished()) {
        judge(member);
        ++done_;
      } else if (!member.is_failed() || request_.retry) {
        waiting_.push_back(&member);
      } else {
        ++done_;
      }
    }
    std::reverse(waiting_.begin(), waiting_.end());  // the next one is the last
  }

  std::optional<ChildCommand> next(int slot) {
    try {
      if (!waiting_.empty()) {
        check_config();  // members read the files themselves
      }
    } catch (const ConfigError& error) {
      changed_ = error;
      waiting_.clear();
    }
    if (waiting_.empty()) {
      return std::nullopt;
    }
    SweepMember& member = *waiting_.back();
    waiting_.pop_back();
    running_[static_cast<size_t>(slot)] = &member;
    const DeviceShare& share = shares_[static_cast<size_t>(slot)];
    if (member.starts > 0) {
      wait_for_lock(run_dir(member));  // of a process that is being killed
    }
    ChildCommand command{.name = "run " + member.run, .words = {program_to_start()}};
    const std::vector<std::string> words = member_words(plan_, member.values, run_dir(member));
    command.words.insert(command.words.end(), words.begin(), words.end());
    if (share.threads > 0) {
      command.words.push_back(fmt::format("--threads={}", share.threads));
    }
    if (!share.gpus.empty()) {
      command.environment.emplace_back("CUDA_VISIBLE_DEVICES", share.gpus);
    }
    command.cpus = share.cpus;
    command.holds_signals = true;
    command.output = run_dir(member) + ".log";
    log_begins_[static_cast<size_t>(slot)] = size_of(command.output);
    return command;
  }

  void started(int slot, int pid) {
    SweepMember& member = *running_[static_cast<size_t>(slot)];
    ++member.starts;
    member.exit_code.reset();
    journal_.write("start",
                   dumped({{"member", member.number}, {"pid", pid}, {"time", utc_time_ms()}}));
  }

  void ended(int slot, int exit_code) {
    SweepMember& member = *std::exchange(running_[static_cast<size_t>(slot)], nullptr);
    record_end(member, exit_code, log_begins_[static_cast<size_t>(slot)]);
    judge(member);
    ++done_;
    if (!request_.prints_events && !request_.is_quiet) {
      request_.out(line_of(member));
    }
  }

  void record_end(SweepMember& member, int exit_code, size_t log_begin) {
    member.exit_code = exit_code;
    if (exit_code != 0 && !member.is_hopeless) {
      const std::string run = run_dir(member);
      member.message = is_run_dir(run) ? summarize_run(read_run_record(run)).message : "";
      member.message =
          member.message.empty() ? first_error(run + ".log", log_begin) : member.message;
    }
    journal_.write("end", dumped({{"member", member.number},
                                  {"exit_code", exit_code},
                                  {"time", utc_time_ms()},
                                  {"message", member.message}}));
  }

  // "[ 3/36] mesh=4x2 learning_rate=0.01: accuracy: 0.8912 - loss: 0.3852 - 4ms/step"
  std::string line_of(const SweepMember& member) const {
    const std::string total = std::to_string(state_.members.size());
    std::string text = member_state(member);
    if (member.exit_code == 0) {
      const RunSummary run = summarize_run(read_run_record(run_dir(member)));
      const std::string logs = metrics_text(run.logs, false);
      text = fmt::format("{} - {}", logs.empty() ? "no epoch" : logs.substr(3),
                         progress_step_time(run.ms_per_step / 1e3));
    } else if (!member.message.empty()) {
      text += ": " + member.message;
    }
    return fmt::format("[{:>{}}/{}] {} {}: {}\n", done_, total.size(), total, member.run,
                       values_text(member.values), text);
  }

  // The finished run becomes one that others are compared with.
  void judge(const SweepMember& member) {
    if (plan_.early_stop && member.exit_code == 0 && is_run_dir(run_dir(member))) {
      rule_->add_finished(read_run_record(run_dir(member)));
    }
  }

  std::vector<int> hopeless() {
    std::vector<int> out;
    for (size_t slot = 0; plan_.early_stop && slot < running_.size(); ++slot) {
      SweepMember* member = running_[slot];
      if (member == nullptr || member->is_hopeless || !is_run_dir(run_dir(*member))) {
        continue;
      }
      const std::optional<MedianVerdict> verdict = rule_->judge(read_run_record(run_dir(*member)));
      if (verdict) {
        member->is_hopeless = true;
        member->message = verdict->text;
        journal_.write("hopeless", dumped({{"member", member->number},
                                           {"epoch", verdict->epoch},
                                           {"monitor", verdict->monitor},
                                           {"value", verdict->value},
                                           {"median", verdict->median},
                                           {"text", verdict->text}}));
        out.push_back(static_cast<int>(slot));
      }
    }
    return out;
  }

  int finish() const {
    if (changed_) {
      throw *changed_;
    }
    std::vector<std::string> failed;
    for (const SweepMember& member : state_.members) {
      if (member.is_failed()) {
        failed.push_back(
            fmt::format("  {} {}: exit code {}{}{}", member.run, values_text(member.values),
                        *member.exit_code, member.message.empty() ? ", see " : ": ",
                        member.message.empty() ? run_dir(member) + ".log" : member.message));
      }
    }
    if (failed.empty()) {
      const bool are_done =
          std::all_of(state_.members.begin(), state_.members.end(),
                      [](const SweepMember& member) { return member.is_finished(); });
      return are_done ? 0 : static_cast<int>(ExitCode::kStopped);
    }
    request_.err(fmt::format("{} of {} runs failed (--retry runs them again):\n{}\n", failed.size(),
                             state_.members.size(), join(failed, "\n")));
    return static_cast<int>(ExitCode::kCheckFailed);
  }

  const SweepRequest request_;
  const SweepPlan plan_;
  const std::string dir_;
  const CheckpointLock lock_;
  SweepJournal journal_;
  SweepState state_;
  std::unique_ptr<MedianJudge> rule_;
  std::vector<SweepMember*> waiting_, running_;  // running_ by slot
  std::vector<size_t> log_begins_;               // by slot: bytes of earlier starts
  std::vector<DeviceShare> shares_;
  int64_t done_ = 0;
  std::optional<ConfigError> changed_;  // the config, while members ran
};

}  // namespace

std::vector<std::string> member_words(const SweepPlan& plan, const SweepValues& values,
                                      const std::string& run_dir) {
  const LoadOptions load = member_options(plan, values);
  std::vector<std::string> out = {"train"};
  for (const std::string& file : load.files) {
    out.push_back(starts_with(file, "-") && file != "-" ? "./" + file : file);  // no flag
  }
  for (const std::string& word : load.overrides) {
    out.push_back("--set=" + word);
  }
  if (!load.profile.empty()) {
    out.push_back("--profile=" + load.profile);
  }
  out.insert(out.end(), {"--run-dir=" + run_dir, "--resume=auto", "--progress=line"});
  return out;
}

std::string sweep_listing(const SweepRequest& request) {
  SweepRequest asked = request;
  std::string out;
  int64_t number = 0;
  for (const SweepValues& values : requested_plan(asked).members) {
    out += fmt::format("{:03} {}\n", ++number, values_text(values));
  }
  return out;
}

std::string sweep_slurm_script(const SweepRequest& request, const SlurmOptions& slurm) {
  SweepRequest asked = request;
  const SweepPlan plan = requested_plan(asked);
  const RunDirOptions place = sweep_place(plan);
  const std::string dir =
      asked.dir.empty() ? runs_folder(place) + "/" + new_folder_name() : asked.dir;
  std::vector<std::vector<std::string>> commands;
  for (const SweepValues& values : plan.members) {
    commands.push_back(
        member_words(plan, values, fmt::format("{}/{:03}", dir, commands.size() + 1)));
  }
  return slurm_array_script(slurm, fs::path(dir).filename().string(), commands, plan.parallel);
}

int submit_sweep(const SweepRequest& request, const SlurmOptions& slurm) {
  SweepRequest asked = request;
  SweepPlan plan = requested_plan(asked);
  const std::string dir = make_sweep_dir(asked, plan);
  return Sweep(std::move(asked), std::move(plan), dir).submit(slurm);
}

int run_sweep(SweepRequest request, std::string& dir) {
  SweepPlan plan = requested_plan(request);
  dir = make_sweep_dir(request, plan);
  return Sweep(std::move(request), std::move(plan), dir).run();
}

}  // namespace meshtrain
