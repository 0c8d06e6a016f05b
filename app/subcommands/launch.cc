// meshtrain launch: `train` as several processes, on this machine or on others. mpirun starts them.
#include <fmt/format.h>

#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "comm/check_hosts.h"
#include "engine/distribution.h"
#include "engine/run_mpirun.h"
#include "record/run_dir.h"
#include "train/slurm_script.h"
#include "train/training_run.h"
#include "train_options.h"

namespace meshtrain {
namespace {

struct LaunchOptions {
  TrainOptions train;
  std::string hosts, host_file, agent, interface;
  int processes = 0;  // 0: as many as the hosts take
  SlurmOptions slurm;
  bool uses_slurm = false, shows_script = false;
};

// The training as a job of Slurm, which resumes in its folder when it is queued again.
int submit(const LaunchOptions& options, const Invocation& invocation) {
  const Config config = load_config(options.train.load(true));
  RunDirOptions place = run_dir_options(options.train.run_dir, config);
  std::vector<std::string> words = invocation.given_words;
  if (place.dir.empty()) {
    place.dir = runs_folder(place) + "/" + new_folder_name();
    words.push_back("--run-dir=" + place.dir);
  }
  if (options.train.resume.empty()) {
    words.push_back("--resume=auto");
  }
  SlurmOptions slurm = options.slurm;
  slurm.tasks = options.processes;
  const std::string script = slurm_script(slurm, place.name, words);
  if (options.shows_script) {
    out_stream().write(script);
    return 0;
  }
  return submit_script(place.dir + ".sbatch", script,
                       [](std::string_view text) { out_stream().write(text); });
}

std::vector<Host> hosts_of_file(const std::string& path) {
  try {
    return read_host_file(path);
  } catch (const FileError& error) {
    throw ConfigError("E140", {}, fmt::format("--hostfile: {}", error.what()));
  }
}

// --hosts, --hostfile and --processes together; empty when none is given.
std::vector<Host> chosen_hosts(const LaunchOptions& launch) {
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
void check_found(const LaunchOptions& launch, const std::vector<Host>& hosts) {
  const bool by_ssh = launch.agent.empty() && std::getenv("OMPI_MCA_plm_rsh_agent") == nullptr &&
                      std::getenv("PRTE_MCA_plm_ssh_agent") == nullptr &&
                      std::getenv("SLURM_JOB_ID") == nullptr;
  if (by_ssh) {
    check_hosts(hosts, launch.host_file.empty() ? "--hosts" : "--hostfile " + launch.host_file);
  }
}

int run_launch(const LaunchOptions& options, Invocation& invocation) {
  if (options.uses_slurm) {
    return submit(options, invocation);
  }
  if (options.shows_script || options.slurm.nodes > 0 || !options.slurm.options.empty()) {
    refuse("E140", "--nodes, --sbatch and --dry-run are for --slurm",
           "launch --slurm, or `train --dry-run` for the plan");
  }
  check_files_can_be_shared(invocation.given_words);
  check_interface(options.interface);
  const MpirunOptions mpirun{chosen_hosts(options), options.agent, options.interface};
  const Config config = load_config(options.train.load(true));
  Diagnostics diagnostics;
  const bool gpus =
      make_distribution(config, after_start(mpirun.hosts), diagnostics).devices.is_gpu;
  diagnostics.throw_if_errors();
  if (mpirun.hosts.empty() && gpus) {
    return run_train(options.train, invocation);  // which starts one process for each GPU here
  }
  if (mpirun.hosts.empty() && std::getenv("SLURM_JOB_ID") == nullptr) {  // whose hosts mpirun knows
    refuse("E140", "`launch` needs `--processes` or `--hosts`",
           "--processes 4 for four on this machine, or --hosts node1:4,node2:4");
  }
  const SignalChanges& changes = config.run.on_signal;
  check_mpirun(mpirun, changes);  // said before anything starts
  check_found(options, mpirun.hosts);
  return run_with_restarts(
      options.train.launch_request(invocation), config,
      [&](const std::vector<std::string>& words, const Environment& environment) {
        return run_mpirun(mpirun, words, environment, changes, say,
                          options.train.output.verbose > 0);
      });
}

}  // namespace

void add_launch(Subcommands& to) {
  auto [app, options, subcommand] = to.add<LaunchOptions>(
      "launch", "Train as several processes, on this machine or on hosts", run_launch);
  subcommand.starts_processes = true;
  subcommand.json_run = [&options = options] {
    return options.uses_slurm ? std::nullopt : json_run(options.train.output, options.train.config);
  };
  app.add_option("--hosts", options.hosts, "Hosts and how many processes each takes")
      ->type_name("a:4,b:4")
      ->group(kProcessesGroup);
  app.add_option("--hostfile", options.host_file, "The same as lines `a slots=4` of a file")
      ->type_name("FILE")
      ->group(kProcessesGroup);
  app.add_option("--processes", options.processes, "How many; default as many as the hosts take")
      ->type_name("N")
      ->check(whole_number(1, 65536))
      ->group(kProcessesGroup);
  app.add_option("--remote-agent", options.agent,
                 "What starts a command on another host: AGENT HOST COMMAND; default ssh")
      ->type_name("AGENT")
      ->group(kProcessesGroup);
  app.add_option("--interface", options.interface,
                 "The network interface to use on each host; default any")
      ->type_name("NAME")
      ->group(kProcessesGroup);
  app.add_flag("--slurm", options.uses_slurm,
               "Write a batch script and submit it: it saves before its time is over and resumes")
      ->group(kProcessesGroup);
  app.add_option("--nodes", options.slurm.nodes, "With --slurm: nodes of the job")
      ->type_name("N")
      ->check(whole_number(1, 65536))
      ->group(kProcessesGroup);
  app.add_option("--sbatch", options.slurm.options,
                 "With --slurm: an option of sbatch, as --sbatch=--time=2:00:00; may be repeated")
      ->type_name("OPTION")
      ->allow_extra_args(false)
      ->group(kProcessesGroup);
  app.add_flag("--dry-run", options.shows_script, "With --slurm: show the script and stop")
      ->group(kProcessesGroup);
  options.train.add_to(app);
  app.footer(
      "mpirun (Open MPI) starts the processes, and -v shows how. SIGTERM, SIGINT and SIGUSR1 save\n"
      "and stop all processes. mpirun forwards only SIGUSR1 and SIGUSR2: in run.on_signal, every\n"
      "other signal needs the action of one of these.");
}

}  // namespace meshtrain
