#include "backend/cuda/filters.h"

#include "backend/gpu/lowering.h"

namespace meshtrain::cuda {
namespace {

// The kernel as steps have it: (cells..., channels / groups, filters).
View own_view(const ConvShape& s, const std::byte* data) {
  return contiguous_view(const_cast<std::byte*>(data), s.dtype,
                         {s.cells[0], s.cells[1], s.cells[2], s.channels / s.groups, s.filters});
}

// The same elements where cuDNN has them.
View turned_view(const ConvShape& s, std::byte* data) {
  View view = own_view(s, data);
  const int64_t channels = s.channels / s.groups;
  view.strides = {s.cells[1] * s.cells[2] * channels, s.cells[2] * channels, channels, 1,
                  s.cells[0] * s.cells[1] * s.cells[2] * channels};
  return view;
}

std::vector<Access> accesses_of(const gpu::Conv& conv) {
  const ConvShape& s = conv.shape;
  const auto access = [&](const std::byte* data, int64_t bytes, gpu::ConvOp written_by) {
    return Access{data, data + bytes, conv.op == written_by};
  };
  return {access(conv.x, conv.images * s.input_bytes(), gpu::ConvOp::kDgrad),
          access(conv.kernel, s.kernel_elements() * s.item_size(), gpu::ConvOp::kWgrad),
          access(conv.y, conv.images * s.output_bytes(), gpu::ConvOp::kForward)};
}

}  // namespace

std::vector<gpu::Command> turn_filters(const std::vector<gpu::Command>& commands,
                                       const std::function<std::byte*(int64_t bytes)>& allocate) {
  gpu::GpuLowering lowering(allocate);
  std::vector<gpu::Command> result;
  const auto add_copy = [&](const View& from, const View& to) {
    lowering.lower(CopySpec{from, to});
    for (gpu::Command& command : lowering.take())
      result.push_back(std::move(command));
  };
  for (const gpu::Command& command : commands) {
    const gpu::Conv* const conv = std::get_if<gpu::Conv>(&command.what);
    if (conv == nullptr) {
      result.push_back(command);
      continue;
    }
    const ConvShape& shape = conv->shape;
    std::byte* const turned = allocate(shape.kernel_elements() * shape.item_size());
    const View own = own_view(shape, conv->kernel), there = turned_view(shape, turned);
    lowering.lower(StepSpec{command.path});
    if (conv->op != gpu::ConvOp::kWgrad)
      add_copy(own, there);
    gpu::Conv moved = *conv;
    moved.kernel = turned;
    result.push_back({moved, accesses_of(moved), command.path});
    if (conv->op == gpu::ConvOp::kWgrad)
      add_copy(there, own);
  }
  return result;
}

}  // namespace meshtrain::cuda
