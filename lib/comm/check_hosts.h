// Whether the hosts of `meshtrain launch` and its interface can be found, before anything is
// started on them.
#pragma once

#include <string>
#include <vector>

#include "comm/hosts.h"

namespace meshtrain {

// Throws ConfigError E140 (exit 2) with each host that neither the system nor the configuration of
// ssh knows; `flag` is what named them: "--hosts". For hosts that ssh is to reach: another agent,
// and Slurm, may know more.
void check_hosts(const std::vector<Host>& hosts, const std::string& flag);

// Throws ConfigError E613 with those that there are, when this host has no such network interface.
void check_interface(const std::string& name);

}  // namespace meshtrain
