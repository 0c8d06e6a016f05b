// Runs whose processes this one starts: again when one of them was lost, from the newest
// checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/child_processes.h"
#include "comm/process_group.h"
#include "config/config.h"

namespace meshtrain {

// What the processes of a run are started with.
struct LaunchRequest {
  std::vector<std::string> words;  // after the program's name; flags as "--name=value"
  int64_t restarts = 0;            // at most
  std::string run_dir, resume;     // what -o and --resume say
};

// Starts the processes with these words after the program's name and waits for their end.
using Attempt =
    std::function<ChildrenEnd(const std::vector<std::string>& words, const Environment&)>;

// One attempt with request.words, and up to request.restarts more after exit code 8, 137 or 139,
// each with one line on stderr. Not after a signal that asked to stop, and not when no checkpoint
// was added since the last start. run.max_time is for all of them together. Returns the last exit
// code.
int run_with_restarts(const LaunchRequest& request, const Config& config, const Attempt& attempt);

// The work of this process (`own`) done by processes of this program on this machine, restarts
// included, where `devices` of the config asks for several GPUs, one for each, or where restarts
// are wanted; the exit code. None where this process does the work itself. Throws ConfigError E620
// where there are no such GPUs.
std::optional<int> run_own_processes(const LaunchRequest& request, const Config& config,
                                     const Processes& own);

// The words but these flags, each with its value: "--resume=auto".
std::vector<std::string> without_flags(std::vector<std::string> words,
                                       std::initializer_list<std::string_view> flags);

// Waits while a process holds the lock of the run in this folder, at most 30 s.
void wait_for_lock(const std::string& run);

// A line for people, on stderr.
void say(const std::string& text);

// Whether the words name standard input as a config, which several processes cannot share: E140.
void check_files_can_be_shared(const std::vector<std::string>& words);

}  // namespace meshtrain
