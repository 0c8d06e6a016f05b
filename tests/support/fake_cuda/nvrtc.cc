// An NVRTC whose machine code is the text, which the fake driver has compiled by the host's
// compiler.
#include <nvrtc.h>

#include <algorithm>
#include <cstring>

#include "support/fake_cuda/cubin.h"
#include "support/fake_cuda/state.h"

struct _nvrtcProgram {
  std::string text, code, log;
};

namespace meshtrain::fake_cuda {
namespace {

constexpr int kArchitectures[] = {75, 80, 86, 89, 90, 100, 120};

template <class F>
nvrtcResult answer(const char* name, const F& function) {
  const CUresult status = call(name, function);
  return status == CUDA_SUCCESS             ? NVRTC_SUCCESS
         : status == CUDA_ERROR_INVALID_PTX ? NVRTC_ERROR_COMPILATION
                                            : NVRTC_ERROR_INTERNAL_ERROR;
}

constexpr const char* kHandles = "NVRTC program";

}  // namespace
}  // namespace meshtrain::fake_cuda

using namespace meshtrain::fake_cuda;
#define MESHTRAIN_FAKE extern "C" MESHTRAIN_FAKE_API nvrtcResult

// No version of NVIDIA's, so that caches of compiled kernels never mix the two up.
MESHTRAIN_FAKE nvrtcVersion(int* major, int* minor) {
  *major = 99;
  *minor = 0;
  return NVRTC_SUCCESS;
}
extern "C" MESHTRAIN_FAKE_API const char* nvrtcGetErrorString(nvrtcResult status) {
  return status == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION"
                                           : "NVRTC_ERROR_INTERNAL_ERROR";
}
MESHTRAIN_FAKE nvrtcGetNumSupportedArchs(int* count) {
  return answer("nvrtcGetNumSupportedArchs",
                [&] { *count = static_cast<int>(std::size(kArchitectures)); });
}
MESHTRAIN_FAKE nvrtcGetSupportedArchs(int* out) {
  return answer("nvrtcGetSupportedArchs",
                [&] { std::copy(std::begin(kArchitectures), std::end(kArchitectures), out); });
}
MESHTRAIN_FAKE nvrtcCreateProgram(nvrtcProgram* out, const char* text, const char*, int num_headers,
                                  const char* const*, const char* const*) {
  return answer("nvrtcCreateProgram", [&] {
    if (num_headers != 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "a program with headers");
    ++state().handles[kHandles];
    *out = new _nvrtcProgram{text, "", ""};
  });
}
MESHTRAIN_FAKE nvrtcDestroyProgram(nvrtcProgram* program) {
  return answer("nvrtcDestroyProgram", [&] {
    --state().handles[kHandles];
    delete *program;
    *program = nullptr;
  });
}
// "#error" does not compile; all other mistakes are found when the code is loaded.
MESHTRAIN_FAKE nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  const bool is_refused = begin_compilation(program->text);
  return answer("nvrtcCompileProgram", [&] {
    const std::string prefix = "--gpu-architecture=";
    for (int i = 0; i < count; ++i) {
      if (std::string_view(options[i]).substr(0, prefix.size()) == prefix)
        program->code = make_cubin(options[i] + prefix.size(), program->text);
    }
    if (program->code.empty())
      refuse(CUDA_ERROR_INVALID_VALUE, "no architecture");
    if (is_refused || program->text.find("\n#error") != std::string::npos) {
      program->log = "meshtrain.cu: error: #error";
      throw Failure{CUDA_ERROR_INVALID_PTX};
    }
  });
}
MESHTRAIN_FAKE nvrtcGetProgramLogSize(nvrtcProgram program, size_t* bytes) {
  return answer("nvrtcGetProgramLogSize", [&] { *bytes = program->log.size() + 1; });
}
MESHTRAIN_FAKE nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  return answer("nvrtcGetProgramLog",
                [&] { std::memcpy(log, program->log.c_str(), program->log.size() + 1); });
}
MESHTRAIN_FAKE nvrtcGetCUBINSize(nvrtcProgram program, size_t* bytes) {
  return answer("nvrtcGetCUBINSize", [&] { *bytes = program->code.size(); });
}
MESHTRAIN_FAKE nvrtcGetCUBIN(nvrtcProgram program, char* code) {
  return answer("nvrtcGetCUBIN",
                [&] { std::memcpy(code, program->code.data(), program->code.size()); });
}
MESHTRAIN_FAKE nvrtcGetPTXSize(nvrtcProgram program, size_t* bytes) {
  return answer("nvrtcGetPTXSize", [&] { *bytes = program->code.size() + 1; });
}
MESHTRAIN_FAKE nvrtcGetPTX(nvrtcProgram program, char* code) {
  return answer("nvrtcGetPTX",
                [&] { std::memcpy(code, program->code.c_str(), program->code.size() + 1); });
}
