// How the ranks of a run lie on its hosts.
#pragma once

#include <string>
#include <vector>

namespace meshtrain {

// `hosts`: by rank, a name and after a newline what tells hosts of one name apart. Empty where the
// ranks of each host follow each other; else which host has which, a few of them: "a has ranks 0,
// 2, b has ranks 1, 3".
std::string scattered_hosts(const std::vector<std::string>& hosts);

}  // namespace meshtrain
