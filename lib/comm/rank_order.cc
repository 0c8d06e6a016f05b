#include "comm/rank_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/meeting.h"

namespace meshtrain {

std::string scattered_hosts(const std::vector<std::string>& hosts) {
  constexpr size_t kMostNamed = 4;
  std::vector<std::pair<std::string, std::vector<int>>> ranks;  // by host, as they come
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    auto host = std::find_if(ranks.begin(), ranks.end(),
                             [&](const auto& entry) { return entry.first == hosts[rank]; });
    if (host == ranks.end()) {
      host = ranks.insert(host, {hosts[rank], {}});
    }
    host->second.push_back(static_cast<int>(rank));
  }
  const bool follow = std::all_of(ranks.begin(), ranks.end(), [](const auto& entry) {
    const std::vector<int>& own = entry.second;
    return own.back() - own.front() + 1 == static_cast<int>(own.size());
  });
  if (follow) {
    return "";
  }
  std::string out;
  for (size_t h = 0; h < std::min(ranks.size(), kMostNamed); ++h) {
    const auto& [host, own] = ranks[h];
    out += fmt::format("{}{} has {}", out.empty() ? "" : ", ", host.substr(0, host.find('\n')),
                       rank_list(own));
  }
  return ranks.size() > kMostNamed ? out + ", and so on" : out;
}

}  // namespace meshtrain
