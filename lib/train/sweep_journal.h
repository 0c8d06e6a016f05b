// The journal of a sweep, sweep.jsonl in its folder: a JSON object a line, which together are its
// whole state.
//
//   {"event":"sweep","version":...,"folder":...,"config":[...],"overrides":[...],"method":"grid",
//    "parallel":2,"members":4,"time":...}         a start of the sweep, the first or a resumed one
//   {"event":"member","member":1,"run":"001","values":{"fit.epochs":"2",...}}
//   {"event":"start","member":1,"pid":...,"time":...}
//   {"event":"hopeless","member":1,"epoch":3,"monitor":"loss","value":...,"median":...}
//   {"event":"end","member":1,"exit_code":0,"time":...,"message":...}
//   {"event":"stop","signal":2,"time":...}        the sweep was asked to stop
//
// A member runs in the folder "001" beside it; what the member printed is in "001.log". A start
// without an end was killed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/line_log.h"
#include "train/sweep_plan.h"

namespace meshtrain {

inline constexpr const char* kJournalName = "sweep.jsonl";

struct SweepMember {
  int64_t number = 0;  // from 1
  std::string run;     // the name of its folder
  SweepValues values;
  int64_t starts = 0;
  std::optional<int> exit_code;  // of its last start
  std::string message;           // why it ended so
  bool is_hopeless = false;      // ended by the median rule

  // True when nothing is left to do, unless failed members shall be tried again.
  bool is_finished() const { return exit_code == 0 || is_hopeless; }
  bool is_failed() const;  // ended by itself, with an error
};

struct SweepState {
  LoadOptions base;    // of the first start
  std::string folder;  // where that ran: relative paths of configs are from there
  std::string method;
  int64_t parallel = 1;  // of the last start
  std::optional<MedianRule> early_stop;
  int64_t num_members = 0;  // of the last start: fewer are listed when it was stopped meanwhile
  std::vector<SweepMember> members;
};

bool is_sweep_dir(const std::string& dir);
// Throws ConfigError E400 for a folder without a journal, FileError when it cannot be read.
SweepState read_journal(const std::string& dir);

// "finished", "stopped", "hopeless", "failed with exit code 4", "not started", "interrupted".
std::string member_state(const SweepMember& member);

class SweepJournal {
 public:
  // Creates the file in `dir`, or appends to it; a last line that is not whole is removed.
  explicit SweepJournal(const std::string& dir);

  // Appends "event" and the members of `json`, an object's text, and syncs it to the disk.
  void write(std::string_view event, std::string_view json);
  void set_echo(std::function<void(std::string_view line)> echo) { echo_ = std::move(echo); }

 private:
  std::unique_ptr<LineLog> log_;
  std::function<void(std::string_view)> echo_;
};

}  // namespace meshtrain
