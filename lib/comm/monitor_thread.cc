#include "comm/monitor_thread.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/host.h"
#include "base/system_calls.h"
#include "comm/hosts.h"

namespace meshtrain {
namespace {

// A closed link is reported a little later: a rank that was about to end everything has done so by
// then.
constexpr double kEndedSeconds = 0.1;
// The others may be slow to close their links after the end.
constexpr double kLingerSeconds = 2;
// Others that fail for the same reason are heard before the message.
constexpr double kFailuresSeconds = 0.3;
// Rank 0 leaves last, but does not wait for ever; nor does the one that spoke in its place, which
// keeps others from saying the same.
constexpr double kLastSeconds = 2;

constexpr size_t kMostStacks = 4;

}  // namespace

MonitorThread::MonitorThread(MonitorState& state, const Activity& activity,
                             std::atomic<bool>& aborting, const HeartbeatOptions& options, int rank,
                             std::vector<RankView> views, std::vector<std::string> hosts,
                             std::vector<Link> links, std::string run_name)
    : state_(state),
      activity_(activity),
      aborting_(aborting),
      options_(options),
      rank_(rank),
      interval_(std::min({1.0, options.silence_seconds / 8, options.collective_seconds / 8})),
      views_(std::move(views)),
      hosts_(std::move(hosts)),
      links_(std::move(links)),
      heard_(views_.size(), steady_seconds()),
      run_name_(std::move(run_name)),
      parent_name_(program_of(options.parent)),
      gather_(
          rank, size(), [this](const std::string& frame) { send_to_all(frame); },
          [this](const std::string& key, std::vector<std::string> texts) {
            state_.deliver(key, std::move(texts));
          }),
      done_(views_.size(), false) {
  // From here on: the thread may come to run much later.
  last_turn_ = now_ = next_tick_ = changed_at_ = alive_at_ = heard_[0];
}

void MonitorThread::run() {
  while (!over_) {
    wait();
    notice_pause();
    take_requests();
    read_links();
    if (now_ >= next_tick_) {
      next_tick_ = now_ + interval_;
      tick();
    }
    if (!failures_.empty() && now_ >= failures_until_) {
      judge_failures();
    }
    if (leaving_) {
      continue_leaving();
    } else if (finished_) {
      over_ = are_all_closed() || now_ > finished_at_ + kLingerSeconds;
    }
  }
  links_.clear();
  if (hooks_thread_.joinable()) {
    hooks_thread_.join();
  }
}

bool MonitorThread::are_all_closed() const {
  return std::none_of(links_.begin(), links_.end(), [](const Link& link) { return link.open(); });
}

// Until something comes, or it is time for something.
void MonitorThread::wait() {
  std::vector<pollfd> entries = {{state_.wake_fd, POLLIN, 0}};
  for (Link& link : links_) {
    if (link.open()) {
      link.flush();
      entries.push_back(
          {link.fd(), static_cast<short>(POLLIN | (link.has_unsent() ? POLLOUT : 0)), 0});
    }
  }
  double until = next_tick_;
  if (leaving_ || finished_ || !failures_.empty()) {
    until = std::min(until, now_ + 0.02);
  }
  const double seconds = std::clamp(until - steady_seconds(), 0.0, 1.0);
  ::poll(entries.data(), entries.size(), seconds > 0 ? static_cast<int>(seconds * 1000) + 1 : 0);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(state_.wake_fd, &count, sizeof count);
}

// Where this process itself did not run for a while (SIGSTOP, a suspended machine), the others have
// not been silent: what they sent is still to be read.
void MonitorThread::notice_pause() {
  now_ = steady_seconds();
  const double gap = now_ - last_turn_;
  last_turn_ = now_;
  if (gap > interval_ + options_.silence_seconds / 4) {
    std::fill(heard_.begin(), heard_.end(), now_);
    paused_ = gap;
    paused_at_ = now_;
  }
}

void MonitorThread::take_requests() {
  std::vector<GatherRequest> gathers;
  std::optional<RankFailure> failure;
  bool finish = false, stop = false;
  {
    const std::lock_guard lock(state_.mutex);
    gathers.swap(state_.gathers);
    failure.swap(state_.failure);
    std::swap(finish, state_.finish);
    stop = state_.stop;
  }
  for (const GatherRequest& request : gathers) {
    gather_.start(request, now_);
  }
  if (finish) {
    set_done(rank_);
  }
  if (failure) {
    add_failure(std::move(*failure));
  }
  over_ |= stop && !leaving_ && !finished_ && failures_.empty();
}

void MonitorThread::read_links() {
  for (int rank = 0; rank < size(); ++rank) {
    if (link(rank).open()) {
      read_link(rank);
    }
  }
}

void MonitorThread::read_link(int rank) {
  const bool alive = link(rank).receive();
  FrameKind kind = {};
  std::string payload;
  while (link(rank).next(&kind, &payload)) {
    heard_[static_cast<size_t>(rank)] = now_;
    handle(rank, kind, payload);
  }
  view(rank).malformed |= link(rank).malformed();
  if (!alive || view(rank).malformed) {
    view(rank).lost_host = link(rank).lost_host();
    link_ended(rank);
  }
}

void MonitorThread::link_ended(int rank) {
  link(rank).close();
  if (finished_ || leaving_) {
    return;
  }
  view(rank).ended = true;
  next_tick_ = std::min(next_tick_, now_ + kEndedSeconds);
}

void MonitorThread::handle(int rank, FrameKind kind, const std::string& payload) {
  FrameReader frame(payload);
  if (is_first()) {
    handle_at_first(rank, kind, frame);
  } else {
    handle_at_others(kind, frame);
  }
  view(rank).malformed |= !frame.ok();
}

void MonitorThread::handle_at_first(int rank, FrameKind kind, FrameReader& frame) {
  if (kind == FrameKind::kReport) {
    view(rank).reported = view(rank).report.read(frame);
    check_loss(rank);
  } else if (kind == FrameKind::kGather) {
    view(rank).malformed |= !gather_.receive(rank, frame, now_);
  } else if (kind == FrameKind::kFail) {
    RankFailure failure;
    failure.rank = rank;
    failure.exit_code = frame.get<int32_t>();
    failure.text = frame.text();
    if (frame.ok()) {
      add_failure(std::move(failure));
    }
  } else if (kind == FrameKind::kDone) {
    set_done(rank);
  } else {
    view(rank).malformed = true;
  }
}

void MonitorThread::handle_at_others(FrameKind kind, FrameReader& frame) {
  if (kind == FrameKind::kGathered) {
    view(0).malformed |= !gather_.receive(0, frame, now_);
  } else if (kind == FrameKind::kAbort) {
    const auto exit_code = frame.get<int32_t>();
    const bool is_stuck = frame.get<uint8_t>() != 0;
    if (frame.ok()) {
      start_leaving(exit_code, is_stuck ? std::vector<int>{rank_} : std::vector<int>{});
    }
  } else if (kind == FrameKind::kAllDone) {
    set_finished();
    link(0).close();
  } else if (kind == FrameKind::kReport) {
    view(0).reported = view(0).report.read(frame);
  } else {
    view(0).malformed = true;
  }
}

void MonitorThread::send_to_all(const std::string& frame) {
  for (Link& link : links_) {
    link.send(frame);
  }
}

RankReport MonitorThread::own_report() {
  const Activity::Values values = activity_.read();
  if (values.entries != last_entries_ || values.inside != last_inside_) {
    last_entries_ = values.entries;
    last_inside_ = values.inside;
    changed_at_ = now_;
  }
  RankReport report = RankReport::of(values);
  report.inside_seconds = values.inside ? now_ - changed_at_ : 0;
  const std::lock_guard lock(state_.mutex);
  if (values.changes != last_changes_ || !state_.announcements.empty()) {
    last_changes_ = values.changes;
    alive_at_ = now_;
  }
  report.quiet_seconds = now_ - alive_at_;
  if (!state_.announcements.empty()) {
    const MonitorState::Announced& newest = state_.announcements.back();
    report.announced = newest.what;
    report.announced_seconds = now_ - newest.since;
    report.announced_limit = newest.limit;
  }
  return report;
}

// Each second: say where this rank is, and look at the others.
void MonitorThread::tick() {
  view(rank_).report = own_report();
  view(rank_).reported = true;
  for (int rank = 0; rank < size(); ++rank) {
    view(rank).silent_seconds = link(rank).open() ? now_ - heard_[static_cast<size_t>(rank)] : 0;
  }
  send_to_all(view(rank_).report.frame());
  check_parent();
  if (is_first()) {
    if (!leaving_ && !finished_ && failures_.empty()) {
      judge_all();
    }
    return;
  }
  if (leaving_ || finished_) {
    return;
  }
  if (view(0).ended) {
    rank_zero_lost(ended_verdict(views_, 0), !view(0).lost_host);
  } else if (view(0).silent_seconds > options_.silence_seconds) {
    rank_zero_lost(silent_verdict(views_, 0), false);
  }
}

// Processes without a parent that watches them must not continue alone.
void MonitorThread::check_parent() {
  if (options_.parent == 0 || parent_ended_ || ::getppid() == options_.parent) {
    return;
  }
  parent_ended_ = true;
  add_failure({rank_, static_cast<int>(ExitCode::kRankLost),
               fmt::format("error[E601]: {} (pid {}) on host {}, which started the processes, has "
                           "ended; training stopped\n",
                           parent_name_, options_.parent, view(rank_).host)});
}

void MonitorThread::judge_all() {
  std::vector<Waiting> waiting = gather_.waiting(now_);
  if (first_done_ > 0) {
    waiting.push_back(
        {"the end of the run", now_ - first_done_, options_.collective_seconds, done_});
  }
  auto verdict = judge(views_, waiting, {options_.silence_seconds, options_.collective_seconds});
  if (verdict && verdict->code == "E603" && !mismatch_) {
    mismatch_ = std::move(verdict);  // by the next time all have said where they are
    return;
  }
  if (mismatch_ && !verdict) {
    verdict = mismatch_;
  }
  if (verdict) {
    stop_run(*verdict);
  }
}

void MonitorThread::check_loss(int rank) {
  const RankReport& report = view(rank).report;
  if (report.loss_hash != 0 && state_.losses.differs(report.loss_step, report.loss_hash) &&
      !leaving_ && !finished_) {
    stop_run(different_loss(views_, rank, report.loss_step));
  }
}

void MonitorThread::set_done(int rank) {
  if (!is_first()) {
    link(0).send(FrameWriter(FrameKind::kDone).done());
    return;
  }
  done_[static_cast<size_t>(rank)] = true;
  first_done_ = first_done_ > 0 ? first_done_ : now_;
  if (std::find(done_.begin(), done_.end(), false) != done_.end()) {
    return;
  }
  send_to_all(FrameWriter(FrameKind::kAllDone).done());
  for (Link& link : links_) {  // before this process may end
    link.flush();
  }
  set_finished();
}

void MonitorThread::set_finished() {
  finished_ = true;
  finished_at_ = now_;
  state_.set_finished();
}

// The first failure of a rank counts: later ones may follow from it.
void MonitorThread::add_failure(RankFailure failure) {
  const bool is_known = std::any_of(failures_.begin(), failures_.end(),
                                    [&](const auto& other) { return other.rank == failure.rank; });
  if (leaving_ || is_known) {
    return;
  }
  if (finished_) {  // no other rank is concerned
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

// Judges the failures of ranks, each text once.
void MonitorThread::judge_failures() {
  if (!is_first() || leaving_) {
    return;
  }
  start_last_resort();
  std::sort(failures_.begin(), failures_.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  if (const auto verdict = lost_rank(failures_, views_)) {
    stop_run(*verdict);
    return;
  }
  options_.print(failures_text(failures_, views_, state_.last_checkpoint.load()));
  start_leaving(exit_code_of(failures_));
}

// Describes a pause of this process itself that was longer than the others wait.
std::string MonitorThread::own_pause_text() {
  if (!are_all_closed() || paused_ <= options_.silence_seconds ||
      now_ > paused_at_ + options_.silence_seconds) {
    return {};
  }
  return failure_text(paused_verdict(views_, rank_, paused_), state_.last_checkpoint.load(),
                      view(rank_).report.step, options_.resume_command);
}

void MonitorThread::rank_zero_lost(const Verdict& verdict, bool closed) {
  start_last_resort();
  for (const RankFailure& failure : failures_) {  // what it could not tell rank 0
    if (failure.exit_code != static_cast<int>(ExitCode::kRankLost)) {
      options_.print(failure.text);
    }
  }
  if (const std::string paused = own_pause_text(); !paused.empty()) {
    options_.print(paused);
  } else if (speaks_for_rank_zero(hosts_, rank_, closed) && claim_on_host(run_name_)) {
    speaks_for_rank_zero_ = true;
    options_.print(failure_text(verdict, state_.last_checkpoint.load(), view(rank_).report.step,
                                options_.resume_command));
  }
  start_leaving(static_cast<int>(ExitCode::kRankLost));
}

void MonitorThread::stop_run(const Verdict& verdict) {
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
                                 : failure_text(verdict, state_.last_checkpoint.load(), step,
                                                options_.resume_command));
  // A few of many ranks suffice: they hang at the same point.
  const bool hangs = verdict.code == "E602";
  const size_t count = hangs ? std::min(verdict.ranks.size(), kMostStacks) : 0;
  start_leaving(
      static_cast<int>(ExitCode::kRankLost),
      {verdict.ranks.begin(), verdict.ranks.begin() + static_cast<std::ptrdiff_t>(count)});
}

// Before writing to a stream without a reader.
void MonitorThread::start_last_resort() {
  const std::lock_guard lock(state_.mutex);
  state_.last_resort.start(options_.last_resort_seconds);
}

// The ranks that are `stuck` show where.
void MonitorThread::start_leaving(int exit_code, const std::vector<int>& stuck) {
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

void MonitorThread::run_hooks() {
  if (shows_stack_) {
    dump_stack(main_thread_, fmt::format("[rank {}] its main thread is in:", rank_));
  }
  state_.hooks.run([this](const char* problem) {  // what ends the run is more than what fails then
    options_.print(fmt::format("warning: at the end of rank {}: {}\n", rank_, problem));
  });
  hooks_done_.store(true);
  state_.wake();
}

void MonitorThread::continue_leaving() {
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
  state_.set_left(*leaving_);
  over_ = true;
}

}  // namespace meshtrain
