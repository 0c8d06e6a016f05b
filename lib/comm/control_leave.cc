// The part of the control channel's thread that ends the processes: who says what, and in which
// order they leave.
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>

#include "base/system_calls.h"
#include "comm/control_thread.h"
#include "comm/stack_dump.h"

namespace meshtrain {
namespace {

// Others that fail for the same reason are heard before the message.
constexpr double kFailuresSeconds = 0.3;
// Rank 0 leaves last, but does not wait for ever; nor does the one that spoke in its place, which
// keeps others from saying the same.
constexpr double kLastSeconds = 2;

constexpr size_t kMostStacks = 4;

// Whether this process is the first on its host to take `name`; it keeps it until it ends.
bool claim(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string text = "meshtrain-" + name;
  const size_t length = std::min(text.size(), sizeof address.sun_path - 1);
  std::copy_n(text.begin(), length, address.sun_path + 1);  // a leading zero: no file
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  return fd >= 0 &&
         ::bind(fd, reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)) == 0;
}

std::string without_end(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

}  // namespace

// What a rank says first counts: more may follow from it.
void ControlThread::add_failure(ControlDesk::Failure failure) {
  const bool was_told = std::any_of(failures_.begin(), failures_.end(),
                                    [&](const auto& other) { return other.rank == failure.rank; });
  if (leaving_ || was_told) {
    return;
  }
  if (finished_) {  // nobody else is concerned
    start_last_resort();
    options_.print(failure.text);
    start_leaving(failure.exit_code);
    return;
  }
  if (!is_first()) {
    link(0).send(FrameWriter(FrameKind::kFail)
                     .put(static_cast<int32_t>(failure.exit_code))
                     .put(std::string_view(failure.text).substr(0, kMostPartBytes))
                     .done());
  } else if (failures_.empty()) {
    failures_until_ = now_ + kFailuresSeconds;
  }
  failures_.push_back(std::move(failure));
  if (is_first() && failures_.size() == views_.size()) {
    failures_until_ = now_;
  }
}

// What the ranks that failed had to say, each text once.
void ControlThread::settle_failures() {
  if (!is_first() || leaving_) {
    return;
  }
  start_last_resort();
  std::sort(failures_.begin(), failures_.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  const auto is_rank_lost = [](const auto& failure) {
    return failure.exit_code == static_cast<int>(ExitCode::kRankLost);
  };
  if (std::all_of(failures_.begin(), failures_.end(), is_rank_lost)) {
    // They found it out by themselves: who ended says more than how they noticed.
    for (int rank = 0; rank < size(); ++rank) {
      if (view(rank).ended) {
        stop_run(ended_verdict(views_, rank));
        return;
      }
    }
  }
  std::vector<std::pair<std::string, std::vector<int>>> texts;
  for (const ControlDesk::Failure& failure : failures_) {
    const auto same = std::find_if(texts.begin(), texts.end(),
                                   [&](const auto& entry) { return entry.first == failure.text; });
    if (same == texts.end()) {
      texts.push_back({failure.text, {failure.rank}});
    } else {
      same->second.push_back(failure.rank);
    }
  }
  const int64_t checkpoint = desk_.last_checkpoint.load();
  for (const auto& [text, ranks] : texts) {
    std::string shown = without_end(text) + "\n";
    if (ranks.size() < views_.size()) {
      shown += fmt::format(
          "  = on {}; all {} processes stopped\n",
          ranks.size() == 1 ? describe(view(ranks[0]), ranks[0]) : rank_list(ranks), size());
    }
    if (checkpoint > 0) {
      shown += fmt::format("  = last complete checkpoint: step {}\n", checkpoint);
    }
    options_.print(shown + "\n");
  }
  start_leaving(failures_.front().exit_code);
}

// What happened to this process itself, if it did not run for longer than the others wait.
std::string ControlThread::own_pause_text() {
  if (!are_all_closed() || paused_ <= options_.silence_seconds ||
      now_ > paused_at_ + options_.silence_seconds) {
    return {};
  }
  return failure_text({"E601",
                       {rank_},
                       fmt::format("{} was stopped for {:.0f} s, and the others went without it",
                                   describe(view(rank_), rank_), paused_),
                       {}},
                      desk_.last_checkpoint.load(), view(rank_).report.step,
                      options_.resume_command);
}

void ControlThread::rank_zero_lost(const Verdict& verdict, bool closed) {
  start_last_resort();
  for (const ControlDesk::Failure& failure : failures_) {  // what it could not tell rank 0
    if (failure.exit_code != static_cast<int>(ExitCode::kRankLost)) {
      options_.print(failure.text);
    }
  }
  if (const std::string paused = own_pause_text(); !paused.empty()) {
    options_.print(paused);
  } else if (prints_for_rank_zero(closed) && claim(run_name_)) {
    speaks_for_rank_zero_ = true;
    options_.print(failure_text(verdict, desk_.last_checkpoint.load(), view(rank_).report.step,
                                options_.resume_command));
  }
  start_leaving(static_cast<int>(ExitCode::kRankLost));
}

// Nobody knows who else is left. Where only the process has ended, its host is there as a rule, and
// the ranks on it; where it is silent, its host may be gone. So one on the host of the first rank
// that may be there says it, and when the process has ended, one on another host, too.
bool ControlThread::prints_for_rank_zero(bool closed) const {
  const std::string& mine = hosts_[static_cast<size_t>(rank_)];
  const auto other = std::find_if(hosts_.begin(), hosts_.end(),
                                  [&](const std::string& host) { return host != hosts_[0]; });
  const bool on_other = other != hosts_.end() && mine == *other;
  return closed || other == hosts_.end() ? mine == hosts_[1] || on_other : on_other;
}

void ControlThread::stop_run(const Verdict& verdict) {
  if (leaving_) {
    return;
  }
  start_last_resort();
  const std::string paused = own_pause_text();
  int64_t step = 0;
  for (const RankView& view : views_) {
    step = std::max(step, view.report.step);
  }
  options_.print(!paused.empty() ? paused
                                 : failure_text(verdict, desk_.last_checkpoint.load(), step,
                                                options_.resume_command));
  // Of many only a few: they hang in the same place.
  const bool hangs = verdict.code == "E602";
  const size_t count = hangs ? std::min(verdict.ranks.size(), kMostStacks) : 0;
  start_leaving(
      static_cast<int>(ExitCode::kRankLost),
      {verdict.ranks.begin(), verdict.ranks.begin() + static_cast<std::ptrdiff_t>(count)});
}

// Before anything is written where nobody may read.
void ControlThread::start_last_resort() {
  const std::lock_guard lock(desk_.mutex);
  desk_.last_resort.start(options_.last_resort_seconds);
}

// The ranks that are `stuck` show where.
void ControlThread::start_leaving(int exit_code, const std::vector<int>& stuck) {
  if (leaving_) {
    return;
  }
  leaving_ = exit_code;
  leaving_since_ = now_;
  aborting_.store(true);
  start_last_resort();
  const auto is_stuck = [&](int rank) {
    return std::find(stuck.begin(), stuck.end(), rank) != stuck.end();
  };
  shows_stack_ = is_stuck(rank_);
  hooks_thread_ = quiet_thread([this] { run_hooks(); });
  if (!is_first()) {
    return;
  }
  for (int rank = 1; rank < size(); ++rank) {
    link(rank).send(FrameWriter(FrameKind::kAbort)
                        .put(static_cast<int32_t>(exit_code))
                        .put(static_cast<uint8_t>(is_stuck(rank)))
                        .done());
    // Not waited for: a stopped one may never leave.
    if (view(rank).silent_seconds > options_.silence_seconds) {
      link(rank).close();
    }
  }
}

void ControlThread::run_hooks() {
  if (shows_stack_) {
    dump_stack(main_thread_, fmt::format("[rank {}] its main thread is in:", rank_));
  }
  const std::lock_guard lock(desk_.hooks_mutex);
  for (auto hook = desk_.hooks.rbegin(); hook != desk_.hooks.rend(); ++hook) {
    try {
      hook->run();
    } catch (const std::exception& error) {  // what ends the run is more than what fails then
      options_.print(fmt::format("warning: at the end of rank {}: {}\n", rank_, error.what()));
    }
  }
  hooks_done_.store(true);
  desk_.wake();
}

void ControlThread::continue_leaving() {
  const bool hooks_over = hooks_done_.load() || now_ > leaving_since_ + options_.hook_seconds;
  const bool last =
      is_first() ? are_all_closed() || now_ > leaving_since_ + options_.hook_seconds + kLastSeconds
                 : !speaks_for_rank_zero_ || now_ > leaving_since_ + kLastSeconds;
  if (!hooks_over || !last) {
    return;
  }
  if (hooks_done_.load()) {
    hooks_thread_.join();
  }
  if (options_.exit) {
    options_.exit(*leaving_);
  } else {
    ::_exit(*leaving_);
  }
  {
    const std::lock_guard lock(desk_.mutex);
    desk_.left = *leaving_;
  }
  desk_.changed.notify_all();
  over_ = true;
}

}  // namespace meshtrain
