#include "backend/cuda/libraries.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>

#include "base/error.h"

namespace meshtrain::cuda {
namespace {

const CublasLt* played_cublas_lt = nullptr;
std::atomic<size_t> cublas_version = CUBLAS_VERSION;
std::atomic<size_t> cudnn_version = CUDNN_VERSION;
std::atomic<int> nccl_version = NCCL_VERSION_CODE;

// The first with ncclCommSplit is 2.18.
constexpr int kOldestNccl = NCCL_VERSION(2, 19, 0);

void* open_library(const std::string& file, const char* package) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw RuntimeFailure(
        ExitCode::kMesh,
        fmt::format("cannot load {}: {}; install {}, or name its folder in LD_LIBRARY_PATH", file,
                    ::dlerror(), package));
  }
  return library;
}

template <class F>
void find(void* library, const std::string& file, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr)
    throw RuntimeFailure(ExitCode::kMesh, fmt::format("{} has no {}: it is too old", file, name));
}

// The names of shared libraries end in their major version, that of the headers.
Nvrtc open_nvrtc() {
  const std::string file = fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000);
  void* const library = open_library(file, "CUDA's NVRTC (package cuda-nvrtc)");
  Nvrtc result;
#define MESHTRAIN_FIND(name) find(library, file, #name, result.name);
  MESHTRAIN_NVRTC(MESHTRAIN_FIND)
  return result;
}

CublasLt open_cublas_lt() {
  const std::string file = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* const library = open_library(file, "CUDA's cuBLAS (package libcublas)");
  CublasLt result;
  MESHTRAIN_CUBLASLT(MESHTRAIN_FIND)
  cublas_version = result.cublasLtGetVersion();
  return result;
}

Cudnn open_cudnn() {
  const std::string file = fmt::format("libcudnn.so.{}", CUDNN_MAJOR);
  void* const library = open_library(file, "cuDNN (package libcudnn9-cuda)");
  Cudnn result;
  MESHTRAIN_CUDNN(MESHTRAIN_FIND)
  cudnn_version = result.cudnnGetVersion();
  return result;
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}", version / 10000, version / 100 % 100);
}

Nccl open_nccl() {
  const std::string file = fmt::format("libnccl.so.{}", NCCL_MAJOR);
  void* const library = open_library(file, "NCCL (package libnccl2)");
  Nccl result;
  MESHTRAIN_NCCL(MESHTRAIN_FIND)
#undef MESHTRAIN_FIND
  int version = 0;
  if (result.ncclGetVersion(&version) != ncclSuccess || version < kOldestNccl) {
    throw RuntimeFailure(ExitCode::kMesh,
                         fmt::format("{} is NCCL {}; several GPUs need NCCL {} or newer", file,
                                     nccl_version_text(version), nccl_version_text(kOldestNccl)));
  }
  nccl_version = version;
  return result;
}

}  // namespace

const Nvrtc& nvrtc() {
  static const Nvrtc library = open_nvrtc();
  return library;
}

const CublasLt& cublas_lt() {
  if (played_cublas_lt != nullptr)
    return *played_cublas_lt;
  static const CublasLt library = open_cublas_lt();
  return library;
}

void play_cublas_lt(const CublasLt* library) {
  played_cublas_lt = library;
}

const Cudnn& cudnn() {
  static const Cudnn library = open_cudnn();
  return library;
}

const Nccl& nccl() {
  static const Nccl library = open_nccl();
  return library;
}

std::string library_versions() {
  const size_t cublas = cublas_version, dnn = cudnn_version;
  return fmt::format("CUDA {}.{}, cuBLASLt {}.{}, cuDNN {}.{}, NCCL {}", CUDART_VERSION / 1000,
                     CUDART_VERSION % 1000 / 10, cublas / 10000, cublas % 10000 / 100, dnn / 10000,
                     dnn % 10000 / 100, nccl_version_text(nccl_version));
}

}  // namespace meshtrain::cuda
