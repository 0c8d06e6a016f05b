#include "comm/hosts.h"

#include <algorithm>
#include <optional>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/host.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "comm/rendezvous.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxHostFile = uint64_t{1} << 20;
constexpr int kMostSlots = 65536;         // of a host
constexpr int kMostSlotsOfAll = 1 << 20;  // of all

struct Origin {
  SourceLoc loc;  // none on the command line
  std::string where;
};

[[noreturn]] void refuse(const Origin& origin, const std::string& message) {
  throw ConfigError("E140", origin.loc, origin.loc ? message : origin.where + ": " + message)
      .help(origin.loc ? "a line for each host: `node1 slots=4`"
                       : "names and processes: --hosts node1:4,node2:4");
}

// A name or an address, and nothing that a program could take for an option.
bool is_host_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";
  return !name.empty() && name.size() <= 253 && name[0] != '-' &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

int parse_slots(std::string_view text, const Origin& origin, std::string_view entry) {
  const auto slots = parse_number<int>(text);
  if (!slots || *slots < 1 || *slots > kMostSlots) {
    refuse(origin, fmt::format("`{}` in `{}` is no number of processes from 1 to {}",
                               printable(text), printable(entry), kMostSlots));
  }
  return *slots;
}

// "node1", "node1:4", "[fe80::1]:4".
Host parse_host(std::string_view entry, const Origin& origin) {
  Host out;
  std::string_view name = entry;
  if (starts_with(entry, "[")) {
    const size_t end = entry.find(']');
    name = entry.substr(1, end == std::string_view::npos ? end : end - 1);
    const std::string_view rest = end == std::string_view::npos ? "]" : entry.substr(end + 1);
    if (!rest.empty() && rest[0] != ':') {
      refuse(origin, fmt::format("`{}` is no address in brackets", printable(entry)));
    }
    out.slots = rest.empty() ? 1 : parse_slots(rest.substr(1), origin, entry);
  } else if (const size_t colon = entry.find(':'); colon != std::string_view::npos) {
    name = entry.substr(0, colon);
    out.slots = parse_slots(entry.substr(colon + 1), origin, entry);
  }
  out.name = name;
  if (!is_host_name(name)) {
    refuse(origin, name.empty() ? "there is a host without a name"
                                : fmt::format("`{}` is no name of a host", printable(name)));
  }
  return out;
}

void add(Host host, const Origin& origin, std::vector<Host>& to) {
  if (total_slots(to) + host.slots > kMostSlotsOfAll) {
    refuse(origin, fmt::format("with host `{}` there are more than {} processes", host.name,
                               kMostSlotsOfAll));
  }
  for (const Host& other : to) {
    if (other.name == host.name) {
      refuse(origin, fmt::format("host `{}` is there twice; give it more processes instead: {}:{}",
                                 host.name, host.name, host.slots + other.slots));
    }
  }
  to.push_back(std::move(host));
}

void read_line(std::string_view line, const Origin& origin, std::vector<Host>& to) {
  std::optional<Host> host;
  while (!(line = trim(line)).empty()) {
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    line.remove_prefix(word.size());
    if (!host) {
      host = parse_host(word, origin);
    } else if (starts_with(word, "slots=")) {
      host->slots = parse_slots(word.substr(word.find('=') + 1), origin, word);
    } else if (starts_with(word, "max_slots=") || starts_with(word, "max-slots=")) {
      parse_slots(word.substr(word.find('=') + 1), origin, word);  // never reached: slots are kept
    } else {
      refuse(origin, fmt::format("`{}` after host `{}`", printable(word), host->name));
    }
  }
  if (host) {
    add(*host, origin, to);
  }
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& text) {
  const Origin origin{{}, fmt::format("--hosts {}", printable(text))};
  std::vector<Host> out;
  for (const std::string& entry : split(text, ',')) {
    add(parse_host(trim(entry), origin), origin, out);
  }
  return out;
}

std::vector<Host> read_host_file(const std::string& path) {
  auto file = std::make_shared<SourceFile>();
  file->name = path;
  file->text = read_file(path, kMaxHostFile);
  std::vector<Host> out;
  int number = 0;
  for (const std::string& line : split(file->text, '\n')) {
    const std::string_view text = trim(std::string_view(line).substr(0, line.find('#')));
    const Origin origin{{file, ++number, 1, std::max(1, static_cast<int>(text.size()))}, path};
    read_line(text, origin, out);
  }
  if (out.empty()) {
    refuse({{}, path}, "no host in it");
  }
  return out;
}

int total_slots(const std::vector<Host>& hosts) {
  int total = 0;
  for (const Host& host : hosts) {
    total += host.slots;
  }
  return total;
}

std::vector<Host> take_slots(std::vector<Host> hosts, int processes) {
  if (processes > total_slots(hosts)) {
    throw ConfigError(
        "E140", {},
        fmt::format("--processes {}, but the hosts take {} processes; give them more: {}:{}",
                    processes, total_slots(hosts), hosts[0].name,
                    hosts[0].slots + processes - total_slots(hosts)));
  }
  size_t used = 0;
  for (int left = processes; left > 0; left -= hosts[used++].slots) {
    hosts[used].slots = std::min(hosts[used].slots, left);
  }
  hosts.resize(used);
  return hosts;
}

bool is_this_host(const std::string& name) {
  const std::string host = host_name();
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == host ||
         name == host.substr(0, host.find('.')) || name.substr(0, name.find('.')) == host;
}

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

bool speaks_for_rank_zero(const std::vector<std::string>& hosts, int rank, bool closed) {
  const std::string& mine = hosts[static_cast<size_t>(rank)];
  const auto other = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const std::string& host) { return host != hosts[0]; });
  const bool on_other = other != hosts.end() && mine == *other;
  return closed || other == hosts.end() ? mine == hosts[1] || on_other : on_other;
}

}  // namespace meshtrain
