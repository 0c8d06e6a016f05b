// The launcher of this process, by its environment: none, or one of several processes.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace meshtrain {

enum class Launcher {
  kNone,
  kOpenMpi,      // mpirun of Open MPI: OMPI_COMM_WORLD_*
  kPmix,         // srun --mpi=pmix: PMIX_RANK and SLURM_*
  kEnvironment,  // torchrun, Kubernetes: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
  kSlurm,        // srun without PMIx, over which MPI could find the others
  kOtherMpi,     // mpirun of MPICH or Intel MPI: PMI_RANK, PMI_SIZE
};

struct LaunchEnvironment {
  Launcher launcher = Launcher::kNone;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host; 0 of 1 where the launcher does not say
  std::string master_host;             // of kEnvironment
  int master_port = 0;
  // How often the run was started again: SLURM_RESTART_COUNT, TORCHELASTIC_RESTART_COUNT and
  // MESHTRAIN_RESTART together, each of which counts from 0.
  int restarts = 0;

  bool is_alone() const { return size == 1; }
  bool speaks_mpi() const { return launcher == Launcher::kOpenMpi || launcher == Launcher::kPmix; }
};

// As std::getenv.
using Getenv = std::function<const char*(const char* name)>;

// Where several launchers left something, this program itself (RANK with MESHTRAIN_SOCKET) counts
// first, then torchrun (RANK with TORCHELASTIC_RUN_ID), then the one that MPI can be used under,
// since some clusters set RANK as well. Throws ConfigError E612 for what none of them would have
// written.
LaunchEnvironment read_environment(const Getenv& get);

// What the names of variables begin with by which a process of a run knows the others: a program
// that it starts is none of them.
std::vector<std::string> launch_variables();

// Throws ConfigError E614 where a launcher started several processes that cannot find each other.
void check_can_meet(const LaunchEnvironment& environment);

}  // namespace meshtrain
