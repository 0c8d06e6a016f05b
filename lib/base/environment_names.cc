#include "base/environment_names.h"

#include <algorithm>

#include "base/text.h"

namespace meshtrain {
namespace {

using Reader = EnvironmentName::Reader;

constexpr EnvironmentName kNames[] = {
    {"MESHTRAIN_DATA", Reader::kUser, "folder of mnist, cifar10 and other data sets by name"},
    {"MESHTRAIN_CACHE", Reader::kUser,
     "folder of downloads, compiled kernels (default ~/.cache/meshtrain) and caches of data "
     "(default "
     "$TMPDIR, else /var/tmp)"},
    {"MESHTRAIN_DEVICES", Reader::kUser, "devices of the mesh, as --devices, which wins"},
    {"MESHTRAIN_OFFLINE", Reader::kUser, "when set, `data fetch` uses no network"},
    {"MESHTRAIN_NET_INTERFACE", Reader::kUser, "network interface between processes; default any"},
    {"MESHTRAIN_TOKEN", Reader::kUser,
     "secret by which processes that torchrun started know each other, any random text"},
    {"MESHTRAIN_JOIN_TIMEOUT", Reader::kUser, "seconds for all processes to connect; default 60"},
    {"MESHTRAIN_HEARTBEAT_TIMEOUT", Reader::kUser,
     "seconds of silence after which a process is lost; default 10"},
    {"MESHTRAIN_COLLECTIVE_TIMEOUT", Reader::kUser,
     "seconds that one process may wait for another; default 120"},
    {"MESHTRAIN_CUDA_PATH", Reader::kUser,
     "toolkits, Python environments or folders of CUDA's libraries, with colons between them"},
    {"NO_COLOR", Reader::kUser, "when set, no colours"},
    {"CLICOLOR_FORCE", Reader::kUser, "when set and not 0, colours without a terminal too"},
    {"MESHTRAIN_GPU_LIBRARY", Reader::kDeveloper, "another libmeshtrain_cuda.so"},
    {"MESHTRAIN_MPI_LIBRARY", Reader::kDeveloper, "another libmeshtrain_mpi.so"},
    {"MESHTRAIN_SENTENCEPIECE_LIBRARY", Reader::kDeveloper,
     "another libmeshtrain_sentencepiece.so"},
    {"MESHTRAIN_EPILOGUES", Reader::kDeveloper,
     "0: products on a GPU compute no bias and activation themselves"},
    {"MESHTRAIN_CUDNN_ATTENTION", Reader::kDeveloper,
     "0: attention on a GPU is computed by our own kernels"},
    {"MESHTRAIN_NCCL_BLOCKING", Reader::kDeveloper, "1: calls of NCCL return when they are done"},
    {"MESHTRAIN_SOCKET", Reader::kProgram, "the socket at which rank 0 waits for the others"},
    {"MESHTRAIN_RESTART", Reader::kProgram, "how often the run was started again"},
    {"MESHTRAIN_LAUNCHED", Reader::kProgram, "that `launch` started this process"},
    {"MESHTRAIN_NEW_FOLDER", Reader::kProgram, "the folder of the run that is started again"},
    {"MESHTRAIN_DEVICE_FOLDER", Reader::kTests, "where GPUs are counted, in place of /dev"},
    {"MESHTRAIN_BIN", Reader::kTests, "the folder of the program"},
    {"MESHTRAIN_FAULT", Reader::kTests, "the system call that fails"},
    {"MESHTRAIN_RECORD", Reader::kTests, "where system calls are recorded"},
    {"MESHTRAIN_RECORD_FOLDER", Reader::kTests, "the folder whose files are recorded"},
    {"MESHTRAIN_UNSYNCED", Reader::kTests, "the folder whose files a crash may lose"},
    {"MESHTRAIN_FUZZ", Reader::kTests, "the reader that is fuzzed"},
    {"MESHTRAIN_FUZZ_BUILD", Reader::kTests, "the folder where the fuzzed program is built"},
    {"MESHTRAIN_WERROR", Reader::kTests, "builds with warnings as errors"},
    {"MESHTRAIN_FAKE_CUDA_IDLE", Reader::kTests, "the fake CUDA computes no products"},
    {"MESHTRAIN_FAKE_CUDA_KEEPS", Reader::kTests, "the fake CUDA allows memory that is left"},
    {"MESHTRAIN_GPU_SPECS", Reader::kTests, "the kernels that are compared"},
    {"MESHTRAIN_PYTHON", Reader::kTests, "the Python that has NumPy, h5py and Keras"},
    {"MESHTRAIN_RANDOM_CASES", Reader::kTests, "how many random cases are tried"},
    {"MESHTRAIN_SLOW", Reader::kTests, "leaves out what takes long"},
    {"MESHTRAIN_EMULATOR_*", Reader::kTests, "properties of the emulated GPUs"},
    {"MESHTRAIN_TEST_*", Reader::kTests, "variables that single tests set"},
};

bool is_meant(const EnvironmentName& entry, std::string_view name) {
  return ends_with(entry.name, "*") ? starts_with(name, entry.name.substr(0, entry.name.size() - 1))
                                    : entry.name == name;
}

}  // namespace

std::span<const EnvironmentName> environment_names() {
  return kNames;
}

const EnvironmentName* find_environment_name(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kNames), std::end(kNames),
                   [&](const EnvironmentName& entry) { return is_meant(entry, name); });
  return found == std::end(kNames) ? nullptr : found;
}

std::vector<std::string> unknown_environment_names(const char* const* environment) {
  std::vector<std::string> out;
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (starts_with(name, "MESHTRAIN_") && find_environment_name(name) == nullptr) {
      out.emplace_back(name);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace meshtrain
