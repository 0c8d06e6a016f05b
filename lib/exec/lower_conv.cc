// Convolutions, pools and per-channel sums: lists of images (rows) over all shards, so that one
// kernel computes the images of every device.
#include <algorithm>
#include <array>

#include "exec/lower.h"
#include "ir/ops/window.h"

namespace meshtrain {
namespace {

constexpr size_t kSpatial = 3;

// The spatial part of (N, s..., C), or of (k..., c, F) with first = 0, behind ones.
void set_sizes(std::array<int64_t, kSpatial>& out, const Shape& shape, size_t first) {
  const size_t count = shape.size() - 2;
  for (size_t d = 0; d < count; ++d)
    out[kSpatial - count + d] = shape[first + d];
}

template <class S>
void set_window(S& shape, const Window& window) {
  const size_t count = window.strides.size();
  for (size_t d = 0; d < count; ++d) {
    shape.strides[kSpatial - count + d] = window.strides[d];
    shape.dilations[kSpatial - count + d] = window.dilations[d];
    shape.pads[kSpatial - count + d] = window.pads_before[d];
  }
}

ConvShape conv_shape(const StepContext& context, const Shape& x, const Shape& kernel,
                     const Shape& y) {
  ConvShape shape;
  shape.dtype = context.output(0).dtype;
  set_sizes(shape.input, x, 1);
  set_sizes(shape.cells, kernel, 0);
  set_sizes(shape.output, y, 1);
  set_window(shape, window_of(context.step.attrs));
  shape.channels = x.back();
  shape.filters = y.back();
  shape.groups = x.back() / kernel[kernel.size() - 2];
  return shape;
}

int64_t image_bytes(const Buffer& buffer) {
  return buffer.shape[0] == 0 ? 0 : buffer.shard_bytes / buffer.shape[0];
}

// The images of all shards of operand 0 through the kernels of operand 1.
std::vector<ConvJob> conv_jobs(const StepContext& context) {
  std::vector<ConvJob> jobs;
  const int64_t from = image_bytes(context.input(0)), to = image_bytes(context.output(0));
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    for (int64_t n = 0; n < context.output(0).shape[0]; ++n) {
      jobs.push_back({context.input_shard(0, p) + n * from, context.input_shard(1, p),
                      context.output_shard(0, p) + n * to});
    }
  }
  return jobs;
}

// Bytes from the beginning of the buffer of operand `i` to what each device along the axes that
// this step sums over holds, for each shard of the result.
std::vector<std::vector<int64_t>> summed_shards(const StepContext& context, size_t i) {
  std::vector<int> axes = context.axes();
  axes.insert(axes.end(), context.summed_axes().begin(), context.summed_axes().end());
  const View view =
      context.view_over(axes, context.input(i), nullptr, context.input(i).shape.size());
  int64_t terms = 1, shards = 1;
  for (size_t d = 0; d < axes.size(); ++d)
    (d < context.num_axes() ? shards : terms) *= view.shape[d];
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(shards));
  for (int64_t k = 0; k < shards * terms; ++k) {
    int64_t offset = 0, rest = k;
    for (size_t d = axes.size(); d-- > 0;) {
      offset += rest % view.shape[d] * view.strides[d];
      rest /= view.shape[d];
    }
    out[static_cast<size_t>(k / terms)].push_back(offset * view.item_size());
  }
  return out;
}

// `last`: the operand that u is multiplied with, u itself for moments.
void add_channel_sums(StepContext& context, size_t last) {
  const Buffer& u = context.input(0);
  const auto u_shards = summed_shards(context, 0), v_shards = summed_shards(context, last);
  std::vector<ChannelSumsJob> jobs;
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    ChannelSumsJob job;
    job.out = context.output_shard(0, p);
    for (size_t t = 0; t < u_shards[p].size(); ++t) {
      job.parts.push_back(
          {context.input_base(0) + u_shards[p][t], context.input_base(last) + v_shards[p][t]});
    }
    jobs.push_back(std::move(job));
  }
  const int64_t channels = u.shape.back();
  context.add(ChannelSumsSpec{u.dtype, num_elements(u.shape) / channels, channels, jobs});
}

// `x`, `y`: the shapes of the large and the small tensor; the index of operands, -1: none.
void add_pool(StepContext& context, PoolOp op, const Shape& x, const Shape& y, int x_operand,
              int dy_operand) {
  PoolShape shape;
  shape.dtype = context.output(0).dtype;
  set_sizes(shape.input, x, 1);
  set_sizes(shape.output, y, 1);
  set_window(shape, window_of(context.step.attrs));
  const std::vector<int64_t>& size = context.attr_ints("size");
  std::copy(size.begin(), size.end(), shape.cells.end() - static_cast<ptrdiff_t>(size.size()));
  shape.channels = x.back();
  const auto image = [&](int operand, int64_t p, int64_t n) -> const std::byte* {
    if (operand < 0)
      return nullptr;
    const size_t i = static_cast<size_t>(operand);
    return context.input_shard(i, p) + n * image_bytes(context.input(i));
  };
  std::vector<PoolJob> jobs;
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    for (int64_t n = 0; n < x[0]; ++n) {
      jobs.push_back({image(x_operand, p, n), image(dy_operand, p, n),
                      context.output_shard(0, p) + n * image_bytes(context.output(0))});
    }
  }
  context.add(PoolSpec{op, shape, std::move(jobs)});
}

const Shape& in(const StepContext& context, size_t i) {
  return context.input(i).shape;
}

const Shape& out(const StepContext& context) {
  return context.output(0).shape;
}

void lower_conv(StepContext& context) {
  const ConvShape shape = conv_shape(context, in(context, 0), in(context, 1), out(context));
  context.add(ConvSpec{shape, conv_jobs(context)});
}

void lower_conv_dgrad(StepContext& context) {
  const ConvShape shape = conv_shape(context, out(context), in(context, 1), in(context, 0));
  context.add(ConvDgradSpec{shape, conv_jobs(context)});
}

void lower_max_pool(StepContext& context) {
  add_pool(context, PoolOp::kMax, in(context, 0), out(context), 0, -1);
}

void lower_avg_pool(StepContext& context) {
  add_pool(context, PoolOp::kAverage, in(context, 0), out(context), 0, -1);
}

void lower_max_pool_grad(StepContext& context) {
  add_pool(context, PoolOp::kMaxGrad, out(context), in(context, 1), 0, 1);
}

void lower_avg_pool_grad(StepContext& context) {
  add_pool(context, PoolOp::kAverageGrad, out(context), in(context, 0), -1, 0);
}

}  // namespace

void lower_conv_wgrad(StepContext& context) {
  const Buffer &x = context.input(0), &dy = context.input(1);
  const auto x_shards = summed_shards(context, 0), dy_shards = summed_shards(context, 1);
  std::vector<WgradJob> jobs;
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    WgradJob job;
    job.to = context.output_shard(0, p);
    for (size_t t = 0; t < x_shards[p].size(); ++t) {
      for (int64_t n = 0; n < x.shape[0]; ++n) {
        job.images.push_back({context.input_base(0) + x_shards[p][t] + n * image_bytes(x),
                              context.input_base(1) + dy_shards[p][t] + n * image_bytes(dy)});
      }
    }
    jobs.push_back(std::move(job));
  }
  context.add(ConvWgradSpec{conv_shape(context, x.shape, context.output(0).shape, dy.shape), jobs});
}

void lower_moments(StepContext& context) {
  add_channel_sums(context, 0);
}

void lower_channel_sums(StepContext& context) {
  add_channel_sums(context, 1);
}

std::vector<OpLowering> conv_lowerings() {
  return {
      {"avg_pool", lower_avg_pool},         {"avg_pool_grad", lower_avg_pool_grad},
      {"channel_sums", lower_channel_sums}, {"conv", lower_conv},
      {"conv_dgrad", lower_conv_dgrad},     {"conv_wgrad", lower_conv_wgrad},
      {"max_pool", lower_max_pool},         {"max_pool_grad", lower_max_pool_grad},
      {"moments", lower_moments},
  };
}

}  // namespace meshtrain
