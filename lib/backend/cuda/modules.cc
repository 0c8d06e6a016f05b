#include "backend/cuda/modules.h"

#include <span>

#include "backend/cuda/nvrtc.h"
#include "base/checksum.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

constexpr unsigned kSharedByDefault = 48 * 1024;  // more must be asked for

}  // namespace

std::string machine_code(const Core& core, const Cache& cache, const std::string& text) {
  const std::vector<int> supported = supported_architectures(core);
  const Architecture architecture = choose_architecture(core.compute, supported);
  if (architecture.option.empty()) {
    core.fail(
        fmt::format("its compute capability is {}.{}, and NVRTC {} compiles for {}.{} and newer",
                    core.compute / 10, core.compute % 10, compiler_version(core),
                    supported.front() / 10, supported.front() % 10));
  }
  int driver = 0;  // stays 0 where there is none
  cudaDriverGetVersion(&driver);
  const std::string key = fmt::format("NVRTC {}, driver {}\n{}\n{}", compiler_version(core), driver,
                                      compile_options(architecture), text);
  if (std::optional<std::string> code = cache.find("cubin", key))
    return std::move(*code);
  std::string code = compile(core, text, architecture);
  cache.store("cubin", key, code);
  return code;
}

Module::Module(const Core& core, const std::string& code) : core_(core) {
  core.check(cudaLibraryLoadData(&library_, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
             "cudaLibraryLoadData");
}

Module::~Module() {
  cudaLibraryUnload(library_);
}

cudaKernel_t Module::kernel(const std::string& name, unsigned shared_bytes,
                            size_t parameter_bytes) const {
  cudaKernel_t kernel = nullptr;
  core_.check(cudaLibraryGetKernel(&kernel, library_, name.c_str()), "cudaLibraryGetKernel");
  // The runtime takes kernels where it takes functions.
  const void* const function = reinterpret_cast<const void*>(kernel);
  cudaFuncAttributes attributes{};
  core_.check(cudaFuncGetAttributes(&attributes, function), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < static_cast<int>(gpu::kThreads)) {
    core_.fail(fmt::format("kernel {} can run only {} threads a block of {}", name,
                           attributes.maxThreadsPerBlock, gpu::kThreads));
  }
  size_t offset = 0, bytes = 0;
  core_.check(cudaFuncGetParamInfo(function, 0, &offset, &bytes), "cudaFuncGetParamInfo");
  MESHTRAIN_CHECK(bytes == parameter_bytes, "{} takes {} bytes, not {}", name, bytes,
                  parameter_bytes);
  if (shared_bytes + attributes.sharedSizeBytes > kSharedByDefault) {
    core_.check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes)),
                "cudaFuncSetAttribute");
  }
  return kernel;
}

const Module& Modules::load(const std::string& text) {
  std::unique_ptr<Module>& module = modules_[checksum128(std::as_bytes(std::span(text)))];
  if (module == nullptr)
    module = std::make_unique<Module>(core_, machine_code(core_, cache_, text));
  return *module;
}

}  // namespace meshtrain::cuda
