// What must be alike in all processes of a run.
#pragma once

#include <string_view>
#include <vector>

#include "cli.h"
#include "comm/handshake.h"

namespace meshtrain {

// The build, the verb with its flags, the resolved config, the kind of devices. Throws ConfigError
// with every problem of the config, and of devices that do not split over so many processes.
std::vector<Fact> run_facts(const Arguments& arguments, std::string_view verb, int processes);

// Whether the config that the verb reads asks for GPUs, or `auto` finds one here; true where the
// config is elsewhere.
bool wants_gpu(const Arguments& arguments, std::string_view verb, int processes);

}  // namespace meshtrain
