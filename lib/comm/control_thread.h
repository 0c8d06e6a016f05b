// The thread of a ControlChannel: its loop over the links, and what it shares with the threads that
// call the channel.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/control_channel.h"
#include "comm/control_message.h"
#include "comm/process_end.h"
#include "comm/watchdog.h"

namespace meshtrain {

// Written by callers and by the thread; `mutex` guards all but what is atomic.
struct ControlDesk {
  struct GatherRequest {
    std::string key, text;
    double limit = 0;
    bool to_first = false;
  };
  struct Failure {
    int rank = 0, exit_code = 0;
    std::string text;
  };
  struct Announced {
    uint64_t id = 0;
    std::string what;
    double since = 0, limit = 0;
  };
  struct Hook {
    uint64_t id = 0;
    std::function<void()> run;
  };
  // The hashes of the newest losses, of rank 0.
  struct Loss {
    std::atomic<int64_t> begun{0}, done{0};
    std::atomic<uint64_t> hash{0};
  };

  ControlDesk();
  ~ControlDesk();
  void wake() const;  // the thread

  std::mutex mutex;
  std::condition_variable changed;
  uint64_t last_id = 0;
  std::vector<GatherRequest> gathers;  // for the thread
  std::optional<Failure> failure;      // for the thread
  bool finish = false, stop = false;   // for the thread
  std::vector<Announced> announcements;
  std::map<std::string, std::deque<std::vector<std::string>>> gathered;  // by key, for callers
  bool finished = false;    // all ranks have called finish()
  std::optional<int> left;  // with this exit code, where leaving returns (tests)
  KillTimer last_resort;

  std::mutex hooks_mutex;  // held while hooks run
  std::vector<Hook> hooks;

  std::atomic<int64_t> last_checkpoint{0};
  std::array<Loss, 1024> losses;
  int wake_fd = -1;
};

class ControlThread {
 public:
  // `links` by rank: of rank 0 to all others, of the others to rank 0 only. `hosts` are host_id()s.
  ControlThread(ControlDesk& desk, const Activity& activity, std::atomic<bool>& aborting,
                const ControlOptions& options, int rank, std::vector<RankView> views,
                std::vector<std::string> hosts, std::vector<Link> links, std::string run_name);
  // Returns when all ranks have finished, or after the desk's `stop`; or ends the process.
  void run();

 private:
  // Of rank 0: the texts under a key, by rank, oldest first.
  struct Gather {
    std::vector<std::deque<std::string>> texts;
    double since = 0, limit = 0;
    bool to_first = false;
  };

  bool is_first() const { return rank_ == 0; }
  int size() const { return static_cast<int>(views_.size()); }
  RankView& view(int rank) { return views_[static_cast<size_t>(rank)]; }
  Link& link(int rank) { return links_[static_cast<size_t>(rank)]; }
  bool are_all_closed() const;  // the links

  void wait();
  void notice_pause();
  void take_requests();
  void read_links();
  void read_link(int rank);
  void link_ended(int rank);
  void handle(int rank, FrameKind kind, const std::string& payload);
  void handle_at_first(int rank, FrameKind kind, FrameReader& frame);
  void handle_at_others(FrameKind kind, FrameReader& frame);
  void send_to_all(const std::string& frame);

  void tick();
  RankReport own_report();
  void judge_all();
  void check_parent();
  void check_loss(int rank);
  std::vector<Waiting> waiting() const;

  void start_gather(const ControlDesk::GatherRequest& request);
  void add_text(int rank, ControlDesk::GatherRequest given);
  void deliver(const std::string& key, std::vector<std::string> texts);
  void set_done(int rank);
  void set_finished();

  void add_failure(ControlDesk::Failure failure);
  void settle_failures();
  void rank_zero_lost(const Verdict& verdict, bool closed);
  bool prints_for_rank_zero(bool closed) const;
  void stop_run(const Verdict& verdict);
  std::string own_pause_text();
  void start_last_resort();
  void start_leaving(int exit_code, const std::vector<int>& stuck = {});
  void run_hooks();
  void continue_leaving();

  ControlDesk& desk_;
  const Activity& activity_;
  std::atomic<bool>& aborting_;
  const ControlOptions& options_;
  const int rank_;
  const double interval_;  // between reports
  std::vector<RankView> views_;
  const std::vector<std::string> hosts_;
  std::vector<Link> links_;
  std::vector<double> heard_;  // by rank: when something came last
  const std::string run_name_;
  const pthread_t main_thread_ = ::pthread_self();  // which made the channel
  const std::string parent_name_;
  bool parent_ended_ = false;
  std::optional<Verdict> mismatch_;  // E603, to be judged again

  double now_ = 0, last_turn_ = 0, next_tick_ = 0;
  double paused_ = 0, paused_at_ = 0;  // this process did not run for so long, until then
  uint64_t last_entries_ = 0;
  bool last_inside_ = false;
  double changed_at_ = 0;
  uint64_t last_changes_ = 0;
  double alive_at_ = 0;  // when this rank did or announced something last

  std::map<std::string, Gather> gathers_;  // of rank 0
  // Texts of which not all parts have come: of rank 0 by rank and key, of the others by key.
  std::map<std::pair<int, std::string>, std::string> parts_;
  std::map<std::string, std::vector<std::string>> incoming_;
  std::vector<bool> done_;
  double first_done_ = 0;
  bool finished_ = false;  // then only until the links are closed
  double finished_at_ = 0;

  std::vector<ControlDesk::Failure> failures_;  // of rank 0
  double failures_until_ = 0;

  std::optional<int> leaving_;  // with this exit code
  double leaving_since_ = 0;
  bool shows_stack_ = false;
  bool speaks_for_rank_zero_ = false;
  std::atomic<bool> hooks_done_{false};
  std::jthread hooks_thread_;
  bool over_ = false;
};

}  // namespace meshtrain
