// What launchers leave in the environment, and what none of them would.
#include "comm/environment.h"

#include <doctest/doctest.h>

#include <map>

#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

struct Place {
  Launcher launcher;
  int rank, size, local_rank, local_size;
  bool operator==(const Place&) const = default;
};
Place place(const Variables& variables) {
  const LaunchEnvironment e = read(variables);
  return {e.launcher, e.rank, e.size, e.local_rank, e.local_size};
}
bool is(const Variables& variables, const Place& expected) {
  return place(variables) == expected;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "6"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_RANK", "3"}};
const Variables kSlurmStep = {{"SLURM_PROCID", "5"},  {"SLURM_STEP_NUM_TASKS", "7"},
                              {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "2"},
                              {"SLURM_NTASKS", "7"},  {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST_CASE("a process that nothing launched is alone") {
  CHECK(is({}, {Launcher::kNone, 0, 1, 0, 1}));
  // What a batch script of four tasks has: it is one process itself.
  CHECK(is({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},
           {Launcher::kNone, 0, 1, 0, 1}));
}

TEST_CASE("every launcher is known by what it sets") {
  CHECK(is(kOpenMpi, {Launcher::kOpenMpi, 3, 6, 1, 2}));
  CHECK(is(kTorchrun, {Launcher::kEnvironment, 5, 8, 1, 4}));
  CHECK(is(with(kSlurmStep, "PMIX_RANK", "5"), {Launcher::kPmix, 5, 7, 1, 2}));
  CHECK(is(kSlurmStep, {Launcher::kSlurm, 5, 7, 1, 2}));
  CHECK(is({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, {Launcher::kOtherMpi, 1, 2, 0, 1}));
  const LaunchEnvironment torchrun = read(kTorchrun);
  CHECK(torchrun.master_host == "node0");
  CHECK(torchrun.master_port == 29500);
}

TEST_CASE("mpirun counts before Slurm and before RANK") {
  Variables all = kTorchrun;
  all.insert(kSlurmStep.begin(), kSlurmStep.end());
  CHECK(read(all).launcher == Launcher::kEnvironment);  // no PMIx: a wrapper of srun set RANK
  CHECK(read(with(all, "PMIX_RANK", "5")).launcher == Launcher::kPmix);
  all.insert(kOpenMpi.begin(), kOpenMpi.end());
  CHECK(read(all).launcher == Launcher::kOpenMpi);
}

TEST_CASE("torchrun counts before what started torchrun") {
  Variables torchrun = with(kTorchrun, "TORCHELASTIC_RUN_ID", "none");
  for (Variables outer :
       {with(with(with(kSlurmStep, "PMIX_RANK", "1"), "SLURM_STEP_NUM_TASKS", "2"), "SLURM_PROCID",
             "1"),
        Variables{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}}) {
    outer.insert(torchrun.begin(), torchrun.end());
    CHECK(is(outer, {Launcher::kEnvironment, 5, 8, 1, 4}));
  }
}

TEST_CASE("another MPI in the only task of a step is not that task") {
  const Variables task = {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"PMIX_RANK", "0"}};
  const Variables inner = with(with(task, "PMI_SIZE", "2"), "PMI_RANK", "1");
  CHECK(is(inner, {Launcher::kOtherMpi, 1, 2, 0, 1}));
  CHECK(is(without(inner, "PMIX_RANK"), {Launcher::kOtherMpi, 1, 2, 0, 1}));
  // What Slurm's own PMI sets.
  CHECK(read(with(with(kSlurmStep, "PMI_SIZE", "7"), "PMI_RANK", "5")).launcher ==
        Launcher::kSlurm);
  CHECK(read(with(with(task, "PMI_SIZE", "1"), "PMI_RANK", "0")).launcher == Launcher::kPmix);
}

TEST_CASE("processes that this program starts are not what started it") {
  const Variables own = with(kTorchrun, "MESHTRAIN_SOCKET", "");
  for (Variables one : {Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
                        Variables{{"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}}}) {
    one.insert(own.begin(), own.end());
    CHECK(is(one, {Launcher::kEnvironment, 5, 8, 1, 4}));
  }
  // A secret says nothing: people set it.
  const Variables secret = with(kOpenMpi, "MESHTRAIN_TOKEN", "0123");
  CHECK(read(secret).launcher == Launcher::kOpenMpi);
  CHECK(read(with(secret, "RANK", "1")).launcher == Launcher::kOpenMpi);
}

TEST_CASE("tasks on this node are read from Slurm's list of nodes") {
  const auto tasks = [](const std::string& list, const std::string& node) {
    return read(with(with(kSlurmStep, "SLURM_STEP_TASKS_PER_NODE", list), "SLURM_NODEID", node))
        .local_size;
  };
  CHECK(tasks("4,2(x2),3", "0") == 4);
  CHECK(tasks("4,2(x2),3", "2") == 2);
  CHECK(tasks("4,2(x2),3", "3") == 3);
  // Where it does not say: at least those up to this one, which is number 1.
  for (const char* list : {"", "4,2", "4,2(x", "4,2(y3)", "a"}) {
    CHECK(tasks(list, "7") == 2);
  }
}

TEST_CASE("Kubernetes does not say which process of the host this is") {
  const Variables pod = without(without(kTorchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE");
  CHECK(is(pod, {Launcher::kEnvironment, 5, 8, 0, 1}));
  CHECK(is(with(pod, "LOCAL_RANK", "2"), {Launcher::kEnvironment, 5, 8, 2, 3}));
}

TEST_CASE("one process of one needs no master") {
  CHECK(is({{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {Launcher::kEnvironment, 0, 1, 0, 1}));
}

TEST_CASE("garbage is refused with what was read and what is allowed") {
  const auto refused = [](const Variables& variables) { return caught([&] { read(variables); }); };
  for (const char* garbage : {"", "x", "-1", "1.5", "0x1", " 1", "99999999999999999999"}) {
    const Caught error = refused(with(kTorchrun, "RANK", garbage));
    CHECK(error.code == "E612");
    CHECK(error.exit_code == 8);
    CHECK(error.says(fmt::format("RANK is `{}`", garbage)));
    CHECK(error.says("a whole number from 0 to "));
    CHECK(error.says("unset RANK"));
  }
  CHECK(refused(with(kTorchrun, "RANK", "8")).says("RANK is 8, but WORLD_SIZE is 8"));
  CHECK(refused(with(kTorchrun, "WORLD_SIZE", "0")).says("WORLD_SIZE is `0`"));
  CHECK(refused(with(kTorchrun, "LOCAL_RANK", "4")).says("but LOCAL_WORLD_SIZE is 4"));
  CHECK(refused(with(kTorchrun, "MASTER_PORT", "70000")).says("MASTER_PORT is `70000`"));
  CHECK(refused(with(kTorchrun, "MASTER_ADDR", "")).says("MASTER_ADDR is empty"));
  CHECK(refused(with(kOpenMpi, "OMPI_COMM_WORLD_SIZE", "many")).says("is `many`"));
  CHECK(refused(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")).code == "E612");
  CHECK(refused({{"PMI_SIZE", "2"}}).says("PMI_RANK is ``"));
  CHECK(refused(with(kSlurmStep, "SLURM_PROCID", "\x1b[2J")).says("SLURM_PROCID is `?[2J`"));
}

TEST_CASE("half of what belongs together is refused") {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"}) {
    const Caught error = caught([&] { read(without(kTorchrun, name)); });
    CHECK(error.code == "E612");
    CHECK(error.says(fmt::format("{} is not set", name)));
  }
}

TEST_CASE("restarts of all who count them are added") {
  CHECK(read({}).restarts == 0);
  CHECK(read({{"SLURM_RESTART_COUNT", "2"}}).restarts == 2);
  Variables all = with(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "1");
  CHECK(read(with(all, "MESHTRAIN_RESTART", "3")).restarts == 4);
  CHECK(caught([] { read({{"MESHTRAIN_RESTART", "once"}}); }).says("MESHTRAIN_RESTART is `once`"));
}

TEST_CASE("processes that cannot find each other get advice") {
  const auto rendezvous = [](const Variables& variables) {
    return caught([&] { check_can_meet(read(variables)); });
  };
  const Caught slurm = rendezvous(kSlurmStep);
  CHECK(slurm.code == "E614");
  CHECK(slurm.exit_code == 8);
  CHECK(slurm.says("each of 7 tasks"));
  CHECK(slurm.says("srun --mpi=pmix"));
  const Caught other = rendezvous({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  CHECK(other.code == "E614");
  CHECK(other.says("MPICH or Intel MPI"));
  // One task of a step needs nobody.
  const Variables one = with(with(kSlurmStep, "SLURM_PROCID", "0"), "SLURM_STEP_NUM_TASKS", "1");
  CHECK(rendezvous(with(one, "SLURM_LOCALID", "0")).code.empty());
  CHECK(rendezvous(kOpenMpi).code.empty());
  CHECK(rendezvous(kTorchrun).code.empty());
  CHECK(rendezvous({}).code.empty());
}

}  // namespace
}  // namespace meshtrain::test
