// A run on several GPUs that no launcher started: a process for each is started first.
#pragma once

#include "cli.h"
#include "config/config.h"

namespace meshtrain {

// How many processes the verb must start to do its work (run_own_processes), one for each GPU that
// `devices` of the config asks for; 1: none, it does the work itself. Throws ConfigError E620 where
// there are no such GPUs.
int gpu_processes(const Arguments& arguments, const Config& config);

}  // namespace meshtrain
