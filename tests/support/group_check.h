// What every ProcessGroup must do, whatever it is made of.
#pragma once

#include <string>
#include <vector>

#include "comm/process_group.h"

namespace meshtrain::test {

// Collective. What went wrong on this rank, one line each.
std::vector<std::string> check_group(ProcessGroup& group);
// Messages that are longer than one send takes.
std::vector<std::string> check_long_transfers(ProcessGroup& group);

}  // namespace meshtrain::test
