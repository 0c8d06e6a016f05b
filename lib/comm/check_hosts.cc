#include "comm/check_hosts.h"

#include <fmt/format.h>
#include <net/if.h>

#include <cstdio>
#include <memory>

#include "base/diagnostic.h"
#include "base/printable.h"
#include "base/text.h"
#include "comm/child_processes.h"
#include "comm/socket.h"

namespace meshtrain {
namespace {

// What `ssh -G` prints: its settings for the host, a line each. Empty without an ssh.
std::string ssh_settings(const std::string& host) {
  const std::string command = shell_quoted({"ssh", "-G", host}) + " 2>/dev/null </dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
  std::string out;
  char part[4096];
  for (size_t read = 1; pipe != nullptr && read > 0;) {
    read = fread(part, 1, sizeof part, pipe.get());
    out.append(part, read);
  }
  return out;
}

// Whether ssh reaches it by another name, or through another host.
bool is_known_to_ssh(const std::string& host) {
  for (const std::string& line : split(ssh_settings(host), '\n')) {
    const size_t space = line.find(' ');
    const std::string key = to_lower(line.substr(0, space));
    const std::string value = space == std::string::npos ? "" : to_lower(line.substr(space + 1));
    if ((key == "hostname" && value != to_lower(host)) ||
        ((key == "proxyjump" || key == "proxycommand") && value != "none")) {
      return true;
    }
  }
  return false;
}

}  // namespace

void check_hosts(const std::vector<Host>& hosts, const std::string& flag) {
  Diagnostics diagnostics;
  for (const Host& host : hosts) {
    std::string reason;
    if (!is_this_host(host.name) && resolve(host.name, 0, &reason).empty() &&
        !is_known_to_ssh(host.name)) {
      diagnostics
          .error("E140", {},
                 fmt::format("`{}`: host `{}` cannot be found: {}", flag, host.name, reason))
          .help("an address, a name that DNS or /etc/hosts has, or a `Host` of ~/.ssh/config");
    }
  }
  diagnostics.throw_if_errors();
}

void check_interface(const std::string& name) {
  if (name.empty() || if_nametoindex(name.c_str()) != 0) {
    return;
  }
  std::vector<std::string> names;
  struct if_nameindex* const all = if_nameindex();
  for (const struct if_nameindex* each = all; each != nullptr && each->if_index != 0; ++each) {
    names.emplace_back(each->if_name);
  }
  if_freenameindex(all);
  throw ConfigError("E613", {}, fmt::format("interface `{}` not found", printable(name)))
      .note("there are " + join(names, ", "));
}

}  // namespace meshtrain
