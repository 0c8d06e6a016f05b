// A catalogue of kernel specs: every kind, dtype and kind of shape, with operands of fixed seeds.
// Tests compare two backends on it, and compile all of its kernels.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kernel_spec.h"

namespace meshtrain::test {

inline constexpr DType kF32 = DType::kFloat32, kF64 = DType::kFloat64, kI32 = DType::kInt32,
                       kBool = DType::kBool;

enum class Values : uint8_t {
  kResult,    // garbage before, compared after
  kSigned,    // in [-2, 2)
  kPositive,  // in [0.1, 2.1)
  kUnit,      // in [0, 1)
  kSpecial,   // infinities, NaN, zeros of both signs, ties of rounding, small and large numbers
  kSmallIntegers,  // whole numbers in [-4, 4], from 0 where there is no sign
  kIds,            // whole numbers in [-2, 13)
  kBool,           // 0 or 1
  kStep,           // 7
  kFewValues,      // of five numbers: ties
};

// An array of a spec, in memory of its own, between bytes that must stay as they are.
struct SpecArray {
  DType dtype = DType::kFloat32;
  int64_t size = 1;  // elements
  Values values = Values::kSigned;
  bool is_updated = false;  // an operand that is a result, too
  int64_t shift = 0;        // elements by which it is off a multiple of 256 bytes

  bool is_compared() const { return is_updated || values == Values::kResult; }
};

using SpecPointers = std::vector<std::byte*>;

struct KernelCase {
  std::string name;  // "reduce sum float32 (16, 8) over 1"
  std::vector<SpecArray> arrays;
  // Adds the specs; the pointers are those of the arrays.
  std::function<void(KernelSpecs& specs, const SpecPointers& memory)> make;
  // Where given: other specs that have the same bits on the same backend, but not on GPUs where
  // these divide rows otherwise.
  std::function<void(KernelSpecs& specs, const SpecPointers& memory)> make_apart = nullptr;
  bool differs_apart_on_gpus = false;
  // Numbers may differ by a small part (tolerance_of) of `scale` plus their own size; 0: not at
  // all.
  double scale = 0.1;
  bool is_exact = false;  // floats have equal bits, too

  // The specs of a step of this name.
  KernelSpecs lowered(const SpecPointers& memory) const {
    KernelSpecs specs = {StepSpec{name}};
    make(specs, memory);
    return specs;
  }
};

// Relative to sizes of numbers: float32 1e-5, float64 1e-12, 16 bits their rounding, others 0.
double tolerance_of(DType dtype);
void fill_array(const SpecArray& array, uint64_t seed, std::byte* memory);

// By the kind of spec that they are about.
struct SpecFamily {
  std::string_view name;
  std::vector<KernelCase> (*specs)();
};
const std::vector<SpecFamily>& spec_families();

// For those who write specs.
class SpecList {
 public:
  KernelCase& add(std::string name, std::vector<SpecArray> arrays,
                  std::function<void(KernelSpecs&, const SpecPointers&)> make) {
    list_.push_back({std::move(name), std::move(arrays), std::move(make)});
    return list_.back();
  }
  std::vector<KernelCase> take() { return std::move(list_); }

 private:
  std::vector<KernelCase> list_;
};

inline SpecArray result(DType dtype, int64_t size) {
  return {dtype, size, Values::kResult};
}
inline SpecArray result(DType dtype, const Shape& shape) {
  return result(dtype, num_elements(shape));
}
inline SpecArray operand(DType dtype, const Shape& shape, Values values = Values::kSigned) {
  return {dtype, num_elements(shape), values};
}
std::vector<DType> float_dtypes();  // float32, float64, bfloat16, float16

std::vector<KernelCase> tape_specs();
std::vector<KernelCase> cast_specs();
std::vector<KernelCase> copy_specs();
std::vector<KernelCase> reduce_specs();
std::vector<KernelCase> row_specs();
std::vector<KernelCase> matmul_specs();
std::vector<KernelCase> scan_specs();
std::vector<KernelCase> conv_specs();
std::vector<KernelCase> pool_specs();
std::vector<KernelCase> lookup_specs();
std::vector<KernelCase> random_specs();
std::vector<KernelCase> warp_specs();
std::vector<KernelCase> attention_specs();
std::vector<KernelCase> rnn_specs();
std::vector<KernelCase> head_specs();
std::vector<KernelCase> optimizer_specs();
std::vector<KernelCase> combine_specs();
std::vector<KernelCase> view_specs();

}  // namespace meshtrain::test
