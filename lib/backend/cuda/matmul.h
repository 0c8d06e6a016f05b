// Matrix products by cuBLASLt.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/cuda/cache.h"
#include "backend/cuda/core.h"
#include "backend/cuda/epilogue_choice.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/matmul_layout.h"
#include "backend/cuda/modules.h"
#include "backend/cuda/tuning.h"

namespace meshtrain::cuda {

template <class Handle, auto Destroy>
struct CublasLtDelete {
  void operator()(Handle handle) const { (cublas_lt().*Destroy)(handle); }
};
// A handle of cuBLASLt that is destroyed with its owner.
template <class Handle, auto Destroy>
using CublasLtHandle =
    std::unique_ptr<std::remove_pointer_t<Handle>, CublasLtDelete<Handle, Destroy>>;

using LtHandle = CublasLtHandle<cublasLtHandle_t, &CublasLt::cublasLtDestroy>;
using LtMatmul = CublasLtHandle<cublasLtMatmulDesc_t, &CublasLt::cublasLtMatmulDescDestroy>;
using LtLayout = CublasLtHandle<cublasLtMatrixLayout_t, &CublasLt::cublasLtMatrixLayoutDestroy>;
using LtPreference =
    CublasLtHandle<cublasLtMatmulPreference_t, &CublasLt::cublasLtMatmulPreferenceDestroy>;

// Products of one shape and epilogue, with the algorithm chosen.
struct MatmulPlan {
  DType dtype = DType::kFloat32;
  LtMatmul product;
  LtLayout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
};

class Matmuls {
 public:
  Matmuls(Core& core, const Cache& cache, Modules& modules)
      : core_(core), cache_(cache), modules_(modules) {}

  // Made once for each shape. The first time it runs the product into memory of its own, so that
  // kernels are loaded before a capture, and may measure algorithms (matmul_tuning.cc). Throws
  // RuntimeFailure where cuBLASLt cannot compute it.
  const MatmulPlan& plan(const gpu::Matmul& matmul);
  // Whether a product with an epilogue is to be computed as one: cuBLASLt has an algorithm for it,
  // and that is faster (matmul_tuning.cc), or what is taken where nothing is measured.
  bool is_fused(const gpu::Matmul& matmul);
  // Addresses are those of `matmul`, whose plan it is.
  void enqueue(const MatmulPlan& plan, const gpu::Matmul& matmul, std::byte* workspace,
               CUstream stream) const;

 private:
  // As plan(); null where cuBLASLt has no algorithm.
  const MatmulPlan* find_plan(const gpu::Matmul& matmul);
  bool offers(const gpu::Matmul& matmul);
  std::unique_ptr<MatmulPlan> describe(const gpu::Matmul& matmul, const MatmulLayout& layout);
  void set_bias(const MatmulPlan& plan, const gpu::Matmul& matmul) const;
  // Whether measuring decides: what takes long, where the choice can be kept.
  bool is_measured(const gpu::Matmul& matmul) const;
  std::string key_of(const gpu::Matmul& matmul) const;
  std::string cache_key(const std::string& key) const;  // with the library and the device
  // False where there is no algorithm.
  bool choose(MatmulPlan& plan, const gpu::Matmul& matmul, const std::string& key);
  // Takes the fastest of these, as long as there is time and memory for it.
  void measure(MatmulPlan& plan, const gpu::Matmul& matmul,
               const std::vector<cublasLtMatmulHeuristicResult_t>& results);
  std::optional<EpilogueTimes> measure_epilogue(const gpu::Matmul& matmul);
  void run_trial(const MatmulPlan& plan, const gpu::Matmul& matmul, std::byte* memory);

  Core& core_;
  const Cache& cache_;
  Modules& modules_;
  LtHandle handle_;
  std::map<std::string, std::unique_ptr<MatmulPlan>> plans_;
  std::map<std::string, bool> fused_;
  TuningSeconds tuning_;
};

}  // namespace meshtrain::cuda
