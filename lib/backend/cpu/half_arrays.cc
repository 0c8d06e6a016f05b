#include "backend/cpu/half_arrays.h"

#include <algorithm>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/group.h"

namespace meshtrain::cpu {

void HalfArrays::add(const std::byte* array) {
  if (array != nullptr)
    arrays_.push_back(array);
}

void HalfArrays::take_scratch(ScratchAllocator& scratch) {
  std::sort(arrays_.begin(), arrays_.end());
  arrays_.erase(std::unique(arrays_.begin(), arrays_.end()), arrays_.end());
  for (const std::byte* array : arrays_) {
    if (!runs_.empty() && array == runs_.back().begin + runs_.back().count * bytes()) {
      ++runs_.back().count;
    } else {
      runs_.push_back({array, 1, nullptr});
    }
  }
  for (Run& run : runs_)
    run.wide = scratch.take(run.count * elements_ * static_cast<int64_t>(sizeof(float)));
}

std::byte* HalfArrays::wide(const std::byte* array) const {
  if (array == nullptr)
    return nullptr;
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), array,
                       [](const std::byte* place, const Run& run) { return place < run.begin; });
  MESHTRAIN_CHECK(after != runs_.begin());
  const Run& run = *(after - 1);
  return run.wide + (array - run.begin) * 2;
}

KernelPtr HalfArrays::convert(bool to_wide) const {
  KernelList list;
  for (const Run& run : runs_) {
    const Shape shape = {run.count * elements_};
    const View half = contiguous_view(const_cast<std::byte*>(run.begin), dtype_, shape);
    const View wide = contiguous_view(run.wide, DType::kFloat32, shape);
    const View& from = to_wide ? half : wide;
    const View& to = to_wide ? wide : half;
    list.push_back(make_tape(shape, {from}, {{"cast", {0}, to.dtype, 0, 0}}, {{0, to}}));
  }
  return make_group(std::move(list));
}

}  // namespace meshtrain::cpu
