// Starting the processes of a run by ourselves: no launcher of MPI has a part in it. What each gets
// is what torchrun gives: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
// and MESHTRAIN_TOKEN, 32 hexadecimal digits that only they know.
#pragma once

#include "comm/child_processes.h"
#include "comm/hosts.h"

namespace meshtrain {

using Environment = std::vector<std::pair<std::string, std::string>>;

// `count` processes of `words` on this machine. The end is that of run_children(), but 8 where one
// of several was ended by a signal.
ChildrenEnd run_processes(const std::vector<std::string>& words, int count,
                          const Environment& environment, const ChildrenOptions& options);

// As many as `hosts` have slots. On other machines `agent`, such as {"ssh"}, followed by the host
// and a command for its shell starts this program, which must be at the same path there and see the
// same current folder. MASTER_ADDR is the first host. Throws ConfigError E614 (exit 8) when a host
// has no such program, E140 (exit 2) when something for other hosts is no UTF-8.
ChildrenEnd run_on_hosts(const std::vector<std::string>& words, const std::vector<Host>& hosts,
                         const std::vector<std::string>& agent, const Environment& environment,
                         const ChildrenOptions& options);

// What the agent starts: reads from standard input which processes to start, and the signals for
// them; ends them when it ends. Returns the exit code.
int serve_processes(const ChildrenOptions& options);
extern const char* const kServeVerb;

// Of the program that runs.
std::string own_program();
// A port of this machine that nobody listens at.
int free_port();

}  // namespace meshtrain
