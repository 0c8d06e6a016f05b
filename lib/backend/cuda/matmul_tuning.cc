// Which of cuBLASLt's algorithms computes a product: its own first choice, and for products that
// take long the fastest of its first few, measured once and then read from the cache. Without a
// cache nothing is measured, so that two runs never differ in their rounding; nor is it where
// several processes must round alike.
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cuda/matmul.h"
#include "backend/cuda/trial_memory.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;
constexpr int kCandidates = 8;
constexpr int kRepeats = 3;
constexpr double kLongOperations = 2e9;  // tens of microseconds
constexpr double kMostSeconds = 0.3;     // of measuring, for all shapes together

class Timer {
 public:
  explicit Timer(const Core& core) : core_(core) {
    core_.check(cudaEventCreate(&begin_), "cudaEventCreate");
    core_.check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void start() { core_.check(cudaEventRecord(begin_, core_.work), "cudaEventRecord"); }
  float stop() {
    float milliseconds = 0;
    core_.check(cudaEventRecord(end_, core_.work), "cudaEventRecord");
    core_.check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    core_.check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  const Core& core_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The candidate that takes least time; `run` enqueues one.
template <class Run>
size_t fastest_of(const Core& core, size_t count, const Run& run) {
  Timer timer(core);
  float best = std::numeric_limits<float>::infinity();
  size_t fastest = 0;
  for (size_t i = 0; i < count; ++i) {
    try {
      run(i);
      timer.start();
      for (int repeat = 0; repeat < kRepeats; ++repeat)
        run(i);
      const float time = timer.stop();
      if (time < best) {
        best = time;
        fastest = i;
      }
    } catch (const RuntimeFailure&) {
      // One that cannot be run after all; if none can, the run itself says so.
    }
  }
  return fastest;
}

size_t result_bytes(const gpu::Matmul& matmul) {
  const MatmulSpec& spec = matmul.spec;
  const int64_t last =
      (matmul.batch - 1) * matmul.c_step + (spec.m - 1) * spec.c_row + spec.n;  // one past it
  const size_t bytes = static_cast<size_t>(last) * dtype_size(spec.dtype);
  return (bytes + 255) / 256 * 256;
}

// cuBLASLt's candidates, the one it thinks best first. Partial sums of a split product are added in
// a fixed order, in the type that it computes in.
std::vector<cublasLtMatmulHeuristicResult_t> candidates(const Core& core, cublasLtHandle_t handle,
                                                        const MatmulPlan& plan,
                                                        const gpu::Matmul& matmul, int most) {
  cublasLtMatmulPreference_t made = nullptr;
  core.check(cublas_lt().cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const LtPreference preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto value) {
    core.check(cublas_lt().cublasLtMatmulPreferenceSetAttribute(made, which, &value, sizeof(value)),
               "cublasLtMatmulPreferenceSetAttribute");
  };
  const int64_t item = static_cast<int64_t>(dtype_size(plan.dtype));
  const MatmulSpec& spec = matmul.spec;
  const uint32_t result_alignment = alignment_of(spec.c, matmul.c_step * item);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(spec.b, matmul.b_step * item));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(spec.a, matmul.a_step * item));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_alignment);

  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublas_lt().cublasLtMatmulAlgoGetHeuristic(
      handle, plan.product.get(), plan.first.get(), plan.second.get(), plan.result.get(),
      plan.result.get(), made, most, found.data(), &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED)  // as is no candidate
    core.check(status, "cublasLtMatmulAlgoGetHeuristic");
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [](const cublasLtMatmulHeuristicResult_t& result) {
    return result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kMostWorkspace;
  });
  return found;
}

void take(MatmulPlan& plan, const cublasLtMatmulHeuristicResult_t& choice) {
  plan.algorithm = choice.algo;
  plan.workspace_bytes = choice.workspaceSize;
}

// An algorithm as it was stored; false where this library does not know it.
bool restore(MatmulPlan& plan, cublasLtHandle_t handle, const std::optional<std::string>& stored) {
  cublasLtMatmulHeuristicResult_t result{};
  if (!stored || stored->size() != sizeof(result.algo))
    return false;
  std::memcpy(&result.algo, stored->data(), sizeof(result.algo));
  const cublasLtMatmulAlgo_t algorithm = result.algo;
  const cublasStatus_t status = cublas_lt().cublasLtMatmulAlgoCheck(
      handle, plan.product.get(), plan.first.get(), plan.second.get(), plan.result.get(),
      plan.result.get(), &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kMostWorkspace)
    return false;
  result.algo = algorithm;
  take(plan, result);
  return true;
}

}  // namespace

void Matmuls::choose(MatmulPlan& plan, const gpu::Matmul& matmul, const std::string& key) {
  const MatmulSpec& spec = matmul.spec;
  const double operations = 2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) *
                            static_cast<double>(spec.k) * static_cast<double>(matmul.batch);
  const bool is_measured = operations >= kLongOperations && cache_.keeps() && core_.options.measure;
  const std::string cache_key =
      fmt::format("cuBLASLt {}, {}, {}", cublas_lt().cublasLtGetVersion(), core_.name, key);
  const auto is_known = [&] {
    return is_measured && restore(plan, handle_.get(), cache_.find("matmul", cache_key));
  };
  if (!is_known()) {
    const std::vector<cublasLtMatmulHeuristicResult_t> found =
        candidates(core_, handle_.get(), plan, matmul, is_measured ? kCandidates : 1);
    if (found.empty())
      core_.fail(fmt::format("cuBLASLt has no algorithm for the product {}", key));
    take(plan, found.front());
    if (is_measured)
      measure(plan, matmul, found);
    // Another process may have been faster; what is in the cache counts.
    if (is_measured && !is_known()) {
      cache_.store("matmul", cache_key,
                   {reinterpret_cast<const char*>(&plan.algorithm), sizeof(plan.algorithm)});
    }
  }
  const TrialMemory trial(result_bytes(matmul) + plan.workspace_bytes);
  if (trial.data() != nullptr)
    run_trial(plan, matmul, trial.data());
}

void Matmuls::run_trial(const MatmulPlan& plan, const gpu::Matmul& matmul, std::byte* memory) {
  enqueue(plan, matmul.spec.a, matmul.spec.b, memory, memory + result_bytes(matmul), core_.work);
}

void Matmuls::measure(MatmulPlan& plan, const gpu::Matmul& matmul,
                      const std::vector<cublasLtMatmulHeuristicResult_t>& found) {
  const TrialMemory trial(result_bytes(matmul) + kMostWorkspace);
  if (trial.data() == nullptr || tuning_seconds_ >= kMostSeconds)
    return;
  const auto begin = std::chrono::steady_clock::now();
  const size_t fastest = fastest_of(core_, found.size(), [&](size_t i) {
    take(plan, found[i]);
    run_trial(plan, matmul, trial.data());
  });
  take(plan, found[fastest]);
  tuning_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace meshtrain::cuda
