// Programs that this process starts, watches and takes with it: none of them outlives it.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace meshtrain {

struct ChildCommand {
  std::string name;                // "rank 3", for messages
  std::vector<std::string> words;  // the program, looked for on PATH, and its arguments
  std::vector<std::pair<std::string, std::string>> environment;  // beside this process's own
  // Its standard input is a pipe with this text, open as long as this process wants it to run; a
  // signal for it becomes a line "signal 10" there. Without one the input is empty.
  std::optional<std::string> input = std::nullopt;
  // What it gets when this process dies.
  int death_signal = 9;
};

struct ChildrenOptions {
  std::function<void(const std::string&)> say;  // a line for people
  // Where lines "signal 10" come from; when it ends, the children are to end. -1: nowhere.
  int orders = -1;
  // Which signal a child gets for one that this process got; 0: none.
  std::function<int(int)> translate = nullptr;
  // Passed on although this process ignores them.
  std::vector<int> even_if_ignored = {};
};

struct ChildrenEnd {
  // Of the child that was first to end with another code than 0; 128 + N when signal N killed it.
  int exit_code = 0;
  std::string name;       // of that child
  std::set<int> signals;  // that were passed on, as the children got them
};

// Starts all and returns when all have ended. Signals (INT, TERM, HUP, QUIT, USR1, USR2) are passed
// on, except those that this process ignores (nohup, a shell's `&`). Once one has failed (not:
// stopped, 75), the others have three seconds to end by themselves, then get SIGTERM, and two
// seconds later SIGKILL. Each is the first of a process group, so that a terminal's signals come
// once. Throws RuntimeFailure (exit 8) when one cannot be started, the others ended.
ChildrenEnd run_children(const std::vector<ChildCommand>& commands, const ChildrenOptions& options);

// "ssh 'a b'": as a shell reads it back.
std::string shell_quoted(const std::vector<std::string>& words);

}  // namespace meshtrain
