// What descriptions of products mean, and the products themselves by the emulator's loops.
#include "support/fake_cuda/products.h"

#include <cstdlib>
#include <cstring>

#include "base/hash.h"
#include "support/gpu_emulator/products.h"

namespace meshtrain::fake_cuda {
namespace {

DType dtype_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F:
      return DType::kFloat32;
    case CUDA_R_64F:
      return DType::kFloat64;
    case CUDA_R_16F:
      return DType::kFloat16;
    case CUDA_R_16BF:
      return DType::kBFloat16;
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "type {}", static_cast<int>(type));
  }
}

void check_compute(const Product& product, DType dtype) {
  const bool is_double = dtype == DType::kFloat64;
  const bool fits =
      is_double ? product.compute == CUBLAS_COMPUTE_64F
                : product.compute == CUBLAS_COMPUTE_32F ||
                      (product.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && dtype == DType::kFloat32);
  if (!fits || product.scale != (is_double ? CUDA_R_64F : CUDA_R_32F))
    refuse(CUDA_ERROR_INVALID_VALUE, "a compute type that does not fit the operands");
}

size_t span(int64_t rows, int64_t row, int64_t columns, int64_t column, const gpu::Matmul& matmul,
            int64_t step) {
  const int64_t last = (matmul.batch - 1) * step + (rows - 1) * row + (columns - 1) * column + 1;
  return static_cast<size_t>(last) * dtype_size(matmul.spec.dtype);
}

}  // namespace

Problem problem_of(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  const bool turns_a = product.transposes_a == CUBLAS_OP_T;
  const bool turns_b = product.transposes_b == CUBLAS_OP_T;
  const uint64_t k = turns_a ? a.rows : a.columns;
  const bool fits = (turns_a ? a.columns : a.rows) == d.rows &&
                    (turns_b ? b.rows : b.columns) == d.columns &&
                    (turns_b ? b.columns : b.rows) == k && a.type == d.type && b.type == d.type &&
                    a.batch == d.batch && b.batch == d.batch;
  if (!fits)
    refuse(CUDA_ERROR_INVALID_VALUE, "layouts that do not fit each other");
  Problem problem;
  problem.use_tf32 = product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  problem.hash = hash_mix(product.epilogue, product.compute);
  for (const Layout* layout : {&a, &b, &d}) {
    if (layout->leading < static_cast<int64_t>(layout->rows) || layout->rows * layout->columns == 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "columns that overlap, or an empty matrix");
    for (const auto value :
         {layout->rows, layout->columns, static_cast<uint64_t>(layout->leading),
          static_cast<uint64_t>(layout->batch), static_cast<uint64_t>(layout->step),
          static_cast<uint64_t>(layout->type)})
      problem.hash = hash_mix(problem.hash, value);
  }
  gpu::Matmul& matmul = problem.matmul;
  MatmulSpec& s = matmul.spec;
  s.dtype = dtype_of(d.type);
  check_compute(product, s.dtype);
  s.m = static_cast<int64_t>(d.columns);
  s.n = static_cast<int64_t>(d.rows);
  s.k = static_cast<int64_t>(k);
  s.b_row = turns_a ? 1 : a.leading;
  s.b_column = turns_a ? a.leading : 1;
  s.a_row = turns_b ? 1 : b.leading;
  s.a_column = turns_b ? b.leading : 1;
  s.c_row = d.leading;
  matmul.batch = d.batch;
  matmul.b_step = a.step;
  matmul.a_step = b.step;
  matmul.c_step = d.step;
  return problem;
}

std::optional<gpu::Epilogue> epilogue_of(const Product& product, std::byte* to) {
  gpu::Epilogue epilogue;
  epilogue.to = to;
  switch (product.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return std::nullopt;
    case CUBLASLT_EPILOGUE_GELU:
      epilogue.activation = gpu::Activation::kGelu;
      return epilogue;
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      epilogue.activation = gpu::Activation::kGelu;
      break;
    case CUBLASLT_EPILOGUE_BIAS:
      break;
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "epilogue {}", product.epilogue);
  }
  if (product.bias == nullptr)
    refuse(CUDA_ERROR_INVALID_VALUE, "a bias without an address");
  epilogue.bias = static_cast<const std::byte*>(product.bias);
  return epilogue;
}

size_t result_bytes(const gpu::Matmul& matmul) {
  const MatmulSpec& s = matmul.spec;
  return span(s.m, s.c_row, s.n, 1, matmul, matmul.c_step);
}

void check_memory(const Device& device, const gpu::Matmul& matmul) {
  const MatmulSpec& s = matmul.spec;
  const size_t a = span(s.m, s.a_row, s.k, s.a_column, matmul, matmul.a_step);
  const size_t b = span(s.k, s.b_row, s.n, s.b_column, matmul, matmul.b_step);
  const size_t c = result_bytes(matmul);
  check_range(device, s.a, a, "an operand");
  check_range(device, s.b, b, "an operand");
  check_range(device, matmul.result(), c, "the result");
  const auto overlaps = [&](const std::byte* operand, size_t bytes) {
    return operand < matmul.result() + c && matmul.result() < operand + bytes;
  };
  if (overlaps(s.a, a) || overlaps(s.b, b))
    refuse(CUDA_ERROR_INVALID_VALUE, "a result over an operand");
  if (matmul.epilogue && matmul.epilogue->bias != nullptr)
    check_range(device, matmul.epilogue->bias, static_cast<size_t>(s.n) * dtype_size(s.dtype),
                "the bias");
}

void enqueue_product(Stream& stream, const gpu::Matmul& matmul, bool use_tf32, std::byte* workspace,
                     size_t workspace_bytes) {
  static uint64_t calls = 0;
  const uint64_t token = ++calls;
  if (workspace_bytes > 0) {
    enqueue(stream, "cublasLtMatmul", at_once([=, &stream] {
              check_range(*stream.device, workspace, workspace_bytes, "the workspace");
              std::memcpy(workspace, &token, sizeof(token));
            }));
  }
  enqueue(stream, "cublasLtMatmul", at_once([=, &stream] {
            uint64_t found = token;
            if (workspace_bytes > 0)
              std::memcpy(&found, workspace, sizeof(found));
            if (found != token)
              refuse(CUDA_ERROR_LAUNCH_FAILED, "another call used the workspace at the same time");
            check_memory(*stream.device, matmul);
            if (std::getenv("MESHTRAIN_FAKE_CUDA_IDLE") == nullptr)
              gpu::run_matmul(matmul, use_tf32);
          }));
}

}  // namespace meshtrain::fake_cuda
