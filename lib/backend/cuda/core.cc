#include "backend/cuda/core.h"

#include <array>

#include "backend/cuda/libraries.h"
#include "base/error.h"

namespace meshtrain::cuda {

void Core::follow_copies() {
  if (!has_copies)
    return;
  check(cudaStreamWaitEvent(work, copied, cudaEventWaitDefault), "cudaStreamWaitEvent");
  has_copies = false;
}

void Core::fail(std::string_view what) const {
  std::string text = fmt::format("gpu:{} ({}): {}", index, name, what);
  if (!path.empty())
    text += fmt::format(", at step `{}`", path);
  throw RuntimeFailure(ExitCode::kMesh, text);
}

void Core::check(cudaError_t status, const char* call) const {
  if (status == cudaSuccess)
    return;
  cudaGetLastError();  // errors that do not stay must not be found by the next launch
  fail(fmt::format("{} failed: {} ({})", call, cudaGetErrorString(status),
                   cudaGetErrorName(status)));
}

void Core::check(nvrtcResult status, const char* call) const {
  if (status != NVRTC_SUCCESS)
    fail(fmt::format("{} failed: {}", call, nvrtc().nvrtcGetErrorString(status)));
}

void Core::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail(fmt::format("{} failed: {} ({})", call, cublas_lt().cublasLtGetStatusString(status),
                     cublas_lt().cublasLtGetStatusName(status)));
  }
}

void Core::check(cudnnStatus_t status, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS)
    return;
  std::array<char, 1024> detail{};
  cudnn().cudnnGetLastErrorString(detail.data(), detail.size());
  fail(fmt::format("{} failed: {} {}", call, cudnn().cudnnGetErrorString(status), detail.data()));
}

}  // namespace meshtrain::cuda
