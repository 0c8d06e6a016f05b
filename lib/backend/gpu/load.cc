#include "backend/gpu/load.h"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "base/error.h"

#ifndef MESHTRAIN_CUDA_MISSING  // why the build made no CUDA library; "" where it made one
#define MESHTRAIN_CUDA_MISSING ""
#endif

namespace meshtrain::gpu {
namespace {

constexpr const char* kLibrary = "libmeshtrain_cuda.so";

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1);
}

// The library to open; "" with a reason where there is none.
std::string find_library(std::string& reason) {
  const char* named = std::getenv("MESHTRAIN_GPU_LIBRARY");
  if (named != nullptr && *named != '\0')
    return named;
  const std::string folder = program_folder();
  for (const std::string& path : {folder + kLibrary, folder + "../lib/" + kLibrary}) {
    if (::access(path.c_str(), F_OK) == 0)
      return path;
  }
  const std::string missing = MESHTRAIN_CUDA_MISSING;
  reason = missing.empty()
               ? fmt::format(
                     "{} is missing: it belongs beside the program, in {}, or in ../lib "
                     "from there; $MESHTRAIN_GPU_LIBRARY can name another place",
                     kLibrary, folder)
               : fmt::format(
                     "this meshtrain was built without CUDA ({}); build it where the CUDA "
                     "toolkit and cuDNN are, with cmake -DMESHTRAIN_CUDA=ON",
                     missing);
  return {};
}

}  // namespace

bool has_library() {
  std::string reason;
  return !find_library(reason).empty();
}

Runtime* load_runtime(std::string& reason) {
  const std::string path = find_library(reason);
  if (path.empty())
    return nullptr;
  // Opened once however often this is called, and never closed: devices outlive many a caller.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // The loader's text begins with the file that is missing, this one or one that it needs.
    reason = fmt::format("cannot load {}: {}", path, ::dlerror());
    return nullptr;
  }
  const auto entry = reinterpret_cast<EntryPoint>(::dlsym(library, kEntryPoint));
  if (entry == nullptr) {
    reason = fmt::format("{} is not meshtrain's GPU library: it has no {}", path, kEntryPoint);
    return nullptr;
  }
  Runtime* const runtime = entry(kAbi);
  if (runtime == nullptr) {
    reason = fmt::format(
        "{} belongs to another build of meshtrain (this one needs version {} of its interface); "
        "build or install both together",
        path, kAbi);
    return nullptr;
  }
  return runtime->device_count(reason) > 0 ? runtime : nullptr;
}

}  // namespace meshtrain::gpu
