#include "backend/cpu/conv_half.h"

#include <iterator>

#include "backend/cpu/half_arrays.h"

namespace meshtrain::cpu {
namespace {

ConvShape in_float32(ConvShape shape) {
  shape.dtype = DType::kFloat32;
  return shape;
}

void append(KernelList& list, KernelList more) {
  list.insert(list.end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

}  // namespace

KernelList make_half_conv(const ConvShape& shape, ConvKind kind, const std::vector<ConvJob>& jobs,
                          ScratchAllocator& scratch) {
  const bool is_forward = kind == ConvKind::kForward;
  const int64_t input = shape.input_bytes() / 2, output = shape.output_bytes() / 2;
  HalfArrays from(shape.dtype, is_forward ? input : output);
  HalfArrays kernels(shape.dtype, shape.kernel_elements());
  HalfArrays to(shape.dtype, is_forward ? output : input);
  for (const ConvJob& job : jobs) {
    from.add(job.from);
    kernels.add(job.kernel);
    to.add(job.to);
  }
  for (HalfArrays* arrays : {&from, &kernels, &to})
    arrays->take_scratch(scratch);
  std::vector<ConvJob> wide;
  for (const ConvJob& job : jobs)
    wide.push_back({from.wide(job.from), kernels.wide(job.kernel), to.wide(job.to)});
  KernelList list;
  list.push_back(from.widen());
  list.push_back(kernels.widen());
  append(list, is_forward ? make_conv(in_float32(shape), wide, scratch)
                          : make_conv_dgrad(in_float32(shape), wide, scratch));
  list.push_back(to.narrow());
  return list;
}

KernelList make_half_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs,
                           ScratchAllocator& scratch) {
  HalfArrays x(shape.dtype, shape.input_bytes() / 2), dy(shape.dtype, shape.output_bytes() / 2);
  HalfArrays to(shape.dtype, shape.kernel_elements());
  for (const WgradJob& job : jobs) {
    to.add(job.to);
    for (const WgradJob::Images& images : job.images) {
      x.add(images.x);
      dy.add(images.dy);
    }
  }
  for (HalfArrays* arrays : {&x, &dy, &to})
    arrays->take_scratch(scratch);
  std::vector<WgradJob> wide = jobs;
  for (WgradJob& job : wide) {
    job.to = to.wide(job.to);
    for (WgradJob::Images& images : job.images)
      images = {x.wide(images.x), dy.wide(images.dy)};
  }
  KernelList list;
  list.push_back(x.widen());
  list.push_back(dy.widen());
  append(list, make_conv_wgrad(in_float32(shape), wide, scratch));
  list.push_back(to.narrow());
  return list;
}

}  // namespace meshtrain::cpu
