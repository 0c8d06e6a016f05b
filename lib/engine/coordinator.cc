#include "engine/coordinator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/diagnostic.h"
#include "base/hash.h"
#include "engine/remote_error.h"
#include "engine/signals.h"

namespace meshtrain {
namespace {

// Exchanges take at most this part of the time. But an answer to a signal takes kLongest at most,
// and nobody notices that it takes kShortest.
constexpr double kPartOfTime = 0.01;
constexpr double kShortest = 0.05, kLongest = 1;  // seconds

}  // namespace

// What a process sends to all others in poll().
struct Coordinator::Message {
  double time = 0;
  uint64_t logs = 0;
  int64_t pace = 1;  // calls to the next exchange; rank 0's counts
  int32_t stop_signal = 0;
  bool stop_saves = false, checkpoint = false, report = false, is_done = false;
};

Coordinator::Coordinator(Processes processes, Clock now)
    : processes_(std::move(processes)), now_(std::move(now)) {
  time_ = polled_at_ = now_();
}

std::string Coordinator::describe(int rank) const {
  return processes_.monitor != nullptr ? processes_.monitor->describe(rank)
                                       : fmt::format("rank {}", rank);
}

std::vector<std::string> Coordinator::all_gather(const char* what, std::string_view mine) const {
  if (is_alone()) {
    return {std::string(mine)};
  }
  if (processes_.monitor == nullptr) {
    return processes_.group->all_gather(mine);
  }
  processes_.monitor->enter(hash_text(what), what);
  std::vector<std::string> all = processes_.group->all_gather(mine);
  processes_.monitor->leave();
  return all;
}

void Coordinator::on_rank_zero(const char* what, const std::function<void()>& action) const {
  broadcast(what, [&] {
    action();
    return std::string();
  });
}

// The text of rank 0 begins with "=" when it is the result, "!" when it is an error.
std::string Coordinator::broadcast(const char* what,
                                   const std::function<std::string()>& action) const {
  if (is_alone()) {
    return action();
  }
  std::string mine;
  std::exception_ptr error;
  if (is_first()) {
    try {
      mine = "=" + action();
    } catch (...) {
      error = std::current_exception();
      mine = "!" + serialize_error(error);
    }
  }
  const std::string text = all_gather(what, mine)[0];
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
  if (text[0] == '!') {
    rethrow_error(std::string_view(text).substr(1));
  }
  return text.substr(1);
}

void Coordinator::on_all_ranks(const char* what, const std::function<void()>& action) const {
  if (is_alone()) {
    return action();
  }
  std::exception_ptr error;
  try {
    action();
  } catch (...) {
    error = std::current_exception();
  }
  const std::vector<std::string> all = all_gather(what, error ? serialize_error(error) : "");
  if (all[0].empty()) {
    for (int r = 1; r < size(); ++r) {
      if (const std::string& text = all[static_cast<size_t>(r)]; !text.empty()) {
        rethrow_error(text, describe(r));
      }
    }
  } else if (is_first()) {
    std::rethrow_exception(error);
  } else {
    rethrow_error(all[0]);
  }
}

bool Coordinator::poll(Pace pace, bool is_done, uint64_t logs) {
  if (is_alone()) {
    return is_done;
  }
  if (++calls_ < pace_ && pace == Pace::kPaced) {
    return false;
  }
  const double now = now_();
  // At most twice as many as before: one long step says little about the next ones.
  const double seconds_each = std::max((now - polled_at_) / static_cast<double>(calls_), 1e-9);
  const double between = std::clamp(poll_seconds_ / kPartOfTime, kShortest, kLongest);
  const auto fitting = static_cast<int64_t>(between / seconds_each);
  Message mine{.time = now,
               .logs = logs,
               .pace = std::clamp<int64_t>(fitting, 1, 2 * pace_),
               .stop_signal = meshtrain::stop_signal(),
               .stop_saves = meshtrain::stop_saves(),
               .checkpoint = meshtrain::take_checkpoint_request(),
               .report = meshtrain::take_report_request(),
               .is_done = is_done};
  const std::vector<std::string> all =
      all_gather("what to do next", {reinterpret_cast<const char*>(&mine), sizeof(mine)});
  bool all_done = true;
  for (int r = 0; r < size(); ++r) {
    Message message;
    MESHTRAIN_CHECK(all[static_cast<size_t>(r)].size() == sizeof(message), "rank {} sent {} bytes",
                    r, all[static_cast<size_t>(r)].size());
    std::memcpy(static_cast<void*>(&message), all[static_cast<size_t>(r)].data(), sizeof(message));
    if (r == 0) {
      time_ = message.time;
      pace_ = message.pace;
      mine.logs = message.logs;
    } else if (message.logs != mine.logs) {
      throw ConfigError("E510", {},
                        fmt::format("the values of this epoch differ between {} and {}, which "
                                    "computed the same",
                                    describe(0), describe(r)));
    }
    if (stop_signal_ == 0 && message.stop_signal != 0) {
      stop_signal_ = message.stop_signal;
      stop_saves_ = message.stop_saves;
    }
    asked_checkpoint_ = asked_checkpoint_ || message.checkpoint;
    asked_report_ = asked_report_ || message.report;
    all_done = all_done && message.is_done;
  }
  calls_ = 0;
  polled_at_ = now_();
  poll_seconds_ = polled_at_ - now;
  return all_done;
}

int Coordinator::stop_signal() const {
  return is_alone() ? meshtrain::stop_signal() : stop_signal_;
}

bool Coordinator::stop_saves() const {
  return is_alone() ? meshtrain::stop_saves() : stop_saves_;
}

double Coordinator::now() const {
  return is_alone() ? now_() : time_;
}

bool Coordinator::take_checkpoint_request() {
  return is_alone() ? meshtrain::take_checkpoint_request()
                    : std::exchange(asked_checkpoint_, false);
}

bool Coordinator::take_report_request() {
  return is_alone() ? meshtrain::take_report_request() : std::exchange(asked_report_, false);
}

void Coordinator::throw_if_stopped(const std::string& done) {
  poll();
  if (stop_signal() != 0) {
    throw_stopped(stop_signal(), done);
  }
}

void Coordinator::progress(const TrainPosition& position, const char* phase) const {
  if (processes_.monitor != nullptr) {
    processes_.monitor->progress(position.step, position.epoch, phase);
  }
}

void Coordinator::loss(int64_t step, const StepRunner& runner) const {
  if (processes_.monitor != nullptr) {
    const double loss = runner.last_loss();  // any NaN is as good as another
    processes_.monitor->loss(step, std::isnan(loss) ? 1 : hash_bytes(&loss, sizeof(loss)));
  }
}

void Coordinator::set_last_checkpoint(int64_t step) const {
  if (processes_.monitor != nullptr && step >= 0) {
    processes_.monitor->set_last_checkpoint(step);
  }
}

std::optional<HeartbeatMonitor::Announcement> Coordinator::announce(const char* what,
                                                                    double limit_seconds) const {
  if (processes_.monitor == nullptr) {
    return std::nullopt;
  }
  return processes_.monitor->announce(what, limit_seconds);
}

uint64_t hash_logs(const Logs& logs) {
  uint64_t hash = 1;
  for (const auto& [name, value] : logs) {
    hash = hash_mix(hash, hash_text(name));
    hash = hash_mix(hash, std::isnan(value) ? 0 : std::bit_cast<uint64_t>(value));
  }
  return hash;
}

}  // namespace meshtrain
