// Which of cuBLASLt's algorithms computes a product: its own first choice, and for products that
// take long the fastest of its first few, measured once and then read from the cache; likewise
// whether the product computes what follows it. Without a cache nothing is measured, so that two
// runs never differ in their rounding; nor where several processes must round alike.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cuda/matmul.h"
#include "backend/cuda/trial_memory.h"
#include "backend/gpu/merge_launches.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

constexpr uint64_t kMostWorkspace = uint64_t{32} << 20;
constexpr int kCandidates = 8;
size_t result_bytes(const gpu::Matmul& matmul) {
  const MatmulSpec& spec = matmul.spec;
  const int64_t last =
      (matmul.batch - 1) * matmul.c_step + (spec.m - 1) * spec.c_row + spec.n;  // one past it
  const size_t bytes = static_cast<size_t>(last) * dtype_size(spec.dtype);
  return (bytes + 255) / 256 * 256;
}

// Whether there is no candidate, on any GPU of this kind. Products with epilogues get that answer
// in several ways.
bool is_none(cublasStatus_t status, const gpu::Matmul& matmul) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ||
         (matmul.epilogue &&
          (status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_ARCH_MISMATCH));
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
  const MatmulAlignments alignments =
      alignments_of(matmul, matmul_layout(matmul.spec).value(), !core.options.measure);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.c);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.c);

  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublas_lt().cublasLtMatmulAlgoGetHeuristic(
      handle, plan.product.get(), plan.first.get(), plan.second.get(), plan.result.get(),
      plan.result.get(), made, most, found.data(), &count);
  if (!is_none(status, matmul))
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

bool Matmuls::is_measured(const gpu::Matmul& matmul) const {
  return operations_of(matmul) >= kLongOperations && cache_.keeps() && core_.options.measure;
}

std::string Matmuls::cache_key(const std::string& key) const {
  return fmt::format("cuBLASLt {}, {}, {}", cublas_lt().cublasLtGetVersion(), core_.name, key);
}

bool Matmuls::choose(MatmulPlan& plan, const gpu::Matmul& matmul, const std::string& key) {
  const bool measures = is_measured(matmul);
  const auto is_known = [&] {
    return measures && restore(plan, handle_.get(), cache_.find("matmul", cache_key(key)));
  };
  if (!is_known()) {
    const std::vector<cublasLtMatmulHeuristicResult_t> found =
        candidates(core_, handle_.get(), plan, matmul, measures ? kCandidates : 1);
    if (found.empty())
      return false;
    take(plan, found.front());
    if (measures)
      measure(plan, matmul, found);
    // Another process may have been faster; what is in the cache counts.
    if (measures && !is_known()) {
      cache_.store("matmul", cache_key(key),
                   {reinterpret_cast<const char*>(&plan.algorithm), sizeof(plan.algorithm)});
      if (!is_known())
        take(plan, found.front());  // it cannot be kept, and other runs would measure otherwise
    }
  }
  const TrialMemory trial(result_bytes(matmul) + plan.workspace_bytes);
  if (trial.data() != nullptr)
    run_trial(plan, matmul, trial.data());
  return true;
}

// The result at `memory`, the workspace behind it.
void Matmuls::run_trial(const MatmulPlan& plan, const gpu::Matmul& matmul, std::byte* memory) {
  gpu::Matmul trial = matmul;
  trial.spec.c = memory;
  if (trial.epilogue)
    trial.epilogue->to = memory;
  enqueue(plan, trial, memory + result_bytes(matmul), core_.work);
}

void Matmuls::measure(MatmulPlan& plan, const gpu::Matmul& matmul,
                      const std::vector<cublasLtMatmulHeuristicResult_t>& found) {
  const TrialMemory trial(result_bytes(matmul) + kMostWorkspace);
  if (trial.data() == nullptr || is_over(tuning_))
    return;
  take(plan, found[fastest_of(core_, tuning_, found.size(), [&](size_t i) {
         take(plan, found[i]);
         run_trial(plan, matmul, trial.data());
       })]);
}

// Failures count as no algorithm: those of the device come again with the product alone. But where
// nothing is measured (several processes, fixed reductions) all must choose alike, and the others
// may have found one.
bool Matmuls::offers(const gpu::Matmul& matmul) {
  try {
    return find_plan(matmul) != nullptr;
  } catch (const RuntimeFailure&) {
    if (!core_.options.measure)
      throw;
    return false;
  }
}

bool Matmuls::is_fused(const gpu::Matmul& matmul) {
  if (!uses_epilogues() || !is_ours(matmul, core_.options))
    return false;
  const std::string key = key_of(matmul);
  const auto known = fused_.find(key);
  if (known != fused_.end())
    return known->second;
  bool is_fused = offers(matmul);
  if (is_fused) {
    is_fused = fuses_unmeasured(matmul, core_.compute);
    if (is_measured(matmul)) {
      is_fused = measured_choice(is_fused, cache_, cache_key(key),
                                 [&] { return measure_epilogue(matmul); });
    }
  }
  return fused_.emplace(key, is_fused).first->second;
}

// Into memory of their own: the product, behind it what the launch makes of it, then the workspace.
std::optional<EpilogueTimes> Matmuls::measure_epilogue(const gpu::Matmul& matmul) {
  const gpu::Epilogue& epilogue = *matmul.epilogue;
  const size_t bytes = result_bytes(matmul);
  gpu::Matmul fused = matmul, alone = matmul;
  alone.epilogue.reset();
  const MatmulPlan& fused_plan = plan(fused);
  const MatmulPlan& alone_plan = plan(alone);  // may measure, too: before memory is taken here
  const TrialMemory trial(2 * bytes + kMostWorkspace);
  if (trial.data() == nullptr || is_over(tuning_))
    return std::nullopt;
  fused.epilogue->to = alone.spec.c = trial.data();

  const gpu::MergedLaunches joined = gpu::merge_launches({*epilogue.apart});
  const auto& call = std::get<gpu::KernelCall>(joined.calls[0].what);
  std::vector<uint64_t> params(call.params.begin(), call.params.end());
  const auto move = [&](const std::byte* from, const std::byte* to) {
    for (size_t i = 0; i < params.size(); ++i) {
      if (call.params[i] == gpu::LaunchArg(from))
        params[i] = reinterpret_cast<uint64_t>(to);
    }
  };
  if (epilogue.to != matmul.spec.c)
    move(epilogue.to, trial.data() + bytes);
  move(matmul.spec.c, trial.data());
  const CUfunction kernel =
      modules_.load(joined.module)
          .kernel(call.kernel, call.shared_bytes, params.size() * sizeof(uint64_t));

  std::byte* const workspace = trial.data() + 2 * bytes;
  EpilogueTimes times;
  times.fused = time_of(core_, tuning_, [&] { enqueue(fused_plan, fused, workspace, core_.work); });
  times.apart = time_of(core_, tuning_, [&] {
    enqueue(alone_plan, alone, workspace, core_.work);
    core_.launch(kernel, call.grid, call.shared_bytes, params.data(), core_.work);
  });
  return times;
}

}  // namespace meshtrain::cuda
