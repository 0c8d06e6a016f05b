#include "comm/environment.h"

#include <algorithm>
#include <optional>

#include "base/diagnostic.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"

namespace meshtrain {
namespace {

constexpr int kMostProcesses = 1 << 20;

[[noreturn]] void refuse(const std::string& message, const std::string& note,
                         const std::string& help) {
  ConfigError problem("E612", {}, message);
  if (!note.empty()) {
    problem.note(note);
  }
  problem.help(help);
  throw problem;
}

class Variables {
 public:
  explicit Variables(const Getenv& get) : get_(get) {}

  std::string text(const char* name) const {
    const char* value = get_(name);
    return value == nullptr ? "" : value;
  }
  bool has(const char* name) const { return get_(name) != nullptr; }

  int number(const char* name, int least, int most) const {
    const std::optional<int> value = parse_number<int>(text(name));
    if (!value || *value < least || *value > most) {
      refuse(fmt::format("{} is `{}`", name, printable(text(name))),
             fmt::format("allowed: a whole number from {} to {}", least, most),
             fmt::format("the launcher sets it; without one, `unset {}`", name));
    }
    return *value;
  }
  int number_or(const char* name, int least, int most, int otherwise) const {
    return has(name) ? number(name, least, most) : otherwise;
  }
  // One of a pair that only means something as a pair.
  void need(const char* name, const char* beside) const {
    if (!has(name)) {
      refuse(fmt::format("{} is `{}`, but {} is not set", beside, printable(text(beside)), name),
             "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT belong together, as torchrun and "
             "Kubernetes set them",
             fmt::format("set {}, or `unset {}` for a run of one process", name, beside));
    }
  }

  // Reads rank and size: rank < size.
  void position(const char* rank_name, const char* size_name, int& rank, int& size) const {
    size = number(size_name, 1, kMostProcesses);
    rank = number(rank_name, 0, kMostProcesses - 1);
    if (rank >= size) {
      refuse(fmt::format("{} is {}, but {} is {}", rank_name, rank, size_name, size),
             fmt::format("allowed: 0 to {}", size - 1), "each process has a number of its own");
    }
  }

 private:
  const Getenv& get_;
};

// Slurm's "2(x3),1": 2 tasks on each of the first 3 nodes, 1 on the next. 0 when it says nothing of
// that node.
int tasks_of_node(const std::string& text, int node) {
  for (const std::string& part : split(text, ',')) {
    const size_t open = part.find("(x");
    const std::optional<int> tasks = parse_number<int>(std::string_view(part).substr(0, open));
    const std::optional<int> nodes =
        open == std::string::npos || !ends_with(part, ")")
            ? std::optional(1)
            : parse_number<int>(std::string_view(part).substr(open + 2, part.size() - open - 3));
    if (!tasks || !nodes) {
      return 0;
    }
    if (node < *nodes) {
      return *tasks;
    }
    node -= *nodes;
  }
  return 0;
}

LaunchEnvironment of_open_mpi(const Variables& variables) {
  LaunchEnvironment out;
  out.launcher = Launcher::kOpenMpi;
  variables.position("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", out.rank, out.size);
  if (variables.has("OMPI_COMM_WORLD_LOCAL_SIZE")) {
    variables.position("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", out.local_rank,
                       out.local_size);
  }
  return out;
}

// The environment of a step of srun; a batch script of several tasks is a single process itself.
LaunchEnvironment of_slurm(const Variables& variables) {
  LaunchEnvironment out;
  const bool has_pmix = variables.has("PMIX_RANK");
  out.launcher = has_pmix ? Launcher::kPmix : Launcher::kSlurm;
  variables.position(has_pmix ? "PMIX_RANK" : "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", out.rank,
                     out.size);
  out.local_rank = variables.number_or("SLURM_LOCALID", 0, out.size - 1, 0);
  const int node = variables.number_or("SLURM_NODEID", 0, kMostProcesses, 0);
  out.local_size = std::max(out.local_rank + 1,
                            tasks_of_node(variables.text("SLURM_STEP_TASKS_PER_NODE"), node));
  return out;
}

LaunchEnvironment of_variables(const Variables& variables) {
  LaunchEnvironment out;
  out.launcher = Launcher::kEnvironment;
  variables.need("WORLD_SIZE", "RANK");
  variables.need("RANK", "WORLD_SIZE");
  variables.position("RANK", "WORLD_SIZE", out.rank, out.size);
  if (variables.has("LOCAL_WORLD_SIZE")) {
    variables.need("LOCAL_RANK", "LOCAL_WORLD_SIZE");
    variables.position("LOCAL_RANK", "LOCAL_WORLD_SIZE", out.local_rank, out.local_size);
  } else {
    out.local_rank = variables.number_or("LOCAL_RANK", 0, out.size - 1, 0);
    out.local_size = out.local_rank + 1;
  }
  if (out.size > 1) {
    variables.need("MASTER_ADDR", "WORLD_SIZE");
    variables.need("MASTER_PORT", "WORLD_SIZE");
    out.master_host = variables.text("MASTER_ADDR");
    out.master_port = variables.number("MASTER_PORT", 1, 65535);
    if (out.master_host.empty()) {
      refuse("MASTER_ADDR is empty", "", "it names the host of rank 0");
    }
  }
  return out;
}

// The only task of a step is the `mpiexec` of MPICH or Intel MPI, which started this process.
bool is_of_other_mpi_in_a_task(const Variables& variables) {
  return parse_number<int>(variables.text("PMI_SIZE")).value_or(1) > 1 &&
         variables.text("SLURM_STEP_NUM_TASKS") == "1";
}

LaunchEnvironment find_launcher(const Variables& variables) {
  // Started by a process of this program: what a launcher left there is of that process.
  if (variables.has("MESHTRAIN_SOCKET") && variables.has("RANK")) {
    return of_variables(variables);
  }
  // torchrun itself may be what mpirun or srun started, once for each host.
  if (variables.has("TORCHELASTIC_RUN_ID") && variables.has("RANK")) {
    return of_variables(variables);
  }
  if (variables.has("OMPI_COMM_WORLD_SIZE") || variables.has("OMPI_COMM_WORLD_RANK")) {
    return of_open_mpi(variables);
  }
  const bool is_step =
      variables.has("SLURM_STEP_NUM_TASKS") && !is_of_other_mpi_in_a_task(variables);
  if (variables.has("PMIX_RANK") && is_step) {
    return of_slurm(variables);
  }
  if (variables.has("RANK") || variables.has("WORLD_SIZE")) {
    return of_variables(variables);
  }
  if (is_step) {
    return of_slurm(variables);
  }
  LaunchEnvironment out;
  if (variables.has("PMI_SIZE")) {
    out.launcher = Launcher::kOtherMpi;
    variables.position("PMI_RANK", "PMI_SIZE", out.rank, out.size);
  }
  return out;
}

}  // namespace

LaunchEnvironment read_environment(const Getenv& get) {
  const Variables variables(get);
  LaunchEnvironment out = find_launcher(variables);
  for (const char* name :
       {"SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT", "MESHTRAIN_RESTART"}) {
    out.restarts += variables.number_or(name, 0, 1000000, 0);
  }
  return out;
}

std::vector<std::string> launch_variables() {
  return {"OMPI_COMM_WORLD_",
          "OMPI_MCA_",
          "OMPI_UNIVERSE_SIZE",
          "OMPI_APP_CTX_",
          "OMPI_FIRST_RANKS",
          "OMPI_FILE_LOCATION",
          "PMIX_",
          "PMI_",
          "PRTE_",
          "SLURM_STEP",
          "SLURM_PROCID=",
          "SLURM_LOCALID=",
          "SLURM_NODEID=",
          "RANK=",
          "WORLD_SIZE=",
          "LOCAL_RANK=",
          "LOCAL_WORLD_SIZE=",
          "MASTER_ADDR=",
          "MASTER_PORT=",
          "TORCHELASTIC_",
          "MESHTRAIN_SOCKET=",
          "MESHTRAIN_TOKEN=",
          "MESHTRAIN_RESTART=",
          "MESHTRAIN_NEW_FOLDER=",
          "MESHTRAIN_LAUNCHED="};
}

void check_can_meet(const LaunchEnvironment& environment) {
  if (environment.is_alone()) {
    return;
  }
  if (environment.launcher == Launcher::kSlurm) {
    throw ConfigError(
        "E614", {},
        fmt::format("each of {} tasks of this Slurm step believes to be alone: it was "
                    "started without PMIx, over which they find each other",
                    environment.size))
        .help("srun --mpi=pmix meshtrain ...; `srun --mpi=list` shows whether this Slurm has it")
        .help("for runs of one process each, `srun --ntasks=1` for each of them");
  }
  if (environment.launcher == Launcher::kOtherMpi) {
    throw ConfigError(
        "E614", {},
        fmt::format("each of {} processes believes to be alone: the `mpirun` of another MPI "
                    "(MPICH or Intel MPI, by PMI_RANK and PMI_SIZE) started them",
                    environment.size))
        .help("start them with the `mpirun` of Open MPI (Debian: mpirun.openmpi)");
  }
}

}  // namespace meshtrain
