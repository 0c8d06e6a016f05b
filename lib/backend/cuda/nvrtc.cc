#include "backend/cuda/nvrtc.h"

#include <algorithm>
#include <string_view>

#include "backend/cuda/libraries.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

constexpr size_t kLongestLog = 4000;

// --fmad=false: a product and a sum round the same whether or not they came into one kernel, so
// that a value does not depend on what is fused with it, and equals the CPU's. Kernels that want
// speed from it say fmaf. No fast math: NaN, infinity and subnormal numbers keep their meaning.
constexpr const char* kOptions[] = {"--std=c++20", "--fmad=false", "--minimal"};

class Program {
 public:
  Program(const Core& core, const std::string& text) {
    core.check(
        nvrtc().nvrtcCreateProgram(&program_, text.c_str(), "meshtrain.cu", 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  }
  ~Program() { nvrtc().nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  nvrtcProgram get() const { return program_; }

 private:
  nvrtcProgram program_ = nullptr;
};

std::string log_of(const Core& core, const Program& program) {
  size_t size = 0;
  core.check(nvrtc().nvrtcGetProgramLogSize(program.get(), &size), "nvrtcGetProgramLogSize");
  std::string log(size, '\0');
  if (size > 0)
    core.check(nvrtc().nvrtcGetProgramLog(program.get(), log.data()), "nvrtcGetProgramLog");
  log.resize(std::min(log.find('\0'), std::min(log.size(), kLongestLog)));
  return log;
}

}  // namespace

Architecture choose_architecture(int compute, std::span<const int> supported) {
  int best = 0;
  for (const int candidate : supported) {
    if (candidate <= compute)
      best = std::max(best, candidate);
  }
  if (best == 0)
    return {};
  const bool is_own_generation = best / 10 == compute / 10;
  return {fmt::format("{}_{}", is_own_generation ? "sm" : "compute", best), !is_own_generation};
}

std::vector<int> supported_architectures(const Core& core) {
  int count = 0;
  core.check(nvrtc().nvrtcGetNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> result(static_cast<size_t>(count));
  core.check(nvrtc().nvrtcGetSupportedArchs(result.data()), "nvrtcGetSupportedArchs");
  return result;
}

std::string compiler_version(const Core& core) {
  int major = 0, minor = 0;
  core.check(nvrtc().nvrtcVersion(&major, &minor), "nvrtcVersion");
  return fmt::format("{}.{}", major, minor);
}

std::string compile_options(const Architecture& architecture) {
  return fmt::format("--gpu-architecture={} {}", architecture.option, fmt::join(kOptions, " "));
}

std::string compile(const Core& core, const std::string& text, const Architecture& architecture) {
  const Program program(core, text);
  const std::string target = "--gpu-architecture=" + architecture.option;
  std::vector<const char*> options = {target.c_str()};
  options.insert(options.end(), std::begin(kOptions), std::end(kOptions));
  const nvrtcResult status =
      nvrtc().nvrtcCompileProgram(program.get(), static_cast<int>(options.size()), options.data());
  if (status != NVRTC_SUCCESS) {
    core.fail(fmt::format("nvrtcCompileProgram ({}) failed: {}\n{}", compile_options(architecture),
                          nvrtc().nvrtcGetErrorString(status), log_of(core, program)));
  }
  size_t size = 0;
  std::string code;
  if (architecture.is_ptx) {
    core.check(nvrtc().nvrtcGetPTXSize(program.get(), &size), "nvrtcGetPTXSize");
    code.resize(size);
    core.check(nvrtc().nvrtcGetPTX(program.get(), code.data()), "nvrtcGetPTX");
  } else {
    core.check(nvrtc().nvrtcGetCUBINSize(program.get(), &size), "nvrtcGetCUBINSize");
    code.resize(size);
    core.check(nvrtc().nvrtcGetCUBIN(program.get(), code.data()), "nvrtcGetCUBIN");
  }
  return code;
}

}  // namespace meshtrain::cuda
