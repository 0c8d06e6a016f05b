#include "backend/cpu/lowering.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "backend/cpu/group.h"
#include "backend/cpu/half_arrays.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kShort = 32768, kUnitsOfShort = 128, kLeastElements = 64;

}  // namespace

int64_t elements_of_unit(int64_t total, int64_t most) {
  if (total > kShort)
    return most;
  const auto wanted = static_cast<uint64_t>(std::max<int64_t>(total / kUnitsOfShort, 1));
  return std::clamp(static_cast<int64_t>(std::bit_floor(wanted)), kLeastElements, most);
}

void CpuLowering::lower(KernelSpecs specs) {
  for (KernelSpec& spec : specs) {
    names_.resolve(spec);
    std::visit([this](const auto& one) { make(one); }, spec);
  }
}

void CpuLowering::make(const StepSpec& spec) {
  path_ = spec.path;
  steps_.emplace_back(kernels_.size(), spec.path);
  names_.clear();
  scratch_.begin_step();
}

std::vector<std::string> CpuLowering::paths() const {
  std::vector<std::string> result(kernels_.size());
  for (const auto& [first, path] : steps_) {
    for (size_t k = first; k < result.size(); ++k)
      result[k] = path;
  }
  return result;
}

void CpuLowering::make(const ScratchSpec& spec) {
  names_.add(spec, scratch_.take(spec.bytes));
}

void CpuLowering::make(const BeginGroup&) {
  group_begin_ = kernels_.size();
  in_group_ = true;
}

void CpuLowering::make(const EndGroup&) {
  in_group_ = false;
  const auto first = kernels_.begin() + static_cast<std::ptrdiff_t>(group_begin_);
  KernelList members(std::make_move_iterator(first), std::make_move_iterator(kernels_.end()));
  kernels_.erase(first, kernels_.end());
  for (KernelList* list : {&before_, &members, &after_}) {
    if (!list->empty())
      kernels_.push_back(make_group(std::move(*list)));
    list->clear();
  }
}

void CpuLowering::make(const CombineSpec& spec) {
  add(make_collective_(spec, path_));
}
void CpuLowering::make(const ExchangeSpec& spec) {
  add(make_collective_(spec, path_));
}
void CpuLowering::make(const AllReduceSpec& spec) {
  add(make_collective_(spec, path_));
}
void CpuLowering::make(const AllGatherSpec& spec) {
  add(make_collective_(spec, path_));
}
void CpuLowering::make(const ReduceScatterSpec& spec) {
  add(make_collective_(spec, path_));
}

void CpuLowering::add(KernelPtr kernel) {
  KernelList list;
  list.push_back(std::move(kernel));
  add(std::move(list));
}

void CpuLowering::add(KernelList list) {
  const auto append = [&](KernelList& more) {
    for (KernelPtr& kernel : more)
      kernels_.push_back(std::move(kernel));
    more.clear();
  };
  if (!in_group_)
    append(before_);
  append(list);
  if (!in_group_)
    append(after_);
}

std::byte* CpuLowering::read(DType dtype, const void* data, int64_t elements) {
  auto* array = static_cast<std::byte*>(const_cast<void*>(data));
  if (!is_half(dtype) || data == nullptr)
    return array;
  HalfArrays arrays(dtype, elements);
  arrays.add(array);
  arrays.take_scratch(scratch_);
  before_.push_back(arrays.widen());
  return arrays.wide(array);
}

std::byte* CpuLowering::written(DType dtype, void* data, int64_t elements) {
  auto* array = static_cast<std::byte*>(data);
  if (!is_half(dtype) || data == nullptr)
    return array;
  HalfArrays arrays(dtype, elements);
  arrays.add(array);
  arrays.take_scratch(scratch_);
  after_.push_back(arrays.narrow());
  return arrays.wide(array);
}

}  // namespace meshtrain::cpu
