#include "comm/mpirun.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/diagnostic.h"
#include "base/host.h"
#include "base/text.h"
#include "comm/mpi/load.h"

extern char** environ;

namespace meshtrain {
namespace {

// What processes on other hosts should have of this one's environment, then `environment`.
Environment exported(const Environment& environment) {
  Environment out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    for (const std::string_view prefix : {"MESHTRAIN_", "OMP_", "NCCL_"}) {
      if (starts_with(text, prefix) && !starts_with(text, "NCCL_HOSTID=")) {  // each has its own
        const size_t equals = text.find('=');
        out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
      }
    }
  }
  for (const auto& [name, value] : environment) {
    std::erase_if(out, [&name = name](const auto& entry) { return entry.first == name; });
    out.emplace_back(name, value);
  }
  return out;
}

std::string find_mpirun() {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
    const std::string file = (folder.empty() ? "." : folder) + "/mpirun";
    if (access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  throw ConfigError("E614", {}, "there is no `mpirun` on PATH, which starts the processes")
      .help("apt-get install openmpi-bin (Open MPI), on every host")
      .help("with Slurm: srun --mpi=pmix meshtrain train ...");
}

// Settings for Open MPI that the user has not set.
Environment settings(const MpirunOptions& options) {
  int most = 1;
  for (const Host& host : options.hosts) {
    most = std::max(most, host.slots);
  }
  Environment out =
      mpi_settings(most, static_cast<int>(std::thread::hardware_concurrency()), options.interface);
  if (!options.interface.empty()) {
    out.emplace_back("MESHTRAIN_NET_INTERFACE", options.interface);
  }
  std::erase_if(out, [](const auto& setting) { return std::getenv(setting.first.c_str()); });
  return out;
}

std::vector<std::string> mpirun_words(const MpirunOptions& options, const Environment& environment,
                                      const std::vector<std::string>& words) {
  const std::vector<Host>& hosts = options.hosts;
  std::vector<std::string> out = {find_mpirun()};
  const auto add = [&](std::initializer_list<std::string> more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  if (geteuid() == 0) {
    add({"--allow-run-as-root"});  // who launches as root has decided so
  }
  if (!hosts.empty()) {
    std::vector<std::string> places;
    for (const Host& host : hosts) {
      places.push_back(fmt::format("{}:{}", host.name, host.slots));
    }
    add({"--host", join(places, ","), "-n", std::to_string(total_slots(hosts))});
  }
  add({"--bind-to", "none"});  // each process divides the processors itself
  if (!options.agent.empty()) {
    add({"--mca", "plm_rsh_agent", options.agent});
  }
  for (const auto& [name, value] : exported(environment)) {
    if (!starts_with(name, "OMPI_") && !starts_with(name, "PMIX_")) {  // which it passes on itself
      add({"-x", name});
    }
  }
  add({program_path()});
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

}  // namespace

void check_mpirun_hosts(const std::vector<Host>& hosts) {
  for (const Host& host : hosts) {
    if (host.name.find(':') != std::string::npos) {
      throw ConfigError("E140", {},
                        fmt::format("mpirun takes no IPv6 address as a host: `{}`", host.name))
          .help("a name that DNS or /etc/hosts has for it");
    }
  }
}

ChildCommand mpirun_command(const MpirunOptions& options, const std::vector<std::string>& words,
                            Environment environment) {
  for (auto& setting : settings(options)) {
    environment.push_back(std::move(setting));
  }
  ChildCommand command{"mpirun", mpirun_words(options, environment, words), environment};
  command.death_signal = SIGTERM;  // then it ends its processes
  return command;
}

}  // namespace meshtrain
