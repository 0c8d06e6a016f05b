// The watchdog: finds ranks that are lost, that hang or that diverge, from the reports of all
// ranks. Pure functions; the heartbeat monitor of rank 0 calls them every second.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/monitor_frames.h"

namespace meshtrain {

// The state of a rank as rank 0 has it.
struct RankView {
  std::string host;
  int64_t pid = 0;
  RankReport report;
  bool reported = false;  // at least once
  double silent_seconds = 0;
  bool ended = false;      // its link was closed
  bool lost_host = false;  // ... by the network
  bool malformed = false;  // it sent an invalid frame
};

// Ranks that wait in the monitor itself, for texts under a key or for the end.
struct Waiting {
  std::string what;  // "`checkpoint 500`"
  double seconds = 0, limit = 0;
  std::vector<bool> came;  // by rank
};

struct Limits {
  double silence = 10, collective = 120;
};

struct Verdict {
  std::string code;        // "E601"
  std::vector<int> ranks;  // the cause; empty: no particular rank
  std::string message;     // one line
  std::vector<std::string> notes;
};

std::optional<Verdict> judge(const std::vector<RankView>& ranks,
                             const std::vector<Waiting>& waiting, const Limits& limits);
// Two verdicts that a rank reaches without rank 0.
Verdict ended_verdict(const std::vector<RankView>& ranks, int rank);
Verdict silent_verdict(const std::vector<RankView>& ranks, int rank);
// E601: `rank` itself was paused for so long that the others have exited.
Verdict paused_verdict(const std::vector<RankView>& ranks, int rank, double seconds);
// E604: at `step`, `rank` has another loss than rank 0.
Verdict different_loss(const std::vector<RankView>& ranks, int rank, int64_t step);

// "rank 5 on host h2 (pid 20407)"
std::string describe(const RankView& view, int rank);

// Formats the verdict. `checkpoint` is the step of the newest complete checkpoint (0: none), `step`
// the last completed step, `resume` the command that resumes.
std::string failure_text(const Verdict& verdict, int64_t checkpoint, int64_t step,
                         const std::string& resume);

// A rank that failed, and its message.
struct RankFailure {
  int rank = 0, exit_code = 0;
  std::string text;
};
// Returns the texts of `failures`, sorted by rank, each text once with its ranks.
std::string failures_text(const std::vector<RankFailure>& failures,
                          const std::vector<RankView>& ranks, int64_t checkpoint);
// Returns E601 when the failed ranks merely lost another rank, which has exited: the exit is the
// cause, not how the ranks noticed it.
std::optional<Verdict> lost_rank(const std::vector<RankFailure>& failures,
                                 const std::vector<RankView>& ranks);
// Returns the exit code of all ranks: that of the first rank that did not merely lose another one.
int exit_code_of(const std::vector<RankFailure>& failures);

}  // namespace meshtrain
