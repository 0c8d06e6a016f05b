#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"

namespace meshtrain::cuda {
namespace {

constexpr const char* kFile = "libcuda.so.1";
constexpr const char* kInstall = "install NVIDIA's driver 550 (CUDA 12.4) or newer";

struct Opened {
  Driver functions;
  int version = 0;
  int num_devices = 0;
  std::string reason;  // why there are no devices
};

std::string explain(const Driver& functions, CUresult status) {
  const char* name = nullptr;
  const char* text = nullptr;
  functions.cuGetErrorName(status, &name);
  functions.cuGetErrorString(status, &text);
  return fmt::format("{} ({})", text == nullptr ? "an unknown error" : text,
                     name == nullptr ? fmt::format("{}", static_cast<int>(status)) : name);
}

std::string start(Opened& opened) {
  void* const library = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const std::string why = ::dlerror();
    const bool is_absent = why.find("No such file") != std::string::npos;
    return fmt::format("there is no NVIDIA driver here ({}); {}",
                       is_absent ? fmt::format("{} was not found", kFile) : why, kInstall);
  }
  Driver& functions = opened.functions;
  const char* missing = nullptr;
#define MESHTRAIN_FIND(name)                                                     \
  functions.name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  if (functions.name == nullptr && missing == nullptr)                           \
    missing = #name;
  MESHTRAIN_DRIVER(MESHTRAIN_FIND)
#undef MESHTRAIN_FIND
  if (functions.cuDriverGetVersion == nullptr ||
      functions.cuDriverGetVersion(&opened.version) != CUDA_SUCCESS)
    opened.version = 0;
  if (opened.version < kOldestCuda && opened.version > 0) {
    return fmt::format("the NVIDIA driver is for CUDA {}, which is too old; {}",
                       version_text(opened.version), kInstall);
  }
  if (missing != nullptr)
    return fmt::format("the NVIDIA driver's {} has no {}; {}", kFile, missing, kInstall);
  CUresult status = functions.cuInit(0);
  if (status == CUDA_SUCCESS)
    status = functions.cuDeviceGetCount(&opened.num_devices);
  if (status == CUDA_ERROR_STUB_LIBRARY) {
    return fmt::format("the {} that was found is the toolkit's stub, no driver; {}", kFile,
                       kInstall);
  }
  if (status != CUDA_SUCCESS && status != CUDA_ERROR_NO_DEVICE) {
    return fmt::format("the NVIDIA driver {} does not start: {}; `nvidia-smi` may say more",
                       version_text(opened.version), explain(functions, status));
  }
  if (opened.num_devices > 0)
    return {};
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr
             ? "the NVIDIA driver finds no GPU; `nvidia-smi -L` lists those that it knows"
             : fmt::format(
                   "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES is \"{}\"); unset "
                   "CUDA_VISIBLE_DEVICES for all of them",
                   visible);
}

const Opened& opened_driver() {
  static const Opened opened = [] {
    Opened result;
    result.reason = start(result);
    return result;
  }();
  return opened;
}

}  // namespace

const Driver* find_driver(std::string& reason) {
  const Opened& opened = opened_driver();
  if (opened.num_devices > 0)
    return &opened.functions;
  reason = opened.reason;
  return nullptr;
}

const Driver& driver() {
  std::string reason;
  const Driver* const found = find_driver(reason);
  if (found == nullptr)
    throw RuntimeFailure(ExitCode::kMesh, reason);
  return *found;
}

int num_devices() {
  return opened_driver().num_devices;
}

int driver_version() {
  return opened_driver().version;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void free_memory(void* memory) {
  std::string ignored;
  if (const Driver* const found = memory == nullptr ? nullptr : find_driver(ignored))
    found->cuMemFree_v2(device_address(memory));
}

}  // namespace meshtrain::cuda
