// Products with epilogues beside a cuBLASLt that is played here: what it is asked for, and when
// they are taken apart.
#include <doctest/doctest.h>

#include <map>

#include "backend/cuda/prepared.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

using gpu::Activation;

std::byte* at(int64_t place) {
  return reinterpret_cast<std::byte*>((int64_t{1} << 44) + place * (int64_t{1} << 28));
}

// What the played library offers and has seen.
struct Played {
  bool has_fused = true;
  cublasStatus_t without = CUBLAS_STATUS_NOT_SUPPORTED;  // for what it does not have
  int handles = 0, asked = 0;
  struct Description {
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
  };
  std::map<cublasLtMatmulDesc_t, Description> descriptions;
  struct Product {
    uint32_t epilogue;
    const void *bias, *first, *second, *to;
  };
  std::vector<Product> products;
};
Played* played = nullptr;

template <class Handle>
cublasStatus_t make(Handle* made) {
  *made = reinterpret_cast<Handle>(static_cast<uintptr_t>(16 * ++played->handles));
  return CUBLAS_STATUS_SUCCESS;
}

cuda::CublasLt make_library() {
  cuda::CublasLt out;
  out.cublasLtGetVersion = [] { return size_t{130100}; };
  out.cublasLtGetStatusName = [](cublasStatus_t) { return "name"; };
  out.cublasLtGetStatusString = [](cublasStatus_t) { return "what cuBLASLt calls it"; };
  out.cublasLtCreate = [](cublasLtHandle_t* made) { return make(made); };
  out.cublasLtDestroy = [](cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; };
  out.cublasLtMatmulDescCreate = [](cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                    cudaDataType_t) {
    make(made);
    played->descriptions[*made] = {};
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulDescDestroy = [](cublasLtMatmulDesc_t) { return CUBLAS_STATUS_SUCCESS; };
  out.cublasLtMatmulDescSetAttribute = [](cublasLtMatmulDesc_t which,
                                          cublasLtMatmulDescAttributes_t attribute,
                                          const void* value, size_t bytes) {
    Played::Description& description = played->descriptions.at(which);
    if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) {
      CHECK(bytes == sizeof(uint32_t));
      description.epilogue = *static_cast<const uint32_t*>(value);
    } else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) {
      CHECK(bytes == sizeof(void*));
      description.bias = *static_cast<const void* const*>(value);
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatrixLayoutCreate = [](cublasLtMatrixLayout_t* made, cudaDataType, uint64_t,
                                      uint64_t, int64_t) { return make(made); };
  out.cublasLtMatrixLayoutDestroy = [](cublasLtMatrixLayout_t) { return CUBLAS_STATUS_SUCCESS; };
  out.cublasLtMatrixLayoutSetAttribute = [](cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
                                            const void*, size_t) { return CUBLAS_STATUS_SUCCESS; };
  out.cublasLtMatmulPreferenceCreate = [](cublasLtMatmulPreference_t* made) { return make(made); };
  out.cublasLtMatmulPreferenceDestroy = [](cublasLtMatmulPreference_t) {
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulPreferenceSetAttribute = [](cublasLtMatmulPreference_t,
                                                cublasLtMatmulPreferenceAttributes_t, const void*,
                                                size_t) { return CUBLAS_STATUS_SUCCESS; };
  out.cublasLtMatmulAlgoGetHeuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t which,
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                          cublasLtMatmulPreference_t, int,
                                          cublasLtMatmulHeuristicResult_t* found, int* count) {
    ++played->asked;
    const Played::Description& description = played->descriptions.at(which);
    const bool is_fused = description.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    *count = 0;
    if (is_fused && !played->has_fused)
      return played->without;
    // Its pointer tells how the bias is aligned.
    CHECK((description.bias != nullptr) == ((description.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0));
    found[0] = {};
    found[0].state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
  };
  out.cublasLtMatmulAlgoCheck =
      [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*,
         cublasLtMatmulHeuristicResult_t*) { return CUBLAS_STATUS_SUCCESS; };
  out.cublasLtMatmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t which, const void*,
                          const void* first, cublasLtMatrixLayout_t, const void* second,
                          cublasLtMatrixLayout_t, const void*, const void* c,
                          cublasLtMatrixLayout_t, void* to, cublasLtMatrixLayout_t,
                          const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
    CHECK(c == to);
    const Played::Description& description = played->descriptions.at(which);
    played->products.push_back({description.epilogue, description.bias, first, second, to});
    return CUBLAS_STATUS_SUCCESS;
  };
  return out;
}

struct Library {
  Library() {
    played = &seen;
    cuda::play_cublas_lt(&functions);
    core.name = "NVIDIA H200";
  }
  ~Library() { cuda::play_cublas_lt(nullptr); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Played seen;
  cuda::CublasLt functions = make_library();
  cuda::Core core;
};

// What is behind it is a launch of nothing.
gpu::Matmul product(const std::byte* bias, Activation activation, int64_t size = 256) {
  gpu::Matmul out;
  MatmulSpec& s = out.spec;
  s.a = at(1);
  s.b = at(2);
  s.c = at(3);
  s.m = s.n = s.k = size;
  s.a_row = s.b_row = s.c_row = size;
  s.a_column = s.b_column = 1;
  gpu::Launch launch;
  launch.body = gpu::make_body("nothing", "", 0, false);
  launch.args = {s.c};
  out.epilogue = {bias, activation, at(4),
                  std::make_shared<const gpu::Command>(gpu::Command{launch, {}, "relu"})};
  return out;
}

constexpr int64_t kLong = 4096;

TEST_CASE("cuBLASLt gets the epilogue and the bias of every product that is enqueued") {
  Library library;
  cuda::Makers makers(library.core);
  struct Case {
    const std::byte* bias;
    Activation activation;
    uint32_t epilogue;
  };
  for (const Case& c : {Case{at(5), Activation::kNone, CUBLASLT_EPILOGUE_BIAS},
                        Case{at(5), Activation::kGelu, CUBLASLT_EPILOGUE_GELU_BIAS},
                        Case{nullptr, Activation::kGelu, CUBLASLT_EPILOGUE_GELU}}) {
    gpu::Matmul matmul = product(c.bias, c.activation);
    CHECK(makers.matmuls.is_fused(matmul));
    const cuda::MatmulPlan& plan = makers.matmuls.plan(matmul);
    library.seen.products.clear();
    makers.matmuls.enqueue(plan, matmul, nullptr, nullptr);
    if (c.bias != nullptr)
      matmul.epilogue->bias += 4096;  // another layer of the same shape
    CHECK(&makers.matmuls.plan(matmul) == &plan);
    makers.matmuls.enqueue(plan, matmul, nullptr, nullptr);
    REQUIRE(library.seen.products.size() == 2);
    for (const Played::Product& seen : library.seen.products) {
      CHECK(seen.epilogue == c.epilogue);
      CHECK(seen.first == at(2));
      CHECK(seen.second == at(1));
      CHECK(seen.to == at(4));
    }
    CHECK(library.seen.products[0].bias == c.bias);
    CHECK(library.seen.products[1].bias == matmul.epilogue->bias);
  }
  gpu::Matmul alone = product(nullptr, Activation::kNone);
  alone.epilogue.reset();
  library.seen.products.clear();
  makers.matmuls.enqueue(makers.matmuls.plan(alone), alone, nullptr, nullptr);
  CHECK(library.seen.products[0].epilogue == CUBLASLT_EPILOGUE_DEFAULT);
  CHECK(library.seen.products[0].to == at(3));
}

TEST_CASE("products whose bias is aligned otherwise have algorithms of their own") {
  Library library;
  cuda::Makers makers(library.core);
  gpu::Matmul matmul = product(at(5), Activation::kGelu);
  makers.matmuls.plan(matmul);
  CHECK(library.seen.asked == 1);
  matmul.epilogue->bias += 4;
  makers.matmuls.plan(matmul);
  CHECK(library.seen.asked == 2);
}

TEST_CASE("a library without fused algorithms is asked once and is no error") {
  for (const cublasStatus_t status :
       {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_SUCCESS}) {
    Library library;
    library.seen.has_fused = false;
    library.seen.without = status;
    cuda::Makers makers(library.core);
    const gpu::Matmul matmul = product(at(5), Activation::kGelu);
    CHECK(!makers.matmuls.is_fused(matmul));
    CHECK(!makers.matmuls.is_fused(matmul));
    CHECK(library.seen.asked == 1);
    gpu::Matmul alone = matmul;
    alone.epilogue.reset();
    makers.matmuls.plan(alone);
  }
}

TEST_CASE("a failure of one process is no choice where several must round alike") {
  for (const bool is_alone : {true, false}) {
    for (const cublasStatus_t status : {CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INVALID_VALUE}) {
      Library library;
      library.core.options.measure = is_alone;
      library.seen.has_fused = false;
      library.seen.without = status;
      cuda::Makers makers(library.core);
      const gpu::Matmul matmul = product(at(5), Activation::kGelu);
      if (is_alone || status == CUBLAS_STATUS_INVALID_VALUE)
        CHECK(!makers.matmuls.is_fused(matmul));
      else
        CHECK_THROWS_AS(makers.matmuls.is_fused(matmul), RuntimeFailure);
    }
  }
}

TEST_CASE("MESHTRAIN_EPILOGUES=0 asks for no epilogue") {
  Library library;
  cuda::Makers makers(library.core);
  ::setenv("MESHTRAIN_EPILOGUES", "0", 1);
  CHECK(!makers.matmuls.is_fused(product(at(5), Activation::kGelu)));
  CHECK(library.seen.asked == 0);
  ::unsetenv("MESHTRAIN_EPILOGUES");
  CHECK(makers.matmuls.is_fused(product(at(5), Activation::kGelu)));
}

TEST_CASE("a relu that would hide a NaN is not asked for") {
  Library library;
  library.core.compute = 90;
  cuda::Makers makers(library.core);
  for (const std::byte* bias :
       {static_cast<const std::byte*>(at(5)), static_cast<const std::byte*>(nullptr)}) {
    for (const int64_t size : {int64_t{256}, kLong})
      CHECK(!makers.matmuls.is_fused(product(bias, Activation::kRelu, size)));
  }
  CHECK(library.seen.asked == 0);
}

TEST_CASE("a gelu is not asked for where float32 is exact nor a bias at an odd place") {
  Library library;
  for (const bool use_tf32 : {true, false}) {
    library.core.options.use_tf32 = use_tf32;
    cuda::Makers makers(library.core);
    CHECK(makers.matmuls.is_fused(product(at(5), Activation::kGelu)) == use_tf32);
    CHECK(makers.matmuls.is_fused(product(at(5), Activation::kNone)));
    CHECK(!makers.matmuls.is_fused(product(at(5) + 4, Activation::kNone)));
    gpu::Matmul half = product(at(5), Activation::kGelu);
    half.spec.dtype = DType::kBFloat16;
    CHECK(makers.matmuls.is_fused(half));
  }
}

TEST_CASE("where nothing is measured the choice depends on nothing but product and GPU") {
  Library library;
  for (const int compute : {80, 90, 120}) {
    CAPTURE(compute);
    library.core.compute = compute;
    cuda::Makers makers(library.core);
    const auto is_fused = [&](const std::byte* bias, Activation activation, int64_t size) {
      return makers.matmuls.is_fused(product(bias, activation, size));
    };
    for (const Activation activation : {Activation::kNone, Activation::kGelu})
      CHECK(is_fused(at(5), activation, 256));
    CHECK(is_fused(nullptr, Activation::kGelu, 256));
    CHECK(is_fused(at(5), Activation::kNone, kLong));
    CHECK(is_fused(at(5), Activation::kGelu, kLong) == (compute >= 90));
    CHECK(is_fused(nullptr, Activation::kGelu, kLong) == (compute >= 90));
  }
}

TEST_CASE("what takes less time is chosen and comes from the cache in the next process") {
  const TempFolder folder;
  const cuda::Cache cache(folder.path());
  int measured = 0;
  const auto choose = [&](const std::string& key, float fused, float apart) {
    return cuda::measured_choice(true, cache, key, [&] {
      ++measured;
      return cuda::EpilogueTimes{fused, apart};
    });
  };
  CHECK(choose("one", 1, 2));
  CHECK(!choose("another", 2, 1));
  CHECK(measured == 2);
  CHECK(choose("one", 2, 1));
  CHECK(!choose("another", 1, 2));
  CHECK(measured == 2);
  const float never = std::numeric_limits<float>::infinity();
  CHECK(!choose("fails", never, 1));
  CHECK(!choose("both fail", never, never));
  CHECK(choose("the launch fails", 1, never));
}

TEST_CASE("a choice without measuring is kept like one with it") {
  const TempFolder folder;
  const cuda::Cache cache(folder.path());
  CHECK(!cuda::measured_choice(false, cache, "key", [] { return std::nullopt; }));
  CHECK(!cuda::measured_choice(true, cache, "key", []() -> std::optional<cuda::EpilogueTimes> {
    FAIL("nothing is to be measured");
    return std::nullopt;
  }));
  // What cannot be kept would be measured otherwise by the next run.
  const cuda::Cache nowhere("/proc/no folder");
  CHECK(!cuda::measured_choice(false, nowhere, "key", [] { return cuda::EpilogueTimes{1, 2}; }));
  CHECK(cuda::measured_choice(true, nowhere, "key", [] { return cuda::EpilogueTimes{2, 1}; }));
  // What another process stored meanwhile counts.
  CHECK(cuda::measured_choice(false, cache, "other", [&] {
    cache.store("epilogue", "other", "fused");
    return cuda::EpilogueTimes{2, 1};
  }));
}

TEST_CASE("commands with other epilogues have other fingerprints") {
  const auto fingerprint = [](const gpu::Matmul& matmul) {
    return cuda::fingerprint({{matmul, {}, "dense"}});
  };
  const gpu::Matmul one = product(at(5), Activation::kRelu);
  CHECK(fingerprint(one) == fingerprint(product(at(5), Activation::kRelu)));
  CHECK(fingerprint(one) != fingerprint(product(at(6), Activation::kRelu)));
  CHECK(fingerprint(one) != fingerprint(product(at(5), Activation::kGelu)));
  gpu::Matmul other = one;
  other.epilogue->to = at(6);
  CHECK(fingerprint(one) != fingerprint(other));
  other.epilogue.reset();
  CHECK(fingerprint(one) != fingerprint(other));
}

}  // namespace
}  // namespace meshtrain::test
