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
// Warnings are of functions that a text does not call, and would hide an error.
constexpr const char* kOptions[] = {"--std=c++20", "--fmad=false", "--minimal",
                                    "--disable-warnings"};

// Kernels of a text on all cores of the host, which 13.0 can. Rounding is the PTX's and the same;
// machine code is scheduled otherwise, and equal in each compilation.
constexpr int kOldestWithSplit = 13;
constexpr const char* kSplit = "--split-compile=0";

std::vector<std::string> all_options(const Core& core, const Architecture& architecture) {
  std::vector<std::string> options = {"--gpu-architecture=" + architecture.option};
  options.insert(options.end(), std::begin(kOptions), std::end(kOptions));
  int major = 0, minor = 0;
  core.check(nvrtc().nvrtcVersion(&major, &minor), "nvrtcVersion");
  if (major >= kOldestWithSplit)
    options.push_back(kSplit);
  return options;
}

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

std::string compile_options(const Core& core, const Architecture& architecture) {
  return fmt::format("{}", fmt::join(all_options(core, architecture), " "));
}

std::string compile(const Core& core, const std::string& text, const Architecture& architecture) {
  const Program program(core, text);
  const std::vector<std::string> texts = all_options(core, architecture);
  std::vector<const char*> options;
  for (const std::string& option : texts)
    options.push_back(option.c_str());
  const nvrtcResult status =
      nvrtc().nvrtcCompileProgram(program.get(), static_cast<int>(options.size()), options.data());
  if (status != NVRTC_SUCCESS) {
    core.fail(fmt::format("nvrtcCompileProgram ({}) failed: {}\n{}",
                          compile_options(core, architecture), nvrtc().nvrtcGetErrorString(status),
                          log_of(core, program)));
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
