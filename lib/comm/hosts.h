// The hosts of a run, and the placement of its ranks on them.
#pragma once

#include <string>
#include <vector>

namespace meshtrain {

struct Host {
  std::string name;
  int slots = 1;  // the most processes on it
};

// "a:4,b:4", "a,b", "[::1]:2". Throws ConfigError E140 (exit 2) for an invalid host name, a number
// of processes below 1, or a repeated host.
std::vector<Host> parse_hosts(const std::string& text);

// A line for each host: "a slots=4" as Open MPI has it, or "a:4", or "a"; # begins a comment.
// Throws ConfigError E140 with the line, FileError when it cannot be read.
std::vector<Host> read_host_file(const std::string& path);

int total_slots(const std::vector<Host>& hosts);

// Returns the first `processes` slots, without hosts that get none. Throws ConfigError E140 when
// there are fewer.
std::vector<Host> take_slots(std::vector<Host> hosts, int processes);

// Returns whether the name is that of this machine.
bool is_this_host(const std::string& name);

// `hosts`: by rank, a name and, after a newline, what distinguishes hosts of one name. Empty where
// the ranks of each host follow each other; else which host has which, a few of them: "a has ranks
// 0, 2, b has ranks 1, 3".
std::string scattered_hosts(const std::vector<std::string>& hosts);

// Returns whether `rank` must report that rank 0 is lost. `hosts` as above; `closed`: the process
// of rank 0 has ended, but its host may be up. No rank knows which others are left. When only the
// process has ended, its host and the ranks on it usually remain; when the link is silent, the host
// may be gone. So one rank on the first host that may be up reports and, when the process has
// ended, one on another host, too.
bool speaks_for_rank_zero(const std::vector<std::string>& hosts, int rank, bool closed);

}  // namespace meshtrain
