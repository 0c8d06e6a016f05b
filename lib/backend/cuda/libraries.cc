#include "backend/cuda/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "backend/cuda/driver.h"
#include "backend/cuda/library_files.h"
#include "base/error.h"
#include "base/host.h"
#include "base/text.h"

namespace meshtrain::cuda {
namespace {

namespace fs = std::filesystem;

const CublasLt* played_cublas_lt = nullptr;

static_assert(CUDNN_MAJOR == 9 && NCCL_MAJOR == 2);  // library_file() says so, too
// The first with ncclCommSplit is 2.18.
constexpr int kOldestNccl = NCCL_VERSION(2, 19, 0);

const LibraryChoice& choice() {
  static const LibraryChoice chosen = choose_libraries(
      library_sources({[](const char* name) { return std::getenv(name); }, program_path(), ""}),
      usable_generations(driver_version()));
  return chosen;
}

const std::string& file_of(Library library) {
  return choice().files[static_cast<size_t>(library)];
}

// NVRTC opens the library of its built-in headers by name, and that of a toolkit has no path to it:
// a library that is in the process already is found.
void open_builtins(const std::string& nvrtc) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path(nvrtc).parent_path(), ignored)) {
    if (starts_with(entry.path().filename().string(), "libnvrtc-builtins.so."))
      ::dlopen(entry.path().c_str(), RTLD_LAZY | RTLD_LOCAL);
  }
}

void* open_library(Library library) {
  const std::string& file = file_of(library);
  if (library == Library::kNvrtc)
    open_builtins(file);
  void* const opened = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    throw RuntimeFailure(
        ExitCode::kMesh,
        fmt::format("cannot load {}: {}; install it, for example with `pip install {}`, or name "
                    "where it is in MESHTRAIN_CUDA_PATH",
                    library_name(library), ::dlerror(),
                    library_package(library, choice().generation)));
  }
  return opened;
}

template <class F>
void find(void* library, const std::string& file, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr)
    throw RuntimeFailure(ExitCode::kMesh, fmt::format("{} has no {}: it is too old", file, name));
}

// The functions of MESHTRAIN_NVRTC and the like as a struct.
#define MESHTRAIN_FIND(name) find(library, file, #name, result.name);
#define MESHTRAIN_OPEN(Struct, which, functions) \
  Struct result;                                 \
  {                                              \
    const std::string& file = file_of(which);    \
    void* const library = open_library(which);   \
    functions(MESHTRAIN_FIND)                    \
  }

Nvrtc open_nvrtc() {
  MESHTRAIN_OPEN(Nvrtc, Library::kNvrtc, MESHTRAIN_NVRTC)
  return result;
}

CublasLt open_cublas_lt() {
  MESHTRAIN_OPEN(CublasLt, Library::kCublasLt, MESHTRAIN_CUBLASLT)
  return result;
}

// Its name does not say which generation it is for; it opens others of its own.
Cudnn open_cudnn() {
  MESHTRAIN_OPEN(Cudnn, Library::kCudnn, MESHTRAIN_CUDNN)
  const int generation = static_cast<int>(result.cudnnGetCudartVersion()) / 1000;
  if (generation != choice().generation) {
    throw RuntimeFailure(
        ExitCode::kMesh,
        fmt::format("{} is for CUDA {}, and {} for CUDA {}; install both for one of them, for "
                    "example with `pip install {}`, or name such a place in MESHTRAIN_CUDA_PATH",
                    file_of(Library::kCudnn), generation, file_of(Library::kCublasLt),
                    choice().generation, library_package(Library::kCudnn, choice().generation)));
  }
  return result;
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}", version / 10000, version / 100 % 100);
}

int nccl_version(const Nccl& library) {
  int version = 0;
  return library.ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

Nccl open_nccl() {
  MESHTRAIN_OPEN(Nccl, Library::kNccl, MESHTRAIN_NCCL)
  const int version = nccl_version(result);
  if (version < kOldestNccl) {
    throw RuntimeFailure(
        ExitCode::kMesh,
        fmt::format("{} is NCCL {}; several GPUs need NCCL {} or newer", file_of(Library::kNccl),
                    nccl_version_text(version), nccl_version_text(kOldestNccl)));
  }
  return result;
}

#undef MESHTRAIN_OPEN
#undef MESHTRAIN_FIND

// Opens it.
std::string version_of(Library library) {
  const auto text = [](size_t version) {
    return fmt::format("{}.{}", version / 10000, version % 10000 / 100);
  };
  switch (library) {
    case Library::kNvrtc: {
      int major = 0, minor = 0;
      nvrtc().nvrtcVersion(&major, &minor);
      return fmt::format("{}.{}", major, minor);
    }
    case Library::kCublasLt:
      return text(cublas_lt().cublasLtGetVersion());
    case Library::kCudnn:
      return text(cudnn().cudnnGetVersion());
    case Library::kNccl:
      break;
  }
  return nccl_version_text(nccl_version(nccl()));
}

// Where the loader found what has no folder in its name.
std::string path_of(const void* function, const std::string& file) {
  Dl_info info{};
  return ::dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
}

const void* function_of(Library library) {
  switch (library) {
    case Library::kNvrtc:
      return reinterpret_cast<const void*>(nvrtc().nvrtcVersion);
    case Library::kCublasLt:
      return reinterpret_cast<const void*>(cublas_lt().cublasLtGetVersion);
    case Library::kCudnn:
      return reinterpret_cast<const void*>(cudnn().cudnnGetVersion);
    case Library::kNccl:
      break;
  }
  return reinterpret_cast<const void*>(nccl().ncclGetVersion);
}

gpu::LibraryInfo info_of(Library library) {
  gpu::LibraryInfo info;
  info.name = library_name(library);
  try {
    info.version = version_of(library);
    info.file = path_of(function_of(library), file_of(library));
  } catch (const RuntimeFailure& failure) {
    info.problem = failure.what();
  }
  return info;
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

std::vector<gpu::LibraryInfo> library_infos() {
  std::vector<gpu::LibraryInfo> infos;
  for (size_t i = 0; i < kNumLibraries; ++i)
    infos.push_back(info_of(static_cast<Library>(i)));
  return infos;
}

}  // namespace meshtrain::cuda
