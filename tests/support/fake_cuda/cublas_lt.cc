// A cuBLASLt that checks what it is asked for and computes by the emulator's loops.
//
// It offers two algorithms. The first has a workspace and two kernels, of which the second finds
// out whether another call used the workspace in between; the other has one kernel, and is faster.
// With $MESHTRAIN_FAKE_CUDA_IDLE it computes nothing, for products that take long.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>

#include "support/fake_cuda/products.h"

namespace meshtrain::fake_cuda {
namespace {

constexpr size_t kWorkspace = 4096;  // and as much as the result
constexpr uint64_t kMark = 0xFA4EB1A5;

struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of A, B, C, D
};
struct Handle {
  Device* device;
};

// Objects by their handles, of all kinds in one row of numbers.
template <class T>
Table<void*, T>& table() {
  static auto* const made = new Table<void*, T>("object of cuBLASLt");
  return *made;
}
template <class T, class Out, class... Args>
void make(Out* out, Args... args) {
  ++state().handles["object of cuBLASLt"];
  *out = static_cast<Out>(table<T>().add(std::make_unique<T>(T{args...})));
}
template <class T>
void destroy(void* handle) {
  table<T>().take(handle);
  --state().handles["object of cuBLASLt"];
}
template <class T>
T& get(const void* handle) {
  return table<T>().get(const_cast<void*>(handle));
}

template <class F>
cublasStatus_t answer(const char* name, const F& function) {
  switch (call(name, function)) {
    case CUDA_SUCCESS:
      return CUBLAS_STATUS_SUCCESS;
    case CUDA_ERROR_NOT_SUPPORTED:
      return CUBLAS_STATUS_NOT_SUPPORTED;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
      return CUBLAS_STATUS_INVALID_VALUE;
    default:
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

template <class T>
void set(T& member, const void* value, size_t bytes) {
  if (bytes != sizeof(T))
    refuse(CUDA_ERROR_INVALID_VALUE, "{} bytes of an attribute of {}", bytes, sizeof(T));
  std::memcpy(&member, value, bytes);
}

struct Algorithm {
  uint64_t mark, problem, workspace;
  uint32_t alignments[4];
  uint32_t bias_alignment, place;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

// Of an address and those behind it at multiples of a step.
uint32_t alignment_of(const void* address, size_t step = 0) {
  const uint64_t bits = reinterpret_cast<uint64_t>(address) | step | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

void check_alignment(const void* address, uint32_t needed, const char* what, size_t step = 0) {
  if (alignment_of(address, step) < needed)
    refuse(CUDA_ERROR_INVALID_VALUE, "{} at {}, {} bytes apart, is not aligned to {}", what,
           address, step, needed);
}

bool is_number(const void* value, cudaDataType_t type, double number) {
  double read;
  if (type == CUDA_R_64F) {
    std::memcpy(&read, value, sizeof(read));
  } else {
    float narrow;
    std::memcpy(&narrow, value, sizeof(narrow));
    read = static_cast<double>(narrow);
  }
  return read == number;
}

}  // namespace
}  // namespace meshtrain::fake_cuda

using namespace meshtrain::fake_cuda;
using meshtrain::gpu::Matmul;
#define MESHTRAIN_FAKE extern "C" MESHTRAIN_FAKE_API cublasStatus_t

extern "C" MESHTRAIN_FAKE_API size_t cublasLtGetVersion() {
  return 130000;
}
extern "C" MESHTRAIN_FAKE_API const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                               : "CUBLAS_STATUS_EXECUTION_FAILED";
}
extern "C" MESHTRAIN_FAKE_API const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "an invalid value" : "the execution failed";
}
MESHTRAIN_FAKE cublasLtCreate(cublasLtHandle_t* out) {
  return answer("cublasLtCreate", [&] {
    void* made = nullptr;
    make<Handle>(&made, &current_device());
    *out = static_cast<cublasLtHandle_t>(made);
  });
}
MESHTRAIN_FAKE cublasLtDestroy(cublasLtHandle_t handle) {
  return answer("cublasLtDestroy", [&] { destroy<Handle>(handle); });
}
MESHTRAIN_FAKE cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return answer("cublasLtMatmulDescCreate", [&] {
    void* made = nullptr;
    make<Product>(&made, compute, scale);
    *out = static_cast<cublasLtMatmulDesc_t>(made);
  });
}
MESHTRAIN_FAKE cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return answer("cublasLtMatmulDescDestroy", [&] { destroy<Product>(product); });
}
MESHTRAIN_FAKE cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  return answer("cublasLtMatmulDescSetAttribute", [&] {
    Product& product = get<Product>(handle);
    switch (which) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(product.transposes_a, value, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(product.transposes_b, value, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(product.epilogue, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(product.bias, value, bytes);
      default:
        refuse(CUDA_ERROR_INVALID_VALUE, "attribute {}", static_cast<int>(which));
    }
  });
}
MESHTRAIN_FAKE cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  return answer("cublasLtMatrixLayoutCreate", [&] {
    void* made = nullptr;
    make<Layout>(&made, type, rows, columns, leading);
    *out = static_cast<cublasLtMatrixLayout_t>(made);
  });
}
MESHTRAIN_FAKE cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return answer("cublasLtMatrixLayoutDestroy", [&] { destroy<Layout>(layout); });
}
MESHTRAIN_FAKE cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t bytes) {
  return answer("cublasLtMatrixLayoutSetAttribute", [&] {
    Layout& layout = get<Layout>(handle);
    if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
      return set(layout.batch, value, bytes);
    if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
      return set(layout.step, value, bytes);
    refuse(CUDA_ERROR_INVALID_VALUE, "attribute {}", static_cast<int>(which));
  });
}
MESHTRAIN_FAKE cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  return answer("cublasLtMatmulPreferenceCreate", [&] {
    void* made = nullptr;
    make<Preference>(&made);
    *out = static_cast<cublasLtMatmulPreference_t>(made);
  });
}
MESHTRAIN_FAKE cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return answer("cublasLtMatmulPreferenceDestroy", [&] { destroy<Preference>(preference); });
}
MESHTRAIN_FAKE cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, size_t bytes) {
  return answer("cublasLtMatmulPreferenceSetAttribute", [&] {
    Preference& preference = get<Preference>(handle);
    uint32_t schemes = 0;
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
      return set(preference.workspace, value, bytes);
    if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
      return set(schemes, value, bytes);
    const int place = which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (place < 0 || place > 3)
      refuse(CUDA_ERROR_INVALID_VALUE, "attribute {}", static_cast<int>(which));
    set(preference.alignments[place], value, bytes);
  });
}
MESHTRAIN_FAKE cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t product_handle,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference_handle,
                                              int most, cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  return answer("cublasLtMatmulAlgoGetHeuristic", [&] {
    get<Handle>(handle);
    const Product& product = get<Product>(product_handle);
    const Preference& preference = get<Preference>(preference_handle);
    const Problem problem = problem_of(product, get<Layout>(a), get<Layout>(b), get<Layout>(d));
    *count = 0;
    for (uint32_t place = 0; place < 2 && *count < most; ++place) {
      const uint64_t workspace = place == 0 ? kWorkspace + result_bytes(problem.matmul) : 0;
      if (workspace > preference.workspace)
        continue;
      Algorithm algorithm{kMark, problem.hash, workspace, {}, alignment_of(product.bias), place};
      std::copy_n(preference.alignments, 4, algorithm.alignments);
      cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
      result = {};
      std::memcpy(&result.algo, &algorithm, sizeof(algorithm));
      result.workspaceSize = workspace;
      result.state = CUBLAS_STATUS_SUCCESS;
    }
  });
}
MESHTRAIN_FAKE cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* given,
                                       cublasLtMatmulHeuristicResult_t* result) {
  return answer("cublasLtMatmulAlgoCheck", [&] {
    get<Handle>(handle);
    Algorithm algorithm;
    std::memcpy(&algorithm, given, sizeof(algorithm));
    const Problem problem =
        problem_of(get<Product>(product), get<Layout>(a), get<Layout>(b), get<Layout>(d));
    if (algorithm.mark != kMark || algorithm.problem != problem.hash)
      throw Failure{CUDA_ERROR_NOT_SUPPORTED};
    *result = {};
    result->workspaceSize = algorithm.workspace;
  });
}
MESHTRAIN_FAKE cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product_handle,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* given,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream_handle) {
  return answer("cublasLtMatmul", [&] {
    Stream& stream = stream_of(reinterpret_cast<CUstream>(stream_handle));
    if (get<Handle>(handle).device != stream.device)
      refuse(CUDA_ERROR_INVALID_VALUE, "a handle of another device");
    const Product& product = get<Product>(product_handle);
    Problem problem =
        problem_of(product, get<Layout>(a_layout), get<Layout>(b_layout), get<Layout>(d_layout));
    Algorithm algorithm;
    std::memcpy(&algorithm, given, sizeof(algorithm));
    if (algorithm.mark != kMark || algorithm.problem != problem.hash)
      refuse(CUDA_ERROR_INVALID_VALUE, "an algorithm for another product");
    if (!is_number(alpha, product.scale, 1) || !is_number(beta, product.scale, 0) || c != d)
      refuse(CUDA_ERROR_INVALID_VALUE, "more than a product");
    if (workspace_bytes < algorithm.workspace)
      refuse(CUDA_ERROR_INVALID_VALUE, "{} bytes of workspace, of {}", workspace_bytes,
             algorithm.workspace);
    const char* const names[] = {"A", "B", "C", "D"};
    const void* const addresses[] = {a, b, c, d};
    Matmul& matmul = problem.matmul;
    const int64_t steps[] = {matmul.b_step, matmul.a_step, matmul.c_step, matmul.c_step};
    for (size_t i = 0; i < 4; ++i) {
      check_alignment(addresses[i], algorithm.alignments[i], names[i],
                      static_cast<size_t>(steps[i]) * dtype_size(matmul.spec.dtype));
    }
    check_alignment(workspace, 16, "the workspace");
    matmul.spec.a = static_cast<const std::byte*>(b);
    matmul.spec.b = static_cast<const std::byte*>(a);
    matmul.spec.c = static_cast<std::byte*>(d);
    matmul.epilogue = epilogue_of(product, matmul.spec.c);
    if (matmul.epilogue && matmul.epilogue->bias != nullptr)
      check_alignment(matmul.epilogue->bias, algorithm.bias_alignment, "the bias");
    check_memory(*stream.device, matmul);
    enqueue_product(stream, matmul, problem.use_tf32, static_cast<std::byte*>(workspace),
                    algorithm.workspace);
  });
}
