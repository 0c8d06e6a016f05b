#include "backend/cuda/matmul.h"

#include "base/error.h"

namespace meshtrain::cuda {
namespace {

struct Types {
  cudaDataType_t data = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
};

Types types_of(DType dtype, bool use_tf32) {
  switch (dtype) {
    case DType::kFloat32:
      return {CUDA_R_32F, use_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F};
    case DType::kFloat64:
      return {CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F};
    case DType::kFloat16:
      return {CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F};
    case DType::kBFloat16:
      return {CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F};
    default:
      throw InternalError(fmt::format("a matrix product of {}", dtype_name(dtype)));
  }
}

// Everything that a choice of algorithm depends on, but for the device and the library.
std::string key_of(const gpu::Matmul& matmul, const MatmulLayout& layout, bool use_tf32) {
  const MatmulSpec& spec = matmul.spec;
  const int64_t item = static_cast<int64_t>(dtype_size(spec.dtype));
  const auto describe = [&](const ColumnMatrix& matrix, const std::byte* data, int64_t step) {
    return fmt::format(" {}{}x{}/{}+{}@{}", matrix.is_transposed ? "t" : "n", matrix.rows,
                       matrix.columns, matrix.leading, step, alignment_of(data, step * item));
  };
  return fmt::format("{}{}{}{}{} x{}", dtype_name(spec.dtype), use_tf32 ? " tf32" : "",
                     describe(layout.first, spec.b, matmul.b_step),
                     describe(layout.second, spec.a, matmul.a_step),
                     describe(layout.result, spec.c, matmul.c_step), matmul.batch);
}

}  // namespace

const MatmulPlan& Matmuls::plan(const gpu::Matmul& matmul) {
  const MatmulSpec& spec = matmul.spec;
  const std::optional<MatmulLayout> layout = matmul_layout(spec);
  MESHTRAIN_CHECK(layout && spec.m > 0 && spec.n > 0 && spec.k > 0 && matmul.batch > 0,
                  "({}, {}) x ({}, {}), steps a {} {}, b {} {}, c {}", spec.m, spec.k, spec.k,
                  spec.n, spec.a_row, spec.a_column, spec.b_row, spec.b_column, spec.c_row);
  const std::string key = key_of(matmul, *layout, core_.options.use_tf32);
  const auto found = plans_.find(key);
  if (found != plans_.end())
    return *found->second;
  if (handle_ == nullptr) {
    cublasLtHandle_t handle = nullptr;
    core_.check(cublas_lt().cublasLtCreate(&handle), "cublasLtCreate");
    handle_.reset(handle);
  }
  std::unique_ptr<MatmulPlan> plan = describe(matmul, *layout);
  choose(*plan, matmul, key);
  return *plans_.emplace(key, std::move(plan)).first->second;
}

std::unique_ptr<MatmulPlan> Matmuls::describe(const gpu::Matmul& matmul,
                                              const MatmulLayout& layout) {
  const Types types = types_of(matmul.spec.dtype, core_.options.use_tf32);
  auto plan = std::make_unique<MatmulPlan>();
  plan->dtype = matmul.spec.dtype;

  cublasLtMatmulDesc_t product = nullptr;
  core_.check(cublas_lt().cublasLtMatmulDescCreate(&product, types.compute, types.scale),
              "cublasLtMatmulDescCreate");
  plan->product.reset(product);
  const auto transpose = [&](cublasLtMatmulDescAttributes_t which, const ColumnMatrix& matrix) {
    const int32_t operation = matrix.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    core_.check(
        cublas_lt().cublasLtMatmulDescSetAttribute(product, which, &operation, sizeof(operation)),
        "cublasLtMatmulDescSetAttribute");
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, layout.first);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, layout.second);

  const auto matrix_layout = [&](const ColumnMatrix& matrix, int64_t step) {
    cublasLtMatrixLayout_t made = nullptr;
    core_.check(cublas_lt().cublasLtMatrixLayoutCreate(
                    &made, types.data, static_cast<uint64_t>(matrix.rows),
                    static_cast<uint64_t>(matrix.columns), matrix.leading),
                "cublasLtMatrixLayoutCreate");
    LtLayout owner(made);
    const int32_t count = static_cast<int32_t>(matmul.batch);
    core_.check(cublas_lt().cublasLtMatrixLayoutSetAttribute(
                    made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
                "cublasLtMatrixLayoutSetAttribute");
    core_.check(cublas_lt().cublasLtMatrixLayoutSetAttribute(
                    made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)),
                "cublasLtMatrixLayoutSetAttribute");
    return owner;
  };
  plan->first = matrix_layout(layout.first, matmul.b_step);
  plan->second = matrix_layout(layout.second, matmul.a_step);
  plan->result = matrix_layout(layout.result, matmul.c_step);
  return plan;
}

void Matmuls::enqueue(const MatmulPlan& plan, const std::byte* a, const std::byte* b, std::byte* c,
                      std::byte* workspace, cudaStream_t stream) const {
  // Of the scale type, which is double for doubles only.
  const float one = 1, zero = 0;
  const double one_double = 1, zero_double = 0;
  const bool is_double = plan.dtype == DType::kFloat64;
  const void* const alpha = is_double ? static_cast<const void*>(&one_double) : &one;
  const void* const beta = is_double ? static_cast<const void*>(&zero_double) : &zero;
  core_.check(cublas_lt().cublasLtMatmul(handle_.get(), plan.product.get(), alpha, b,
                                         plan.first.get(), a, plan.second.get(), beta, c,
                                         plan.result.get(), c, plan.result.get(), &plan.algorithm,
                                         workspace, plan.workspace_bytes, stream),
              "cublasLtMatmul");
}

}  // namespace meshtrain::cuda
