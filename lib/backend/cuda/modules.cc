#include "backend/cuda/modules.h"

#include <span>

#include "backend/cuda/nvrtc.h"
#include "base/checksum.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

constexpr unsigned kSharedByDefault = 48 * 1024;  // more must be asked for

// What machine_code() reads of a device, which other threads must not read while it works.
Core compiler_view(const Core& core) {
  Core view;
  view.index = core.index;
  view.name = core.name;
  view.compute = core.compute;
  return view;
}

std::string key_of(const std::string& text) {
  return checksum128(std::as_bytes(std::span(text)));
}

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
  const std::string key = fmt::format("NVRTC {}, driver {}\n{}\n{}", compiler_version(core),
                                      driver_version(), compile_options(core, architecture), text);
  if (std::optional<std::string> code = cache.find("cubin", key))
    return std::move(*code);
  std::string code = compile(core, text, architecture);
  cache.store("cubin", key, code);
  return code;
}

Module::Module(const Core& core, const std::string& code) : core_(core) {
  core.check(driver().cuModuleLoadData(&module_, code.data()), "cuModuleLoadData");
}

Module::~Module() {
  driver().cuModuleUnload(module_);
}

CUfunction Module::kernel(const std::string& name, unsigned shared_bytes,
                          size_t parameter_bytes) const {
  CUfunction kernel = nullptr;
  core_.check(driver().cuModuleGetFunction(&kernel, module_, name.c_str()), "cuModuleGetFunction");
  core_.check(driver().cuFuncLoad(kernel), "cuFuncLoad");
  const auto attribute = [&](CUfunction_attribute which) {
    int value = 0;
    core_.check(driver().cuFuncGetAttribute(&value, which, kernel), "cuFuncGetAttribute");
    return value;
  };
  const int most_threads = attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (most_threads < static_cast<int>(gpu::kThreads)) {
    core_.fail(fmt::format("kernel {} can run only {} threads a block of {}", name, most_threads,
                           gpu::kThreads));
  }
  size_t offset = 0, bytes = 0;
  core_.check(driver().cuFuncGetParamInfo(kernel, 0, &offset, &bytes), "cuFuncGetParamInfo");
  MESHTRAIN_CHECK(bytes == parameter_bytes, "{} takes {} bytes, not {}", name, bytes,
                  parameter_bytes);
  const int static_bytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  if (shared_bytes + static_cast<unsigned>(static_bytes) > kSharedByDefault) {
    core_.check(driver().cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            static_cast<int>(shared_bytes)),
                "cuFuncSetAttribute");
  }
  return kernel;
}

Modules::Modules(const Core& core, const Cache& cache)
    : core_(core),
      cache_(cache),
      queue_([view = compiler_view(core), &cache](const std::string& text) {
        return machine_code(view, cache, text);
      }) {}

void Modules::begin(const std::string& text) {
  const std::string key = key_of(text);
  if (!modules_.contains(key))
    queue_.add(key, text);
}

const Module& Modules::load(const std::string& text) {
  const std::string key = key_of(text);
  const auto known = modules_.find(key);
  if (known != modules_.end())
    return *known->second;
  std::optional<std::string> code = queue_.take(key);
  if (!code)
    code = machine_code(core_, cache_, text);
  return *modules_.emplace(key, std::make_unique<Module>(core_, *code)).first->second;
}

}  // namespace meshtrain::cuda
