// meshtrain launch: `train` as several processes, on this machine or on others. mpirun starts them,
// with settings under which nothing waits for ever.
#include <net/if.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/file.h"
#include "base/printable.h"
#include "base/text.h"
#include "check_hosts.h"
#include "comm/mpi/load.h"
#include "engine/distribution.h"
#include "engine/signals.h"
#include "restarts.h"

extern char** environ;

namespace meshtrain {
namespace {

std::vector<Host> hosts_of_file(const std::string& path) {
  try {
    return read_host_file(path);
  } catch (const FileError& error) {
    throw ConfigError("E140", {}, fmt::format("--hostfile: {}", error.what()));
  }
}

// --hosts, --hostfile and --processes together; empty when none is given.
std::vector<Host> chosen_hosts(const LaunchArguments& launch) {
  if (!launch.hosts.empty() && !launch.host_file.empty()) {
    refuse("E140", "both --hosts and --hostfile", "one of the two");
  }
  std::vector<Host> hosts = !launch.host_file.empty() ? hosts_of_file(launch.host_file)
                            : !launch.hosts.empty()   ? parse_hosts(launch.hosts)
                                                      : std::vector<Host>();
  if (hosts.empty() && launch.processes > 0) {
    return {{"localhost", launch.processes}};
  }
  for (const Host& host : hosts) {
    if (hosts.size() > 1 && (host.name == "localhost" || starts_with(host.name, "127."))) {
      refuse("E140",
             fmt::format("`{}` is another machine for each of {} hosts", host.name, hosts.size()),
             "the name that the others know this one by");
    }
  }
  return launch.processes > 0 && !hosts.empty() ? take_slots(std::move(hosts), launch.processes)
                                                : hosts;
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

// What the processes will find, as far as this host can tell.
LocalResources after_start(const std::vector<Host>& hosts) {
  LocalResources out = LocalResources::here(hosts.empty() ? 1 : total_slots(hosts));
  for (const Host& host : hosts) {
    if (is_this_host(host.name)) {
      out.local_processes = host.slots;
    }
  }
  return out;
}

// mpirun reaches other hosts by ssh, unless another agent or Slurm does: they know their hosts.
void check_found(const LaunchArguments& launch, const std::vector<Host>& hosts) {
  const bool by_ssh = launch.agent.empty() && std::getenv("OMPI_MCA_plm_rsh_agent") == nullptr &&
                      std::getenv("PRTE_MCA_plm_ssh_agent") == nullptr &&
                      std::getenv("SLURM_JOB_ID") == nullptr;
  if (by_ssh) {
    check_hosts(hosts, launch.host_file.empty() ? "--hosts" : "--hostfile " + launch.host_file);
  }
}

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

// --- mpirun -------------------------------------------------------------------------------------

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

// What Open MPI should be told and the user has not told it.
Environment settings(const std::vector<Host>& hosts, const std::string& interface) {
  int most = 1;
  for (const Host& host : hosts) {
    most = std::max(most, host.slots);
  }
  Environment out =
      mpi_settings(most, static_cast<int>(std::thread::hardware_concurrency()), interface);
  if (!interface.empty()) {
    out.emplace_back("MESHTRAIN_NET_INTERFACE", interface);
  }
  std::erase_if(out, [](const auto& setting) { return std::getenv(setting.first.c_str()); });
  return out;
}

std::vector<std::string> mpirun_words(const LaunchArguments& launch, const std::vector<Host>& hosts,
                                      const Environment& environment,
                                      const std::vector<std::string>& words) {
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
  if (!launch.agent.empty()) {
    add({"--mca", "plm_rsh_agent", launch.agent});
  }
  for (const auto& [name, value] : exported(environment)) {
    if (!starts_with(name, "OMPI_") && !starts_with(name, "PMIX_")) {  // which it passes on itself
      add({"-x", name});
    }
  }
  add({own_program()});
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

// mpirun hands SIGUSR1 and SIGUSR2 to all processes, but kills them after SIGTERM or SIGINT, and
// ends of SIGQUIT: another signal becomes that of the two which does the same.
class MpirunSignals {
 public:
  // Throws ConfigError E140 where neither does.
  explicit MpirunSignals(const SignalChanges& changes) : changes_(changes) {
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
      const bool is_lost = carrier(number) == 0 && action(number) != SignalAction::kIgnore &&
                           !stays_ignored(number, changes);
      if (is_lost && !(number == SIGQUIT && action(number) == SignalAction::kReport)) {
        refuse("E140",
               fmt::format("run.on_signal: mpirun passes on SIGUSR1 ({}) and SIGUSR2 ({}), neither "
                           "of which does what {} should ({})",
                           word_of(action(SIGUSR1)), word_of(action(SIGUSR2)), signal_name(number),
                           word_of(action(number))),
               fmt::format("the same action for {} and one of the two", signal_name(number)));
      }
    }
  }

  int translate(int number) {
    const bool kills = number == SIGINT || number == SIGTERM;
    if (kills && asks_to_stop(action(number)) && std::exchange(asked_, true)) {
      return SIGTERM;
    }
    return carrier(number);
  }

 private:
  SignalAction action(int number) const { return signal_action(number, changes_); }
  int carrier(int number) const {
    if (number == SIGUSR1 || number == SIGUSR2) {
      return number;
    }
    for (const int passed : {SIGUSR1, SIGUSR2}) {
      if (action(passed) == action(number) && action(number) != SignalAction::kIgnore) {
        return passed;
      }
    }
    return 0;
  }

  const SignalChanges& changes_;
  bool asked_ = false;
};

// What mpirun cannot do is said before anything starts.
void check_for_mpirun(const std::vector<Host>& hosts, const SignalChanges& changes) {
  for (const Host& host : hosts) {
    if (host.name.find(':') != std::string::npos) {
      refuse("E140", fmt::format("mpirun takes no IPv6 address as a host: `{}`", host.name),
             "a name that DNS or /etc/hosts has for it");
    }
  }
  const MpirunSignals signals(changes);
}

bool is_own_code(int code) {
  constexpr int kOwn[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 74, 75, 130, 143};
  return std::find(std::begin(kOwn), std::end(kOwn), code) != std::end(kOwn);
}

ChildrenEnd run_mpirun(const LaunchArguments& launch, const std::vector<Host>& hosts,
                       const std::vector<std::string>& words, Environment environment,
                       const SignalChanges& changes, bool verbose) {
  for (auto& setting : settings(hosts, launch.interface)) {
    environment.push_back(std::move(setting));
  }
  ChildCommand command{"mpirun", mpirun_words(launch, hosts, environment, words), environment};
  command.death_signal = SIGTERM;  // then it ends its processes
  if (verbose) {
    for (const auto& [name, value] : environment) {
      say(fmt::format("launch: {}", shell_quoted({name + "=" + value})));
    }
    say("launch: " + shell_quoted(command.words));
  }
  MpirunSignals signals(changes);
  ChildrenEnd end =
      run_children({command}, {.say = say,
                               .translate = [&](int number) { return signals.translate(number); },
                               .even_if_ignored = changed_signals(changes)});
  constexpr int kNotFound = 127;  // by the shell of another host
  if (end.exit_code == kNotFound) {
    throw ConfigError(
        "E614", {},
        fmt::format(
            "mpirun found no `orted` on another host (exit code {}): Open MPI must be on the "
            "PATH that `{}` gives there",
            end.exit_code, launch.agent.empty() ? "ssh" : launch.agent));
  }
  if (!is_own_code(end.exit_code)) {
    say(
        fmt::format("mpirun ended with exit code {}: a process could not be started, or it or its "
                    "host was lost",
                    end.exit_code));
    end.exit_code = static_cast<int>(ExitCode::kRankLost);
  }
  return end;
}

}  // namespace

int run_launch(const Arguments& arguments, bool& started) {
  const LaunchArguments& launch = arguments.launch;
  check_files_can_be_shared(arguments);
  check_interface(launch.interface);
  const std::vector<Host> hosts = chosen_hosts(launch);
  const Config config = load_config(load_options(arguments, true));
  Diagnostics diagnostics;
  const bool gpus = make_distribution(config, after_start(hosts), diagnostics).devices.is_gpu;
  diagnostics.throw_if_errors();
  if (hosts.empty() && gpus) {
    return run_train(arguments, started);  // which starts one process for each GPU here
  }
  if (hosts.empty() && std::getenv("SLURM_JOB_ID") == nullptr) {  // whose hosts mpirun knows
    refuse("E140", "how many processes, and where?",
           "--processes 4 for four on this machine, or --hosts node1:4,node2:4");
  }
  const SignalChanges& changes = config.run.on_signal;
  check_for_mpirun(hosts, changes);
  check_found(launch, hosts);
  return run_with_restarts(
      arguments, config,
      [&](const std::vector<std::string>& words, const Environment& environment) {
        return run_mpirun(launch, hosts, words, environment, changes, arguments.verbosity > 0);
      });
}

}  // namespace meshtrain
