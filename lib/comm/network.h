// Which of a host's networks processes talk over.
#pragma once

#include <string>
#include <vector>

namespace meshtrain {

// Names of the interfaces of this host that have an address, sorted: "eth0", "lo".
std::vector<std::string> network_interfaces();

// $MESHTRAIN_NET_INTERFACE, the one interface that control channel, MPI and NCCL are to use; empty
// where it is not set: each of them chooses. Throws ConfigError E613 (exit 8), which lists those
// that there are, when there is no such interface here.
std::string chosen_interface();

}  // namespace meshtrain
