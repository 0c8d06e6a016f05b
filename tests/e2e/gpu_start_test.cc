// What a GPU needs and is not there: the driver, a GPU, CUDA's libraries. Drivers are played.
#include <doctest/doctest.h>

#include <filesystem>

#include "ranks.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = R"(name: start
data:
  train: {source: random, samples: 32, shape: [6], classes: 3, seed: 1}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 3}
compile: {optimizer: sgd, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 8, epochs: 1}
)";

const std::vector<std::string> kTrain = {"train", "start.yaml", "--devices", "gpu:0"};

class GpuStart : public TemporaryFolder {
 public:
  GpuStart() { write("start.yaml", kConfig); }

  Result run_with(const std::vector<std::string>& args,
                  const std::vector<std::string>& environment) const {
    Command command;
    command.args = args;
    command.folder = path();
    command.environment = environment;
    command.environment.push_back("MESHTRAIN_GPU_LIBRARY=" MESHTRAIN_CUDA_LIBRARY);
    return run(command);
  }
  // With a driver of that CUDA version.
  Result with_driver(const std::vector<std::string>& args, const std::string& version, int gpus,
                     std::vector<std::string> environment = {}) const {
    environment.push_back("LD_LIBRARY_PATH=" +
                          fs::path(MESHTRAIN_FAKE_DRIVER).parent_path().string());
    environment.push_back("FAKE_DRIVER_VERSION=" + version);
    environment.push_back("FAKE_DRIVER_GPUS=" + std::to_string(gpus));
    return run_with(args, environment);
  }
  bool has_run() const { return fs::exists(file("runs")); }
};

bool has_driver() {
  const bool has = fs::exists("/dev/nvidiactl") || fs::exists("/dev/dxg");
  if (has) {
    MESSAGE("skipped: there is a driver here");
  }
  return has;
}

TEST_CASE("without a driver each way to a GPU says so once, with the cure and exit code 4") {
  if (has_driver()) {
    return;
  }
  const GpuStart folder;
  const Result devices = folder.run_with({"devices"}, {});
  CHECK(devices.exit_code == 0);
  CHECK(contains(devices.out,
                 "gpu   none: there is no NVIDIA driver here (libcuda.so.1 was not "
                 "found); install NVIDIA's driver 550 (CUDA 12.4) or newer"));
  const Result train = folder.run_with(kTrain, {});
  CHECK(train.exit_code == 4);
  CHECK(count(train.err, "error[") == 1);
  CHECK(contains(train.err, "error[E620]: `gpu:0` cannot be used here: there is no NVIDIA driver"));
  CHECK(contains(train.err, "install NVIDIA's driver 550"));
  CHECK(contains(train.err, "devices: cpu:8"));
  CHECK(!folder.has_run());
}

TEST_CASE("processes of mpirun without a driver say so once, with exit code 4") {
  if (has_driver() || std::string(MESHTRAIN_MPIRUN).empty()) {
    return;
  }
  const GpuStart folder;
  const Rank rank{.environment = {"MESHTRAIN_GPU_LIBRARY=" MESHTRAIN_CUDA_LIBRARY}};
  for (const char* devices : {"gpu:0", "gpu:all"}) {
    const Result result = run(
        as_ranks(2, {"train", "start.yaml", "--devices", devices}, folder.path(), {rank, rank}));
    CHECK(result.exit_code == 4);
    CHECK_MESSAGE(count(result.err, "error[") == 1, result.err);
    CHECK(count(result.err, "there is no NVIDIA driver here") == 1);
    CHECK(!folder.has_run());
  }
}

TEST_CASE("a driver that is too old, libcuda without a driver, and no GPUs are distinguished") {
  const GpuStart folder;
  const auto says = [&](const Result& result, const std::string& words) {
    CHECK(result.exit_code == 4);
    CHECK_MESSAGE(contains(result.err, words), result.err);
  };
  says(folder.with_driver(kTrain, "12020", 1),
       "the NVIDIA driver is for CUDA 12.2, which is too old; install NVIDIA's driver 550");
  says(folder.with_driver(kTrain, "13000", 1, {"FAKE_DRIVER_INIT=34"}), "the toolkit's stub");
  says(folder.with_driver(kTrain, "13000", 1, {"FAKE_DRIVER_INIT=802"}),
       "the NVIDIA driver 13.0 does not start: a made-up error (CUDA_ERROR_FAKE)");
  says(folder.with_driver(kTrain, "13000", 0, {"CUDA_VISIBLE_DEVICES=7"}),
       "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES is \"7\")");
  says(folder.with_driver(kTrain, "13000", 1),
       "gpu:0 (NVIDIA Fake): cuDevicePrimaryCtxRetain failed: a made-up error (CUDA_ERROR_FAKE)");
}

TEST_CASE("devices names the libraries of the generation that the driver runs") {
  const GpuStart folder;
  // An environment with CUDA 12's packages, whose files are none.
  const std::string nvidia = "venv/lib/python3.12/site-packages/nvidia/";
  for (const char* file : {"cublas/lib/libcublasLt.so.12", "cuda_nvrtc/lib/libnvrtc.so.12",
                           "cudnn/lib/libcudnn.so.9", "nccl/lib/libnccl.so.2"}) {
    fs::create_directories(fs::path(folder.file(nvidia + file)).parent_path());
    folder.write(nvidia + file, "");
  }
  const std::string place = "MESHTRAIN_CUDA_PATH=" + folder.file("venv");
  for (const char* version : {"12040", "12090", "13000"}) {
    const Result result = folder.with_driver({"devices"}, version, 1, {place});
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "gpu:0 NVIDIA Fake, compute capability 9.0"));
    CHECK_MESSAGE(contains(result.out, "cannot load NVRTC: " +
                                           folder.file(nvidia + "cuda_nvrtc/lib/libnvrtc.so.12")),
                  result.out);
    CHECK(contains(result.out, "pip install nvidia-cublas-cu12"));
  }
  const Result json = folder.with_driver({"devices", "--format", "json"}, "12040", 2, {place});
  CHECK(json.exit_code == 0);
  CHECK(contains(json.out, R"("gpu_libraries":[{"name":"NVRTC","version":"")"));
  const Result wrong = folder.with_driver({"devices"}, "12040", 1, {"MESHTRAIN_CUDA_PATH=/absent"});
  CHECK(contains(wrong.out, "MESHTRAIN_CUDA_PATH (/absent) has none of the libraries of CUDA 12"));
}

}  // namespace
}  // namespace meshtrain
