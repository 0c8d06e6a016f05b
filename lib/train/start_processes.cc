#include "train/start_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/gpu/load.h"
#include "base/host.h"
#include "base/streams.h"
#include "comm/communicator_self_test.h"
#include "comm/environment.h"
#include "comm/heartbeat_monitor.h"
#include "comm/hosts.h"
#include "comm/mpi/load.h"
#include "comm/process_exit.h"
#include "comm/tcp/tcp_group.h"
#include "config/callback_classes.h"
#include "engine/devices.h"
#include "exec/share_cores.h"
#include "exec/worker_pool.h"
#include "train/restarts.h"
#include "train/run_facts.h"

namespace meshtrain {
namespace {

void show(std::string_view text) {
  err_stream().write(text);
}

LaunchEnvironment environment_here() {
  return read_environment([](const char* name) { return std::getenv(name); });
}

void silence(bool is_silent) {
  out_stream().silence(is_silent);
  err_stream().silence(is_silent);
}

// What all processes find alike. Those of MPI tell the rest once they have met: its launcher kills
// all when the first has ended, maybe before rank 0 has spoken.
void check_start(const SharedCommand& command, const LaunchEnvironment& environment) {
  check_can_meet(environment);
  if (environment.speaks_mpi()) {
    return;
  }
  check_files_can_be_shared(command.words);
  if (!wants_gpu(command, environment.size)) {
    throw ConfigError(
        "E614", {},
        fmt::format("RANK and WORLD_SIZE start {} processes, and `devices` gives them no GPU "
                    "each; processes on processors talk over MPI",
                    environment.size))
        .note(fmt::format("GPUs that this process sees: {}; processes on this host: {}",
                          LocalResources::here(environment.size).gpus, environment.local_size))
        .help("mpirun -np N meshtrain ..., srun --mpi=pmix meshtrain ..., or meshtrain launch");
  }
}

std::shared_ptr<ProcessGroup> make_group(const LaunchEnvironment& environment,
                                         const HeartbeatOptions& options) {
  if (environment.speaks_mpi()) {
    const TimeLimit limit(options.join_seconds, "the start of MPI (MPI_Init_thread)", show);
    return make_mpi_group(environment, static_cast<int>(usable_cpus().size()), options.interface);
  }
  return std::make_shared<TcpGroup>(TcpOptions::from_environment(
      environment.rank, environment.size, environment.master_host, environment.master_port,
      environment.local_size == environment.size));
}

// A job that was started again, by what does not know how to resume, and a command that begins
// anew: rarely meant. Errors of the config are reported later.
void warn_of_restart(const SharedCommand& command, const LaunchEnvironment& environment) {
  const bool reads_stdin =
      std::find(command.words.begin(), command.words.end(), "-") != command.words.end();
  const bool knows_how = std::getenv("MESHTRAIN_RESTART") != nullptr;
  if (environment.restarts == 0 || knows_how || !command.begins_run || reads_stdin) {
    return;
  }
  try {
    const Config config = load_config(command.load());
    if (config.run.resume == ResumeMode::kNever &&
        find_callback<BackupOptions>(config) == nullptr) {
      show(
          fmt::format("warning: this job was started again (restart {}), and training begins anew: "
                      "--resume would continue from the newest checkpoint\n",
                      environment.restarts));
    }
  } catch (const ConfigError&) {
  }
}

// Reads the config on every rank; what is wrong on some of them ends all of them with one message.
std::vector<Fact> agree_on_facts(const SharedCommand& command, ProcessGroup& group) {
  std::vector<Fact> facts;
  Failure failure;
  try {
    check_files_can_be_shared(command.words);
    HeartbeatOptions::from_environment();
    facts = run_facts(command, group.size());
  } catch (const std::exception&) {
    const ExitReport report = current_exit_report(false);
    failure = {report.exit_code, report.text};
  }
  if (const Failure common = common_failure(group, failure); !common.text.empty()) {
    throw RemoteExit(common.exit_code, common.text);
  }
  return facts;
}

void compare(const SharedCommand& command, ProcessGroup& group, double limit_seconds,
             const Print& print) {
  const TimeLimit limit(limit_seconds, "to compare what the processes were started with", print);
  check_consistent(group, agree_on_facts(command, group));
}

// Neighbours along the last axes of the mesh are ranks that follow each other: they should be on
// one host, which is for the launcher to see to.
void warn_of_scattered_hosts(ProcessGroup& group, Launcher launcher) {
  const std::string scattered = scattered_hosts(group.all_gather(host_name() + '\n' + host_id()));
  if (scattered.empty()) {
    return;
  }
  Diagnostics warnings;
  warnings
      .warning("W616", {},
               "the ranks of a host do not follow each other, and neighbours on the last axes of "
               "the mesh talk over the network: " +
                   scattered)
      .help(launcher == Launcher::kOpenMpi ? "mpirun --map-by slot"
            : launcher == Launcher::kPmix  ? "srun --distribution=block"
                                           : "give the processes of a host RANKs in a row");
  show(warnings.render());
}

void try_transfers(ProcessGroup& group, HeartbeatMonitor& monitor, bool moves_tensors) {
  monitor.enter(0, "the test of transfers before the start");
  check_communicator(group, moves_tensors);
  monitor.leave();
}

}  // namespace

void mute_nonzero_ranks() {
  try {
    silence(environment_here().rank != 0);
  } catch (const ConfigError&) {  // whose environment is wrong says so
  }
}

void check_is_alone(const std::string& subcommand) {
  const LaunchEnvironment environment = environment_here();
  if (environment.is_alone()) {
    return;
  }
  silence(false);
  throw ConfigError("E140", {},
                    fmt::format("`{}` starts the processes itself, but this is process {} of {}",
                                subcommand, environment.rank, environment.size))
      .help(
          "`train` where a launcher starts each process; where none did, unset the variables "
          "that say so: RANK, WORLD_SIZE, OMPI_COMM_WORLD_SIZE");
}

bool start_processes(const std::optional<SharedCommand>& command, Processes& processes,
                     int& num_workers) {
  const LaunchEnvironment environment = environment_here();
  if (command) {
    warn_of_restart(*command, environment);
  }
  if (environment.is_alone()) {
    return true;
  }
  if (!command) {
    return environment.rank == 0;
  }
  check_start(*command, environment);
  HeartbeatOptions options;
  try {
    options = HeartbeatOptions::from_environment();
  } catch (const ConfigError&) {  // reported when all have connected: agree_on_facts()
  }
  options.resume_command = command->resume_command;
  silence(environment.local_rank != 0);  // what is amiss on one host only is said there
  gpu::set_up_environment();
  if (!options.interface.empty())
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + options.interface).c_str(), 0);
  // Theirs from here on: it ends, and lets the others end, after a message was shown.
  const std::shared_ptr<ProcessGroup> group = processes.group = make_group(environment, options);
  options.parent = launcher_pid();
  silence(group->rank() != 0);
  compare(
      *command, *group, options.join_seconds,
      environment.local_rank == 0 ? print_to_stderr : [](std::string_view) {});
  silence(environment.local_rank != 0);
  processes.monitor = std::make_shared<HeartbeatMonitor>(*group, options);
  silence(group->rank() != 0);
  warn_of_scattered_hosts(*group, environment.launcher);
  try_transfers(*group, *processes.monitor, environment.speaks_mpi());
  num_workers = share_cores(*group);
  return true;
}

int end_processes(const Processes& processes, const ExitReport& report) {
  const bool is_common = report.exit_code == 0 || report.is_common;
  if (processes.monitor != nullptr && !is_common) {
    processes.monitor->fail(report.exit_code, report.text);
  }
  err_stream().write(report.text);
  if (processes.monitor != nullptr) {
    processes.monitor->finish();
  }
  return report.exit_code;
}

}  // namespace meshtrain
