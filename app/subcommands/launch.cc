// meshtrain launch: `train` as several processes, on this machine or on others. mpirun starts them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"
#include "comm/check_hosts.h"
#include "engine/distribution.h"
#include "engine/run_mpirun.h"
#include "engine/setup.h"
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

// What a job of Slurm's has no use for.
void refuse_flags_of_mpirun(const LaunchOptions& options) {
  const struct {
    bool is_given;
    const char *flag, *help;
  } flags[] = {
      {!options.hosts.empty(), "--hosts",
       "--processes N, with --nodes M; for certain hosts --sbatch=--nodelist=a,b"},
      {!options.host_file.empty(), "--hostfile",
       "--processes N, with --nodes M; for certain hosts --sbatch=--nodelist=a,b"},
      {!options.agent.empty(), "--remote-agent", "leave it out: srun starts the processes"},
      {!options.interface.empty(), "--interface",
       "`export MESHTRAIN_NET_INTERFACE=NAME` before it: sbatch hands the environment on"},
      {options.train.restarts > 0, "--restarts",
       "leave it out: after a lost host Slurm queues the job again, and it resumes"},
  };
  for (const auto& entry : flags) {
    if (entry.is_given) {
      refuse("E140", fmt::format("`{}` does not go together with `--slurm`", entry.flag),
             entry.help);
    }
  }
}

// The processes of the job, as far as is said: without a number Slurm starts one on each node.
int64_t tasks_of(const SlurmOptions& slurm) {
  const auto option =
      std::find_if(slurm.options.begin(), slurm.options.end(), [](const std::string& given) {
        return starts_with(given, "--ntasks") || starts_with(given, "-n");
      });
  if (slurm.tasks > 0 || option == slurm.options.end()) {
    return slurm.tasks > 0 ? slurm.tasks : std::max<int64_t>(slurm.nodes, 1);
  }
  if (slurm.nodes <= 1) {
    refuse("E140", fmt::format("with `{}` alone, srun starts one process", *option),
           "--processes N says how many, in place of it or beside it");
  }
  return 1;  // on each node: not known here
}

// Mesh and layouts (E2xx) on so many processes: else the job would say it, after its time in the
// queue.
void check_layouts(const Config& config, int64_t processes) {
  Diagnostics problems;
  try {
    const Setup setup(config, nullptr, "", static_cast<int>(processes));
  } catch (const ConfigError& error) {
    for (const Diagnostic& found : error.diagnostics().list()) {
      if (starts_with(found.code, "E2")) {
        problems.error(found.code, found.loc, found.message) = found;
      }
    }
  }
  problems.throw_if_errors();
}

// The training as a job of Slurm, which resumes in its folder when it is queued again.
int submit(const LaunchOptions& options, const Invocation& invocation) {
  refuse_flags_of_mpirun(options);
  check_files_can_be_shared(invocation.given_words);
  const Config config = load_config(options.train.load(true));
  SlurmOptions slurm = options.slurm;
  slurm.tasks = options.processes;
  check_layouts(config, tasks_of(slurm));
  const SlurmJob job = slurm_job(options.train.launch_request(invocation), config);
  const std::string script = slurm_script(slurm, job);
  if (options.shows_script) {
    out_stream().write(script);
    return 0;
  }
  return submit_script(job.dir + ".sbatch", script,
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
