#include "comm/network.h"

#include <ifaddrs.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "base/diagnostic.h"
#include "base/printable.h"
#include "base/text.h"

namespace meshtrain {

std::vector<std::string> network_interfaces() {
  ifaddrs* list = nullptr;
  std::vector<std::string> names;
  if (::getifaddrs(&list) != 0) {
    return names;
  }
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) {
      names.emplace_back(entry->ifa_name);
    }
  }
  ::freeifaddrs(list);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string chosen_interface() {
  const char* value = std::getenv("MESHTRAIN_NET_INTERFACE");
  const std::string name = value == nullptr ? "" : value;
  const std::vector<std::string> known = network_interfaces();
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) {
    return name;
  }
  throw ConfigError(
      "E613", {},
      fmt::format("there is no network interface `{}` with an address here", printable(name)))
      .note(fmt::format("there are: {}", join(known, ", ")))
      .help("set MESHTRAIN_NET_INTERFACE to one of them, or unset it");
}

}  // namespace meshtrain
