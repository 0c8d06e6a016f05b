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

cublasLtEpilogue_t epilogue_of(const gpu::Epilogue& epilogue) {
  const bool adds_bias = epilogue.bias != nullptr;
  switch (epilogue.activation) {
    case gpu::Activation::kNone:
      break;
    case gpu::Activation::kRelu:
      throw InternalError("cuBLASLt's relu is not ours (epilogue_choice.h)");
    case gpu::Activation::kGelu:
      return adds_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  }
  return adds_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// Everything that a choice of algorithm depends on, but for the device and the library.
std::string text_of(const gpu::Matmul& matmul, const MatmulLayout& layout,
                    const gpu::DeviceOptions& options) {
  const MatmulSpec& spec = matmul.spec;
  const MatmulAlignments alignments = alignments_of(matmul, layout, !options.measure);
  const auto describe = [&](const ColumnMatrix& matrix, int64_t step, uint32_t alignment) {
    return fmt::format(" {}{}x{}/{}+{}@{}", matrix.is_transposed ? "t" : "n", matrix.rows,
                       matrix.columns, matrix.leading, step, alignment);
  };
  std::string key = fmt::format(
      "{}{}{}{}{}{} x{}", dtype_name(spec.dtype), options.use_tf32 ? " tf32" : "",
      spec.accumulate ? " accumulate" : "", describe(layout.first, matmul.b_step, alignments.b),
      describe(layout.second, matmul.a_step, alignments.a),
      describe(layout.result, matmul.c_step, alignments.c), matmul.batch);
  if (matmul.epilogue) {
    const gpu::Epilogue& epilogue = *matmul.epilogue;
    key += fmt::format(" epilogue {}", static_cast<int>(epilogue_of(epilogue)));
    if (epilogue.bias != nullptr)
      key += fmt::format(" @{}", alignments.bias);
  }
  return key;
}

MatmulLayout layout_of(const MatmulSpec& spec) {
  const std::optional<MatmulLayout> layout = matmul_layout(spec);
  MESHTRAIN_CHECK(layout && spec.m > 0 && spec.n > 0 && spec.k > 0,
                  "({}, {}) x ({}, {}), steps a {} {}, b {} {}, c {}", spec.m, spec.k, spec.k,
                  spec.n, spec.a_row, spec.a_column, spec.b_row, spec.b_column, spec.c_row);
  return *layout;
}

}  // namespace

std::string Matmuls::key_of(const gpu::Matmul& matmul) const {
  return text_of(matmul, layout_of(matmul.spec), core_.options);
}

const MatmulPlan* Matmuls::find_plan(const gpu::Matmul& matmul) {
  const MatmulLayout layout = layout_of(matmul.spec);
  const std::string key = key_of(matmul);
  const auto found = plans_.find(key);
  if (found != plans_.end())
    return found->second.get();
  if (handle_ == nullptr) {
    cublasLtHandle_t handle = nullptr;
    core_.check(cublas_lt().cublasLtCreate(&handle), "cublasLtCreate");
    handle_.reset(handle);
  }
  std::unique_ptr<MatmulPlan> plan = describe(matmul, layout);
  if (!choose(*plan, matmul, key))
    plan = nullptr;
  return plans_.emplace(key, std::move(plan)).first->second.get();
}

const MatmulPlan& Matmuls::plan(const gpu::Matmul& matmul) {
  const MatmulPlan* const plan = find_plan(matmul);
  if (plan == nullptr)
    core_.fail(fmt::format("cuBLASLt has no algorithm for the product {}", key_of(matmul)));
  return *plan;
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
  if (matmul.epilogue) {
    const uint32_t epilogue = epilogue_of(*matmul.epilogue);
    core_.check(cublas_lt().cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                           &epilogue, sizeof(epilogue)),
                "cublasLtMatmulDescSetAttribute");
    set_bias(*plan, matmul);  // whose alignment is asked for
  }

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

void Matmuls::set_bias(const MatmulPlan& plan, const gpu::Matmul& matmul) const {
  if (!matmul.epilogue || matmul.epilogue->bias == nullptr)
    return;
  const void* const bias = matmul.epilogue->bias;
  core_.check(cublas_lt().cublasLtMatmulDescSetAttribute(
                  plan.product.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)),
              "cublasLtMatmulDescSetAttribute");
}

void Matmuls::enqueue(const MatmulPlan& plan, const gpu::Matmul& matmul, std::byte* workspace,
                      CUstream stream) const {
  // Of the scale type, which is double for doubles only.
  const float one = 1, zero = 0;
  const double one_double = 1, zero_double = 0;
  const bool is_double = plan.dtype == DType::kFloat64;
  const void* const alpha = is_double ? static_cast<const void*>(&one_double) : &one;
  const void* const beta =
      is_double ? static_cast<const void*>(matmul.spec.accumulate ? &one_double : &zero_double)
      : matmul.spec.accumulate ? &one
                               : &zero;
  std::byte* const to = matmul.result();
  set_bias(plan, matmul);
  core_.check(cublas_lt().cublasLtMatmul(handle_.get(), plan.product.get(), alpha, matmul.spec.b,
                                         plan.first.get(), matmul.spec.a, plan.second.get(), beta,
                                         to, plan.result.get(), to, plan.result.get(),
                                         &plan.algorithm, workspace, plan.workspace_bytes, stream),
              "cublasLtMatmul");
}

}  // namespace meshtrain::cuda
