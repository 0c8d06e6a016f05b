// This host, this process and its clock, as the system reports them.
#pragma once

#include <string>

namespace meshtrain {

// Seconds of a clock that never goes back, from an arbitrary beginning.
double steady_seconds();

// "node7".
std::string host_name();
// Changes when the machine starts; the same in all containers of a machine. Empty where the system
// does not say.
std::string boot_id();
// Distinguishes hosts of any name: the boot of the machine, its name and the network namespace.
// Processes with the same id reach each other by loopback.
std::string host_id();

// The path of this program's file, without links; empty where the system does not say.
std::string program_path();
// What starts this program again on this host, while this process lives: not the newer build that
// has taken the place of its file.
std::string program_to_start();

}  // namespace meshtrain
