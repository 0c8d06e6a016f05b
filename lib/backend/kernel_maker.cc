#include "backend/kernel_maker.h"

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

void KernelMaker::all_gather(const std::byte*, std::byte*, int64_t, const std::vector<int>&) {
  throw InternalError("this backend has no all-gather");
}
void KernelMaker::reduce_scatter(Reduction, DType, const std::byte*, std::byte*, int64_t,
                                 const std::vector<int>&) {
  throw InternalError("this backend has no reduce-scatter");
}

WarpFill warp_fill(std::string_view name) {
  return name == "nearest"   ? WarpFill::kNearest
         : name == "wrap"    ? WarpFill::kWrap
         : name == "reflect" ? WarpFill::kReflect
                             : WarpFill::kConstant;
}

int find_element_op(std::string_view name) {
  const auto* found = std::find(std::begin(kElementOps), std::end(kElementOps), name);
  return found == std::end(kElementOps) ? -1 : static_cast<int>(found - std::begin(kElementOps));
}

bool is_tape_op(std::string_view op) {
  return op == "cast" || find_element_op(op) >= 0;
}

}  // namespace meshtrain
