// Runs the built meshtrain as a user's shell would.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace meshtrain {

struct Result {
  int exit_code = -1;  // 128 + n when a signal ended it, as a shell says
  std::string out, err;
};

struct Command {
  std::vector<std::string> args;
  std::string program = "";  // looked for on PATH; empty: meshtrain
  std::string folder = ".";  // where it runs
  std::string input;
  std::vector<std::string> environment;  // "NAME=value", beside this process's
  // Where the streams go instead of into the result; "closed" closes them, "pipe without reader"
  // makes every write fail with EPIPE.
  std::string out_to, err_to;
  bool on_terminal = false;  // stdout and stderr are one terminal; all is in `out`
  // Called with what stderr and stdout have so far and the process's id, until it returns true. The
  // pipes are then as small as can be, so that the process never is more than some 8 KB of output
  // ahead of what `watch` has seen, however late that is called.
  std::function<bool(const std::string& out, const std::string& err, int pid)> watch;
};

// Whether `on_terminal` can be had here: some containers mount no /dev/pts.
bool has_terminals();
// Kills the process after `timeout_seconds`, which fails the test: nothing that is well takes as
// long, under sanitizers on a busy machine neither.
Result run(const Command& command, int timeout_seconds = 300);

// meshtrain ARGS... in `folder`.
inline Result meshtrain(std::vector<std::string> args, const std::string& folder) {
  Command command;
  command.args = std::move(args);
  command.folder = folder;
  return run(command);
}

using TemporaryFolder = test::TempFolder;

std::vector<std::string> lines_of(const std::string& text);
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace meshtrain
