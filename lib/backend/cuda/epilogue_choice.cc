#include "backend/cuda/epilogue_choice.h"

#include <cstdlib>
#include <string_view>

#include "backend/cuda/matmul_layout.h"

namespace meshtrain::cuda {
namespace {

constexpr const char* kKind = "epilogue";
constexpr const char* kFused = "fused";
constexpr const char* kApart = "apart";

std::optional<bool> kept_choice(const Cache& cache, const std::string& key) {
  const std::optional<std::string> kept = cache.find(kKind, key);
  if (kept == kFused || kept == kApart)
    return kept == kFused;
  return std::nullopt;
}

}  // namespace

double operations_of(const gpu::Matmul& matmul) {
  const MatmulSpec& spec = matmul.spec;
  return 2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) *
         static_cast<double>(spec.k) * static_cast<double>(matmul.batch);
}

bool uses_epilogues() {
  const char* const text = std::getenv("MESHTRAIN_EPILOGUES");
  return text == nullptr || std::string_view(text) != "0";
}

bool is_ours(const gpu::Matmul& matmul, const gpu::DeviceOptions& options) {
  const gpu::Epilogue& epilogue = *matmul.epilogue;
  const std::optional<MatmulLayout> layout = matmul_layout(matmul.spec);
  if (epilogue.bias != nullptr &&
      (!layout || alignments_of(matmul, *layout, !options.measure).bias < 16))
    return false;
  const bool is_exact = matmul.spec.dtype == DType::kFloat32 && !options.use_tf32;
  return epilogue.activation == gpu::Activation::kNone ||
         (epilogue.activation == gpu::Activation::kGelu && !is_exact);
}

bool fuses_unmeasured(const gpu::Matmul& matmul, int compute) {
  const gpu::Epilogue& epilogue = *matmul.epilogue;
  return compute >= 90 || operations_of(matmul) < kLongOperations ||
         (epilogue.bias != nullptr && epilogue.activation != gpu::Activation::kGelu);
}

bool measured_choice(bool unmeasured, const Cache& cache, const std::string& key,
                     const std::function<std::optional<EpilogueTimes>()>& measure) {
  if (const std::optional<bool> kept = kept_choice(cache, key))
    return *kept;
  const std::optional<EpilogueTimes> times = measure();
  const bool is_fused = times ? times->fused < times->apart : unmeasured;
  // Another process may have been faster; what is in the cache counts.
  if (const std::optional<bool> kept = kept_choice(cache, key))
    return *kept;
  cache.store(kKind, key, is_fused ? kFused : kApart);
  return kept_choice(cache, key).value_or(unmeasured);
}

}  // namespace meshtrain::cuda
