#include "backend/cuda/core.h"

#include <array>
#include <chrono>
#include <exception>

#include "backend/cuda/communicators.h"
#include "backend/cuda/libraries.h"
#include "base/error.h"

namespace meshtrain::cuda {

void Core::follow_copies() {
  if (!has_copies)
    return;
  check(cudaStreamWaitEvent(work, copied, cudaEventWaitDefault), "cudaStreamWaitEvent");
  has_copies = false;
}

// Looks at the communicators only now and then: that takes longer than a query.
template <class Query>
void Core::poll(const Query& query, const char* call) const {
  using Clock = std::chrono::steady_clock;
  constexpr auto kUnwinding = std::chrono::seconds(1);
  constexpr auto kLook = std::chrono::milliseconds(1);
  const auto begin = Clock::now();
  auto next_look = begin + kLook;
  Patience patience;
  for (cudaError_t status = query(); status != cudaSuccess; status = query()) {
    if (status != cudaErrorNotReady)
      check(status, call);
    const auto now = Clock::now();
    if (now >= next_look) {
      if (std::uncaught_exceptions() > 0 && now - begin > kUnwinding)
        communicators->abort();
      communicators->check();
      next_look = now + kLook;
    }
    patience.wait();
  }
  communicators->check_aborted();
}

void Core::wait_for(cudaStream_t stream) const {
  if (communicators == nullptr)
    return check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  poll([stream] { return cudaStreamQuery(stream); }, "cudaStreamQuery");
}

void Core::wait_for(cudaEvent_t event) const {
  if (communicators == nullptr)
    return check(cudaEventSynchronize(event), "cudaEventSynchronize");
  poll([event] { return cudaEventQuery(event); }, "cudaEventQuery");
}

void Core::fail(std::string_view what, ExitCode code) const {
  std::string text = fmt::format("gpu:{} ({}): {}", index, name, what);
  if (!path.empty())
    text += fmt::format(", at step `{}`", path);
  throw RuntimeFailure(code, text);
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
