// The thread of a HeartbeatMonitor: its loop over the links.
#pragma once

#include <pthread.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/heartbeat_monitor.h"
#include "comm/monitor_frames.h"
#include "comm/monitor_state.h"
#include "comm/text_gather.h"
#include "comm/watchdog.h"

namespace meshtrain {

class MonitorThread {
 public:
  // `links` by rank: of rank 0 to all others, of the others to rank 0 only. `hosts` are host_id()s.
  MonitorThread(MonitorState& state, const Activity& activity, std::atomic<bool>& aborting,
                const HeartbeatOptions& options, int rank, std::vector<RankView> views,
                std::vector<std::string> hosts, std::vector<Link> links, std::string run_name);
  // Returns when all ranks have finished, or after the state's `stop`; or ends the process.
  void run();

 private:
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

  void set_done(int rank);
  void set_finished();

  void add_failure(RankFailure failure);
  void judge_failures();
  void rank_zero_lost(const Verdict& verdict, bool closed);
  void stop_run(const Verdict& verdict);
  std::string own_pause_text();
  void start_last_resort();
  void start_leaving(int exit_code, const std::vector<int>& stuck = {});
  void run_hooks();
  void continue_leaving();

  MonitorState& state_;
  const Activity& activity_;
  std::atomic<bool>& aborting_;
  const HeartbeatOptions& options_;
  const int rank_;
  const double interval_;  // between reports
  std::vector<RankView> views_;
  const std::vector<std::string> hosts_;
  std::vector<Link> links_;
  std::vector<double> heard_;  // by rank: when something came last
  const std::string run_name_;
  const pthread_t main_thread_ = ::pthread_self();  // which made the monitor
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

  TextGather gather_;
  std::vector<bool> done_;
  double first_done_ = 0;
  bool finished_ = false;  // then only until the links are closed
  double finished_at_ = 0;

  std::vector<RankFailure> failures_;  // of rank 0
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
