// Matrix products by cuBLASLt.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/cuda/cache.h"
#include "backend/cuda/core.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/matmul_layout.h"

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

// Products of one shape, with the algorithm chosen.
struct MatmulPlan {
  DType dtype = DType::kFloat32;
  LtMatmul product;
  LtLayout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
};

class Matmuls {
 public:
  Matmuls(Core& core, const Cache& cache) : core_(core), cache_(cache) {}

  // Made once for each shape. The first time it runs the product into memory of its own, so that
  // kernels are loaded before a capture, and may measure algorithms (matmul_tuning.cc). Throws
  // RuntimeFailure where cuBLASLt cannot compute it.
  const MatmulPlan& plan(const gpu::Matmul& matmul);
  void enqueue(const MatmulPlan& plan, const std::byte* a, const std::byte* b, std::byte* c,
               std::byte* workspace, cudaStream_t stream) const;

 private:
  std::unique_ptr<MatmulPlan> describe(const gpu::Matmul& matmul, const MatmulLayout& layout);
  void choose(MatmulPlan& plan, const gpu::Matmul& matmul, const std::string& key);
  // Takes the fastest of these, as long as there is time and memory for it.
  void measure(MatmulPlan& plan, const gpu::Matmul& matmul,
               const std::vector<cublasLtMatmulHeuristicResult_t>& found);
  void run_trial(const MatmulPlan& plan, const gpu::Matmul& matmul, std::byte* memory);

  Core& core_;
  const Cache& cache_;
  LtHandle handle_;
  std::map<std::string, std::unique_ptr<MatmulPlan>> plans_;
  double tuning_seconds_ = 0;  // spent so far
};

}  // namespace meshtrain::cuda
