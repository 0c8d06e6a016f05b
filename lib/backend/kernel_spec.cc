#include "backend/kernel_spec.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace meshtrain {
namespace {

constexpr std::string_view kElementOps[] = {
#define MESHTRAIN_NAME(name) #name,
    MESHTRAIN_ELEMENT_OPS(MESHTRAIN_NAME)
#undef MESHTRAIN_NAME
};

// Names of scratch: above every address of a backend, below those of all_steps.cc for no memory.
constexpr int64_t kFirstName = int64_t{1} << 61, kLastName = int64_t{1} << 62;
constexpr int64_t kGap = 256;  // between names, for addresses behind the last byte

int64_t number_of(const void* address) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
}

}  // namespace

int64_t ConvShape::input_bytes() const {
  return input[0] * input[1] * input[2] * channels * item_size();
}
int64_t ConvShape::output_bytes() const {
  return output[0] * output[1] * output[2] * filters * item_size();
}
int64_t ConvShape::kernel_elements() const {
  return cells[0] * cells[1] * cells[2] * (channels / groups) * filters;
}

int64_t PoolShape::input_bytes() const {
  return input[0] * input[1] * input[2] * channels * static_cast<int64_t>(dtype_size(dtype));
}
int64_t PoolShape::output_bytes() const {
  return output[0] * output[1] * output[2] * channels * static_cast<int64_t>(dtype_size(dtype));
}

WarpFill warp_fill(std::string_view name) {
  return name == "nearest"   ? WarpFill::kNearest
         : name == "wrap"    ? WarpFill::kWrap
         : name == "reflect" ? WarpFill::kReflect
         : name == "mirror"  ? WarpFill::kMirror
                             : WarpFill::kConstant;
}

int find_element_op(std::string_view name) {
  const auto* found = std::find(std::begin(kElementOps), std::end(kElementOps), name);
  return found == std::end(kElementOps) ? -1 : static_cast<int>(found - std::begin(kElementOps));
}

bool is_tape_op(std::string_view op) {
  return op == "cast" || find_element_op(op) >= 0;
}

std::byte* add_scratch(KernelSpecs& specs, int64_t bytes) {
  int64_t name = kFirstName;
  for (size_t i = specs.size(); i-- > 0 && !std::holds_alternative<StepSpec>(specs[i]);) {
    if (const auto* before = std::get_if<ScratchSpec>(&specs[i])) {
      name = number_of(before->name) + (before->bytes / kGap + 2) * kGap;
      break;
    }
  }
  specs.emplace_back(ScratchSpec{reinterpret_cast<std::byte*>(name), bytes});
  return reinterpret_cast<std::byte*>(name);
}

bool is_scratch_name(const void* address) {
  return number_of(address) >= kFirstName && number_of(address) < kLastName;
}

void ScratchNames::resolve(KernelSpec& spec) const {
  if (blocks_.empty() || std::holds_alternative<ScratchSpec>(spec))
    return;
  const auto resolve_one = [this]<class T>(T*& address) {
    if (!is_scratch_name(address))
      return;
    const int64_t number = number_of(address);
    const auto block = std::find_if(blocks_.rbegin(), blocks_.rend(), [&](const Block& b) {
      const int64_t first = number_of(b.spec.name);
      return number >= first && number < first + b.spec.bytes + kGap;
    });
    MESHTRAIN_CHECK(block != blocks_.rend(), "scratch of another step");
    address = block->memory + (number - number_of(block->spec.name));
  };
  std::visit([&](auto& one) { for_each_address(one, resolve_one); }, spec);
}

}  // namespace meshtrain
