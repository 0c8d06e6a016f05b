// Child processes that this process starts and watches; none outlives it. The processes of a run on
// one machine are started in this way, without a launcher.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace meshtrain {

using Environment = std::vector<std::pair<std::string, std::string>>;

struct ChildCommand {
  std::string name;                // "rank 3", for messages
  std::vector<std::string> words;  // the program, searched on PATH, and its arguments
  Environment environment;         // beside this process's own
  // The signal that a child gets when this process dies.
  int death_signal = 9;
  // A descriptor that it gets under the same number, and that is closed here then; -1: none.
  int inherited = -1;
  std::string output = {};     // a file that gets stdout and stderr, at its end; "": this process's
  std::vector<int> cpus = {};  // that it may use; empty: all of this process
  // SIGUSR1, SIGUSR2 and SIGHUP, which would end it, wait until catch_run_signals() (signals.h).
  bool holds_signals = false;
};

struct ChildrenOptions {
  std::function<void(const std::string&)> say;  // a line for people
  // Maps a received signal to the signal for children; 0: none.
  std::function<int(int)> translate = nullptr;
  // Signals that are passed on although this process ignores them.
  std::vector<int> even_if_ignored = {};
};

struct ChildrenEnd {
  // The code of the first child that failed; 128 + N when signal N killed it.
  int exit_code = 0;
  std::string name;       // of that child
  std::set<int> signals;  // passed on, as the children received them
};

// Starts all, with an empty standard input, and returns when all have ended. Signals (INT, TERM,
// HUP, QUIT, USR1, USR2) are passed on, except those that this process ignores (nohup, a shell's
// `&`). Once one has failed (not: stopped, 75), the others have three seconds to end by themselves,
// then get SIGTERM, and two seconds later SIGKILL. Each child leads a process group, so that a
// terminal's signals arrive once. Throws RuntimeFailure (exit 8) when one cannot be started; the
// others are ended.
ChildrenEnd run_children(const std::vector<ChildCommand>& commands, const ChildrenOptions& options);

// `count` processes of `words` on this machine, a rank each. They get what torchrun gives: RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; and MESHTRAIN_TOKEN, 64
// hexadecimal digits that only they know. MESHTRAIN_SOCKET is rank 0's open socket of that port, so
// that no other program can have it, and empty for the others. The end is that of run_children(),
// but 8 where a signal ended one of several.
ChildrenEnd run_processes(const std::vector<std::string>& words, int count,
                          const Environment& environment, const ChildrenOptions& options);

// "ssh 'a b'": as a shell reads it back.
std::string shell_quoted(const std::vector<std::string>& words);

}  // namespace meshtrain
