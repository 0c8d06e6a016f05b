// The hosts of a run, and the placement of its ranks on them.
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

// `hosts`: by rank, a name and after a newline what tells hosts of one name apart. Empty where the
// ranks of each host follow each other; else which host has which, a few of them: "a has ranks 0,
// 2, b has ranks 1, 3".
std::string scattered_hosts(const std::vector<std::string>& hosts);

// Whether `rank` says that rank 0 is lost; `hosts` as above, `closed`: its process has ended, its
// host may be there. Nobody knows who else is left. Where only the process has ended, its host is
// there as a rule, and the ranks on it; where it is silent, its host may be gone. So one on the
// host of the first rank that may be there says it, and when the process has ended, one on another
// host, too.
bool speaks_for_rank_zero(const std::vector<std::string>& hosts, int rank, bool closed);

}  // namespace meshtrain
