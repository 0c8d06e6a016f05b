// The hosts that a run is started on.
#pragma once

#include <string>
#include <vector>

namespace meshtrain {

struct Host {
  std::string name;
  int slots = 1;  // processes that it takes
};

// "a:4,b:4", "a,b", "[::1]:2". Throws ConfigError E140 (exit 2) for what names no host, a number of
// processes below 1, a host twice.
std::vector<Host> parse_hosts(const std::string& text);

// A line for each host: "a slots=4" as Open MPI has it, or "a:4", or "a"; # begins a comment.
// Throws ConfigError E140 with the line, FileError when it cannot be read.
std::vector<Host> read_host_file(const std::string& path);

int total_slots(const std::vector<Host>& hosts);

// The first `processes` slots: without the hosts that get none. Throws ConfigError E140 when there
// are fewer.
std::vector<Host> take_slots(std::vector<Host> hosts, int processes);

// Whether it is this machine, by its name alone.
bool is_this_host(const std::string& name);

}  // namespace meshtrain
