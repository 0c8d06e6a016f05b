#include "comm/control_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace meshtrain {
namespace {

// A closed link is told of a little later: who was about to end everything has done so by then.
constexpr double kEndedSeconds = 0.1;
// The others may be slow to close their links after the end.
constexpr double kLingerSeconds = 2;

}  // namespace

ControlDesk::ControlDesk() : wake_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ControlDesk::~ControlDesk() {
  ::close(wake_fd);
}

void ControlDesk::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd, &one, sizeof one);
}

ControlThread::ControlThread(ControlDesk& desk, const Activity& activity,
                             std::atomic<bool>& aborting, const ControlOptions& options, int rank,
                             std::vector<RankView> views, std::vector<std::string> hosts,
                             std::vector<Link> links, std::string run_name)
    : desk_(desk),
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
      done_(views_.size(), false) {
  // From here on: the thread may come to run much later.
  last_turn_ = now_ = next_tick_ = changed_at_ = alive_at_ = heard_[0];
}

void ControlThread::run() {
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
      settle_failures();
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

bool ControlThread::are_all_closed() const {
  return std::none_of(links_.begin(), links_.end(), [](const Link& link) { return link.open(); });
}

// Until something comes, or it is time for something.
void ControlThread::wait() {
  std::vector<pollfd> entries = {{desk_.wake_fd, POLLIN, 0}};
  for (Link& link : links_) {
    if (link.open()) {
      link.flush();
      entries.push_back(
          {link.fd(), static_cast<short>(POLLIN | (link.wants_to_send() ? POLLOUT : 0)), 0});
    }
  }
  double until = next_tick_;
  if (leaving_ || finished_ || !failures_.empty()) {
    until = std::min(until, now_ + 0.02);
  }
  const double seconds = std::clamp(until - steady_seconds(), 0.0, 1.0);
  ::poll(entries.data(), entries.size(), seconds > 0 ? static_cast<int>(seconds * 1000) + 1 : 0);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(desk_.wake_fd, &count, sizeof count);
}

// Where this process itself did not run for a while (SIGSTOP, a suspended machine), the others have
// not been silent: what they sent is still to be read.
void ControlThread::notice_pause() {
  now_ = steady_seconds();
  const double gap = now_ - last_turn_;
  last_turn_ = now_;
  if (gap > interval_ + options_.silence_seconds / 4) {
    std::fill(heard_.begin(), heard_.end(), now_);
    paused_ = gap;
    paused_at_ = now_;
  }
}

void ControlThread::take_requests() {
  std::vector<ControlDesk::GatherRequest> gathers;
  std::optional<ControlDesk::Failure> failure;
  bool finish = false, stop = false;
  {
    const std::lock_guard lock(desk_.mutex);
    gathers.swap(desk_.gathers);
    failure.swap(desk_.failure);
    std::swap(finish, desk_.finish);
    stop = desk_.stop;
  }
  for (const ControlDesk::GatherRequest& request : gathers) {
    start_gather(request);
  }
  if (finish) {
    set_done(rank_);
  }
  if (failure) {
    add_failure(std::move(*failure));
  }
  over_ |= stop && !leaving_ && !finished_ && failures_.empty();
}

void ControlThread::read_links() {
  for (int rank = 0; rank < size(); ++rank) {
    if (link(rank).open()) {
      read_link(rank);
    }
  }
}

void ControlThread::read_link(int rank) {
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

void ControlThread::link_ended(int rank) {
  link(rank).close();
  if (finished_ || leaving_) {
    return;
  }
  view(rank).ended = true;
  next_tick_ = std::min(next_tick_, now_ + kEndedSeconds);
}

void ControlThread::handle(int rank, FrameKind kind, const std::string& payload) {
  FrameReader frame(payload);
  if (is_first()) {
    handle_at_first(rank, kind, frame);
  } else {
    handle_at_others(kind, frame);
  }
  view(rank).malformed |= !frame.ok();
}

void ControlThread::handle_at_first(int rank, FrameKind kind, FrameReader& frame) {
  if (kind == FrameKind::kReport) {
    view(rank).reported = view(rank).report.read(frame);
    check_loss(rank);
  } else if (kind == FrameKind::kGather) {
    ControlDesk::GatherRequest given{.key = frame.text(), .text = {}};
    given.limit = frame.get<double>();
    given.to_first = frame.get<uint8_t>() != 0;
    const bool last = frame.get<uint8_t>() != 0;
    const auto whole = parts_.try_emplace({rank, given.key}).first;
    std::string& text = whole->second;
    text += frame.text();
    view(rank).malformed |= text.size() > kMostTextBytes;
    if (last && frame.ok()) {
      given.text = std::move(text);
      parts_.erase(whole);
      add_text(rank, std::move(given));
    }
  } else if (kind == FrameKind::kFail) {
    ControlDesk::Failure failure;
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

void ControlThread::handle_at_others(FrameKind kind, FrameReader& frame) {
  if (kind == FrameKind::kGathered) {
    const std::string key = frame.text();
    const auto rank = frame.get<int32_t>();
    const bool last = frame.get<uint8_t>() != 0;
    const std::string part = frame.text();
    if (rank < 0 || rank >= size() || !frame.ok()) {
      view(0).malformed = true;
      return;
    }
    std::vector<std::string>& texts = incoming_[key];
    texts.resize(views_.size());
    texts[static_cast<size_t>(rank)] += part;
    if (last && rank == size() - 1) {
      deliver(key, std::move(texts));
      incoming_.erase(key);
    }
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

void ControlThread::send_to_all(const std::string& frame) {
  for (Link& link : links_) {
    link.send(frame);
  }
}

RankReport ControlThread::own_report() {
  const Activity::Values values = activity_.read();
  if (values.entries != last_entries_ || values.inside != last_inside_) {
    last_entries_ = values.entries;
    last_inside_ = values.inside;
    changed_at_ = now_;
  }
  RankReport report;
  report.step = values.step;
  report.epoch = values.epoch;
  report.phase = values.phase;
  report.sequence = values.sequence;
  report.signature = values.signature;
  report.collective = values.collective;
  report.inside = values.inside;
  report.awaited = values.awaited;
  report.awaited_steps = values.awaited_steps;
  report.inside_seconds = values.inside ? now_ - changed_at_ : 0;
  report.loss_step = values.loss_step;
  report.loss_hash = values.loss_hash;
  const std::lock_guard lock(desk_.mutex);
  if (values.changes != last_changes_ || !desk_.announcements.empty()) {
    last_changes_ = values.changes;
    alive_at_ = now_;
  }
  report.quiet_seconds = now_ - alive_at_;
  if (!desk_.announcements.empty()) {
    const ControlDesk::Announced& newest = desk_.announcements.back();
    report.announced = newest.what;
    report.announced_seconds = now_ - newest.since;
    report.announced_limit = newest.limit;
  }
  return report;
}

// Each second: say where this rank is, and look at the others.
void ControlThread::tick() {
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

// Processes that nothing watches any more do not go on by themselves.
void ControlThread::check_parent() {
  if (options_.parent == 0 || parent_ended_ || ::getppid() == options_.parent) {
    return;
  }
  parent_ended_ = true;
  add_failure({rank_, static_cast<int>(ExitCode::kRankLost),
               fmt::format("error[E601]: {} (pid {}) on host {}, which started the processes, has "
                           "ended; training stopped\n",
                           parent_name_, options_.parent, view(rank_).host)});
}

void ControlThread::judge_all() {
  auto verdict = judge(views_, waiting(), {options_.silence_seconds, options_.collective_seconds});
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

void ControlThread::check_loss(int rank) {
  const RankReport& report = view(rank).report;
  ControlDesk::Loss& own =
      desk_.losses[static_cast<size_t>(report.loss_step) % desk_.losses.size()];
  if (report.loss_hash == 0 || own.done.load(std::memory_order_acquire) != report.loss_step) {
    return;
  }
  const uint64_t hash = own.hash.load(std::memory_order_acquire);
  const bool whole = own.begun.load(std::memory_order_acquire) == report.loss_step;
  if (whole && hash != report.loss_hash && !leaving_ && !finished_) {
    stop_run(different_loss(views_, rank, report.loss_step));
  }
}

}  // namespace meshtrain
