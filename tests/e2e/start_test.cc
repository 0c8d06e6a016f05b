// How several processes start: what launchers leave behind, what differs between ranks, who speaks.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "ranks.h"

namespace meshtrain {
namespace {

constexpr const char* kConfig = R"(name: start
seed: 5
distribution:
  type: DataParallel
  device_mesh: {shape: [2], axis_names: [data], devices: "cpu:2"}
  reductions: fixed
data:
  train: {source: random, samples: 32, shape: [6], classes: 3, seed: 1}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 3}
compile:
  optimizer: {SGD: {learning_rate: 0.05}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 8, epochs: 2}
)";

class StartFolder : public TemporaryFolder {
 public:
  StartFolder() { write("start.yaml", kConfig); }

  Result by_ranks(const std::vector<std::string>& args, const std::vector<Rank>& ranks = {},
                  int size = 2) const {
    return run(as_ranks(size, args, path(), ranks), 60);
  }
  Result alone(const std::vector<std::string>& environment,
               const std::vector<std::string>& args = {"train", "start.yaml"}) const {
    Command command;
    command.args = args;
    command.folder = path();
    command.environment = environment;
    return run(command);
  }
  bool has_run() const { return std::filesystem::exists(file("runs")); }
};

bool says(const Result& result, const std::string& part) {
  return result.err.find(part) != std::string::npos;
}

bool has_mpi() {
  const bool has = !std::string(MESHTRAIN_MPIRUN).empty();
  if (!has) {
    MESSAGE("skipped: built without MPI, or no mpirun");
  }
  return has;
}

TEST_CASE("what a launcher would not have set is refused") {
  const StartFolder folder;
  const Result garbage = folder.alone({"RANK=first", "WORLD_SIZE=2"});
  CHECK(garbage.exit_code == 8);
  CHECK(says(garbage, "error[E612]: RANK is `first`"));
  CHECK(says(garbage, "unset RANK"));
  CHECK(says(garbage, "nothing was started"));
  CHECK(folder.alone({"RANK=0"}).exit_code == 8);
  CHECK(folder.alone({"RANK=0", "WORLD_SIZE=1"}).exit_code == 0);
}

TEST_CASE("processes on processors that cannot connect get advice") {
  const StartFolder folder;
  const Result torchrun =
      folder.alone({"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=29500"});
  CHECK(torchrun.exit_code == 8);
  CHECK(says(torchrun, "error[E614]"));
  CHECK(says(torchrun, "processes on processors talk over MPI"));
  CHECK(says(torchrun, "mpirun -np N"));
  const Result slurm = folder.alone({"SLURM_STEP_NUM_TASKS=3", "SLURM_PROCID=0"});
  CHECK(slurm.exit_code == 8);
  CHECK(says(slurm, "each of 3 tasks"));
  CHECK(says(slurm, "srun --mpi=pmix"));
  // What all of them find alike the first says.
  const Result second = folder.alone({"SLURM_STEP_NUM_TASKS=3", "SLURM_PROCID=1"});
  CHECK(second.exit_code == 8);
  CHECK(second.err.empty());
  CHECK(!folder.has_run());
}

TEST_CASE("a job that was started again and begins anew is warned") {
  const StartFolder folder;
  const auto restarted = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"train", "start.yaml"});
    return folder.alone({"SLURM_RESTART_COUNT=2"}, args);
  };
  const std::string warning = "warning: this job was started again (restart 2)";
  const Result anew = restarted({});
  CHECK(anew.exit_code == 0);
  CHECK(count(anew.err, warning) == 1);
  CHECK(!says(restarted({"--resume"}), warning));
  CHECK(!says(restarted({"run.resume=auto"}), warning));
  CHECK(!says(folder.alone({}), warning));
  CHECK(restarted({"fit.epochs=none"}).exit_code == 2);
  CHECK(folder.alone({"SLURM_RESTART_COUNT=x"}).exit_code == 8);
}

TEST_CASE("what several processes do not do together rank 0 does") {
  const StartFolder folder;
  const std::vector<std::string> first = {"SLURM_STEP_NUM_TASKS=3", "SLURM_PROCID=0"};
  const std::vector<std::string> second = {"SLURM_STEP_NUM_TASKS=3", "SLURM_PROCID=1"};
  for (const std::vector<std::string>& args : {std::vector<std::string>{"plan", "start.yaml"},
                                               {"version"},
                                               {"--help"},
                                               {"train", "start.yaml", "--dry-run"},
                                               {"validate", "start.yaml"}}) {
    CHECK(folder.alone(first, args).exit_code == 0);
    CHECK(!folder.alone(first, args).out.empty());
    CHECK(folder.alone(second, args).exit_code == 0);
    CHECK(folder.alone(second, args).out.empty());
    CHECK(folder.alone(second, args).err.empty());
  }
  const Result misuse = folder.alone(second, {"trian"});
  CHECK(misuse.exit_code == 2);
  CHECK(misuse.err.empty());
}

TEST_CASE("the program itself needs no MPI") {
  const StartFolder folder;
  const Result libraries = folder.alone({"LD_TRACE_LOADED_OBJECTS=1"});  // as ldd shows them
  CHECK(libraries.out.find("libc.so") != std::string::npos);
  for (const char* name : {"libmpi", "libopen-", "libpmix", "libhwloc", "libevent", "libcuda"}) {
    CHECK_MESSAGE(libraries.out.find(name) == std::string::npos, name);
  }
}

TEST_CASE("processes of another mpirun learn that they are alone") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Result result = folder.alone({"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=0"});
  CHECK(result.exit_code == 8);
  CHECK(says(result, "error[E614]: each of 4 processes believes to be alone"));
  CHECK(says(result, "mixed MPI libraries?"));
  const Result missing = folder.alone(
      {"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=0", "MESHTRAIN_MPI_LIBRARY=/absent.so"});
  CHECK(missing.exit_code == 8);
  CHECK(says(missing, "cannot load /absent.so"));
}

// kConfig without its mesh.
std::string without_mesh() {
  std::string text = kConfig;
  const size_t begin = text.find("  device_mesh"), end = text.find('\n', begin);
  return text.erase(begin, end - begin + 1);
}

// The program alone in a folder, as if its parts had not been built.
std::string copy_program(const StartFolder& folder, const std::string& place) {
  std::filesystem::create_directories(folder.file(place));
  std::filesystem::copy_file(MESHTRAIN_BINARY, folder.file(place + "/meshtrain"));
  return folder.file(place + "/meshtrain");
}

Result run_program(const StartFolder& folder, const std::string& program,
                   const std::vector<std::string>& args,
                   const std::vector<std::string>& environment = {}) {
  Command command;
  command.program = program;
  command.args = args;
  command.folder = folder.path();
  command.environment = environment;
  command.environment.push_back("MESHTRAIN_GPU_LIBRARY=");
  command.environment.push_back("MESHTRAIN_MPI_LIBRARY=");
  return run(command);
}

TEST_CASE("a part that was not built is named with the command that builds it") {
  const StartFolder folder;
  const std::string program = copy_program(folder, "build/release/app");
  std::filesystem::create_directories(folder.file("scripts"));
  folder.write("scripts/build.sh", "");
  folder.write("build/release/CMakeCache.txt", "");
  const std::string build = "`scripts/build.sh release meshtrain_";
  const Result devices = run_program(folder, program, {"devices"});
  CHECK(devices.exit_code == 0);
  CHECK_MESSAGE(devices.out.find(build + "cuda`") != std::string::npos, devices.out);
  const Result gpu =
      run_program(folder, program, {"train", "start.yaml", "--mesh", "1", "--devices", "gpu:0"});
  CHECK(gpu.exit_code == 4);
  CHECK(count(gpu.err, "error[E620]") == 1);
  CHECK_MESSAGE(says(gpu, build + "cuda`"), gpu.err);
  const Result mpi = run_program(folder, program, {"train", "start.yaml"},
                                 {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"});
  CHECK(mpi.exit_code == 8);
  CHECK(count(mpi.err, "error[E614]") == 1);
  CHECK_MESSAGE(says(mpi, build + "mpi`"), mpi.err);
  // `auto` computes on the processor, and says why where there are GPUs.
  folder.write("auto.yaml", without_mesh());
  folder.write("nvidiactl", "");
  folder.write("nvidia0", "");
  const Result automatic = run_program(folder, program, {"validate", "auto.yaml"},
                                       {"MESHTRAIN_DEVICE_FOLDER=" + folder.path()});
  CHECK_MESSAGE(automatic.exit_code == 0, automatic.err);
  CHECK(count(automatic.err, "warning[W620]: the GPU here is not used: ") == 1);
  CHECK(says(automatic, build + "cuda`"));
  // Another build folder.
  std::filesystem::remove(folder.file("scripts/build.sh"));
  CHECK(says(
      run_program(folder, program, {"train", "start.yaml", "--mesh", "1", "--devices", "gpu:0"}),
      "`cmake --build " + folder.file("build/release") + " --target meshtrain_cuda`"));
  CHECK_FALSE(folder.has_run());
}

TEST_CASE("an installed program without a part speaks of its package") {
  const StartFolder folder;
  const std::string program = copy_program(folder, "meshtrain/bin");
  const Result gpu =
      run_program(folder, program, {"train", "start.yaml", "--mesh", "1", "--devices", "gpu:0"});
  CHECK(gpu.exit_code == 4);
  const bool is_package = says(gpu, "unpack or install meshtrain again") ||
                          says(gpu, "this package of meshtrain has no GPU part");
  CHECK_MESSAGE(is_package, gpu.err);
}

TEST_CASE("one of several processes speaks") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Result result = folder.by_ranks({"train", "start.yaml"});
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(count(result.out, "Epoch 1/2") == 1);
  CHECK(count(result.err, "mesh        2") == 1);
  CHECK(count(result.err, "in 2 processes of ") == 1);
  CHECK(count(result.out, "loss:") == 2);
  CHECK(folder.has_run());
}

TEST_CASE("a mesh without a shape has a device for each process") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  folder.write("start.yaml", without_mesh());
  const Rank no_gpu{.environment = {"CUDA_VISIBLE_DEVICES="}};
  const Result result = folder.by_ranks({"train", "start.yaml"}, {no_gpu, no_gpu});
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(count(result.err, "mesh        2") == 1);
}

TEST_CASE("ranks of a host that do not follow each other are reported once") {
  if (!has_mpi()) {
    return;
  }
  if (std::system("unshare --uts true 2>/dev/null") != 0) {
    MESSAGE("skipped: no host names of its own can be given here");
    return;
  }
  const StartFolder folder;
  folder.write("start.yaml", without_mesh());
  const Rank here{.environment = {"CUDA_VISIBLE_DEVICES=", "MESHTRAIN_NET_INTERFACE=lo"}};
  Rank elsewhere = here;
  elsewhere.before = "set -- unshare --uts sh -c 'hostname elsewhere; exec \"$@\"' sh \"$@\"";
  const std::string warning = "warning[W616]: the ranks of a host do not follow each other";
  const std::vector<std::string> train = {"train", "start.yaml", "--batch-size", "9"};
  const Result between = folder.by_ranks(train, {here, elsewhere, here}, 3);
  CHECK_MESSAGE(between.exit_code == 0, between.err);
  CHECK(count(between.err, warning) == 1);
  CHECK(says(between, "has ranks 0, 2, elsewhere has rank 1"));
  CHECK(says(between, "mpirun --map-by slot"));
  const Result behind = folder.by_ranks(train, {here, here, elsewhere}, 3);
  CHECK_MESSAGE(behind.exit_code == 0, behind.err);
  CHECK(!says(behind, warning));
}

TEST_CASE("a rank with another config is named with what differs") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Result result = folder.by_ranks({"train", "start.yaml", "-o", "x"},
                                        {{}, {.before = "set -- \"$@\" fit.epochs=3 --seed 6"}});
  CHECK(result.exit_code == 2);
  CHECK(count(result.err, "error[E611]") == 1);
  CHECK(says(result, "rank 1 on host "));
  CHECK(says(result, "config: fit.epochs is 3, on rank 0 2"));
  CHECK(says(result, "config: seed is 6, on rank 0 5"));
  CHECK(count(result.err, "nothing was started") == 1);
  CHECK(!std::filesystem::exists(folder.file("x")));
}

TEST_CASE("another subcommand or flag on a rank is named") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Result result =
      folder.by_ranks({"train", "start.yaml"}, {{}, {.before = "set -- \"$@\" --resume=latest"}});
  CHECK(result.exit_code == 2);
  CHECK(says(result, "flags: `--resume=latest`, rank 0 has ``"));
}

TEST_CASE("an unreadable file of one rank is reported with the rank and ends all") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Result result = folder.by_ranks({"train", "start.yaml"}, {{}, {.before = "cd /"}});
  CHECK(result.exit_code == 2);
  CHECK(count(result.err, "error[E100]") == 1);
  CHECK(says(result, "[rank 1 on host "));
  CHECK(says(result, "cannot open `start.yaml`"));
  CHECK(!folder.has_run());
}

TEST_CASE("a problem of all ranks is reported once") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Result config = folder.by_ranks({"train", "start.yaml", "fit.epochs=none"});
  CHECK(config.exit_code == 2);
  CHECK(count(config.err, "error[") == 1);
  CHECK(!says(config, "[rank"));
  const Result devices = folder.by_ranks({"train", "start.yaml"}, {}, 3);
  CHECK(devices.exit_code == 4);
  CHECK(count(devices.err, "error[E210]: 2 devices do not split over 3 processes") == 1);
  const Result input = folder.by_ranks({"train", "-"});
  CHECK(input.exit_code == 2);
  CHECK(count(input.err, "several processes cannot share standard input") == 1);
}

TEST_CASE("a rank that does not come is not waited for without end") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Rank waits{.environment = {"MESHTRAIN_JOIN_TIMEOUT=2"}};
  const Result result =
      folder.by_ranks({"train", "start.yaml"}, {waits, {.before = "exec sleep 50"}});
  CHECK(result.exit_code == 8);
  CHECK(count(result.err, "error[E612]: the start of MPI") == 1);
  CHECK(says(result, "took more than 2 s"));
}

TEST_CASE("a network interface that is not there is named with those that are") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Rank rank{.environment = {"MESHTRAIN_NET_INTERFACE=eth77"}};
  const Result result = folder.by_ranks({"train", "start.yaml"}, {rank, rank});
  CHECK(result.exit_code == 8);
  CHECK(count(result.err, "error[E613]") == 1);
  CHECK(says(result, "`eth77`"));
  CHECK(says(result, "lo"));
}

TEST_CASE("a wrong number of seconds on one rank is reported with its name and ends all") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  const Rank wrong{.environment = {"MESHTRAIN_HEARTBEAT_TIMEOUT=ten"}};
  const Result result = folder.by_ranks({"train", "start.yaml"}, {{}, wrong});
  CHECK(result.exit_code == 2);
  CHECK(count(result.err, "error[E140]: MESHTRAIN_HEARTBEAT_TIMEOUT=`ten`") == 1);
  CHECK(says(result, "rank 1"));
  CHECK_FALSE(folder.has_run());
}

TEST_CASE("an error of one rank in its subcommand ends all with its message and code") {
  if (!has_mpi()) {
    return;
  }
  const StartFolder folder;
  folder.write("x.npy", "no array");
  const Result result = folder.by_ranks(
      {"predict", "start.yaml", "-i", "x.npy", "--output", "y.npy", "-w", "w.safetensors"});
  CHECK(result.exit_code == 3);
  CHECK(count(result.err, "error[E301]") == 1);
}

}  // namespace
}  // namespace meshtrain
