// Whether the hosts of `meshtrain launch` can be found, before anything is started on them.
#pragma once

#include <string>
#include <vector>

#include "comm/hosts.h"

namespace meshtrain {

// Throws ConfigError E140 (exit 2) with each host that neither the system nor the configuration of
// ssh knows; `flag` is what named them: "--hosts". For hosts that ssh is to reach: another agent,
// and Slurm, may know more.
void check_hosts(const std::vector<Host>& hosts, const std::string& flag);

}  // namespace meshtrain
