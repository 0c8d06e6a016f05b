#include "backend/cuda/core.h"

#include <array>
#include <chrono>
#include <exception>

#include "backend/cuda/communicators.h"
#include "backend/cuda/libraries.h"
#include "base/error.h"

namespace meshtrain::cuda {

void Core::make_current() const {
  check(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

std::byte* Core::allocate(size_t bytes, std::string_view what) const {
  std::byte* const memory = try_allocate(bytes, what);
  if (memory == nullptr)
    check(CUDA_ERROR_OUT_OF_MEMORY, fmt::format("cuMemAlloc ({})", what));
  return memory;
}

std::byte* Core::try_allocate(size_t bytes, std::string_view what) const {
  CUdeviceptr memory = 0;
  const CUresult status = driver().cuMemAlloc_v2(&memory, bytes);
  if (status == CUDA_ERROR_OUT_OF_MEMORY)
    return nullptr;
  check(status, fmt::format("cuMemAlloc ({})", what));
  return reinterpret_cast<std::byte*>(memory);
}

void Core::launch(CUfunction kernel, unsigned blocks, unsigned shared_bytes, void* parameter,
                  CUstream stream) const {
  void* parameters[] = {parameter};
  check(driver().cuLaunchKernel(kernel, blocks, 1, 1, gpu::kThreads, 1, 1, shared_bytes, stream,
                                parameters, nullptr),
        "cuLaunchKernel");
}

void Core::follow_copies() {
  if (!has_copies)
    return;
  check(driver().cuStreamWaitEvent(work, copied, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
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
  for (CUresult status = query(); status != CUDA_SUCCESS; status = query()) {
    if (status != CUDA_ERROR_NOT_READY)
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

void Core::wait_for(CUstream stream) const {
  if (communicators == nullptr)
    return check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize");
  poll([stream] { return driver().cuStreamQuery(stream); }, "cuStreamQuery");
}

void Core::wait_for(CUevent event) const {
  if (communicators == nullptr)
    return check(driver().cuEventSynchronize(event), "cuEventSynchronize");
  poll([event] { return driver().cuEventQuery(event); }, "cuEventQuery");
}

void Core::fail(std::string_view what, ExitCode code) const {
  std::string text = fmt::format("gpu:{} ({}): {}", index, name, what);
  if (!path.empty())
    text += fmt::format(", at step `{}`", path);
  throw RuntimeFailure(code, text);
}

void Core::check(CUresult status, std::string_view call) const {
  if (status == CUDA_SUCCESS)
    return;
  const char* name = "unknown error";
  const char* text = "";
  driver().cuGetErrorName(status, &name);
  driver().cuGetErrorString(status, &text);
  fail(fmt::format("{} failed: {} ({})", call, text, name));
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
