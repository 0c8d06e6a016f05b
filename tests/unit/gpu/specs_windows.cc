// Convolutions, pools, per-channel sums.
#include <cmath>

#include "specs.h"

namespace meshtrain::test {
namespace {

int64_t elements(const std::array<int64_t, 3>& sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

// `output` as it follows from the rest; `pad` before and after every dimension with cells.
ConvShape conv_shape(std::array<int64_t, 3> input, std::array<int64_t, 3> cells, int64_t channels,
                     int64_t filters, int64_t groups = 1, int64_t stride = 1, int64_t dilation = 1,
                     int64_t pad = 0) {
  ConvShape s;
  s.input = input;
  s.cells = cells;
  s.channels = channels;
  s.filters = filters;
  s.groups = groups;
  for (size_t d = 0; d < 3; ++d) {
    const bool is_spatial = input[d] > 1;
    s.strides[d] = is_spatial ? stride : 1;
    s.dilations[d] = is_spatial ? dilation : 1;
    s.pads[d] = is_spatial ? pad : 0;
    const int64_t window = (cells[d] - 1) * s.dilations[d] + 1;
    s.output[d] = (input[d] + 2 * s.pads[d] - window) / s.strides[d] + 1;
  }
  return s;
}

std::string text_of(const ConvShape& s) {
  return fmt::format("{} in {} cells {} stride {} dilation {} pad {} channels {} to {} groups {}",
                     dtype_name(s.dtype), fmt::join(s.input, "x"), fmt::join(s.cells, "x"),
                     s.strides[2], s.dilations[2], s.pads[2], s.channels, s.filters, s.groups);
}

// `devices` shards with a kernel each, of `images` images; the shards lie in the opposite order
// where `is_mixed`.
struct Images {
  int64_t devices = 1, images = 1;
  bool is_mixed = false;

  int64_t count() const { return devices * images; }
  int64_t place(int64_t device, int64_t image) const {
    return (is_mixed ? devices - 1 - device : device) * images + image;
  }
};

void add_conv(SpecList& list, ConvShape shape, DType dtype, const Images& images) {
  shape.dtype = dtype;
  const int64_t x = elements(shape.input) * shape.channels * images.count();
  const int64_t y = elements(shape.output) * shape.filters * images.count();
  const int64_t kernel_bytes = shape.kernel_elements() * shape.item_size();
  const SpecArray kernels{dtype, shape.kernel_elements() * images.devices, Values::kSigned};
  const std::string what = fmt::format("{} images {}x{}{}", text_of(shape), images.devices,
                                       images.images, images.is_mixed ? " mixed" : "");
  const auto jobs = [=](const SpecPointers& memory, int64_t from_bytes, int64_t to_bytes) {
    std::vector<ConvJob> out;
    for (int64_t d = 0; d < images.devices; ++d) {
      for (int64_t i = 0; i < images.images; ++i) {
        out.push_back({memory[0] + images.place(d, i) * from_bytes, memory[1] + d * kernel_bytes,
                       memory[2] + (d * images.images + i) * to_bytes});
      }
    }
    return out;
  };
  const int64_t window = elements(shape.cells) * shape.channels / shape.groups;
  list.add("conv " + what, {{dtype, x, Values::kSigned}, kernels, result(dtype, y)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(
                 ConvSpec{shape, jobs(memory, shape.input_bytes(), shape.output_bytes())});
           })
      .scale = std::sqrt(static_cast<double>(window));
  list.add("conv_dgrad " + what, {{dtype, y, Values::kSigned}, kernels, result(dtype, x)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(
                 ConvDgradSpec{shape, jobs(memory, shape.output_bytes(), shape.input_bytes())});
           })
      .scale = std::sqrt(static_cast<double>(elements(shape.cells) * shape.filters));
  list.add("conv_wgrad " + what,
           {{dtype, x, Values::kSigned},
            {dtype, y, Values::kSigned},
            result(dtype, shape.kernel_elements() * images.devices)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             std::vector<WgradJob> out;
             for (int64_t d = 0; d < images.devices; ++d) {
               WgradJob job;
               job.to = memory[2] + d * kernel_bytes;
               for (int64_t i = 0; i < images.images; ++i) {
                 job.images.push_back({memory[0] + images.place(d, i) * shape.input_bytes(),
                                       memory[1] + (d * images.images + i) * shape.output_bytes()});
               }
               out.push_back(std::move(job));
             }
             specs.emplace_back(ConvWgradSpec{shape, out});
           })
      .scale = std::sqrt(static_cast<double>(elements(shape.output) * images.images));
}

void add_channel_sums(SpecList& list, DType dtype, int64_t rows, int64_t channels, int64_t devices,
                      int64_t parts, bool is_product) {
  const int64_t bytes = rows * channels * static_cast<int64_t>(dtype_size(dtype));
  const SpecArray u{dtype, rows * channels * devices * parts, Values::kSigned};
  list.add(fmt::format("channel_sums {} {} ({}, {}) {} devices {} parts",
                       is_product ? "products" : "squares", dtype_name(dtype), rows, channels,
                       devices, parts),
           {u, u, result(kF64, 2 * channels * devices)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             std::vector<ChannelSumsJob> jobs;
             for (int64_t d = 0; d < devices; ++d) {
               ChannelSumsJob job;
               job.out = memory[2] + d * 2 * channels * 8;
               for (int64_t p = 0; p < parts; ++p) {
                 const int64_t first = (p * devices + d) * bytes;
                 job.parts.push_back({memory[0] + first, memory[is_product ? 1 : 0] + first});
               }
               jobs.push_back(std::move(job));
             }
             specs.emplace_back(ChannelSumsSpec{dtype, rows, channels, jobs});
           })
      .scale = std::sqrt(static_cast<double>(rows * parts));
}

}  // namespace

std::vector<KernelCase> conv_specs() {
  SpecList list;
  const std::vector<ConvShape> shapes = {
      conv_shape({1, 8, 8}, {1, 3, 3}, 4, 6),
      conv_shape({1, 9, 7}, {1, 3, 3}, 3, 8, 1, 2, 1, 1),
      conv_shape({1, 10, 10}, {1, 3, 2}, 2, 5, 1, 1, 2, 1),
      conv_shape({1, 6, 6}, {1, 1, 1}, 16, 8),
      conv_shape({1, 7, 7}, {1, 3, 3}, 8, 8, 8, 1, 1, 1),   // depthwise
      conv_shape({1, 7, 7}, {1, 3, 3}, 4, 8, 4, 2, 1, 1),   // two filters a channel
      conv_shape({1, 6, 6}, {1, 3, 3}, 6, 9, 3, 1, 1, 1),   // groups
      conv_shape({1, 1, 20}, {1, 1, 5}, 3, 4, 1, 3, 1, 2),  // one dimension
      conv_shape({4, 5, 6}, {2, 3, 3}, 2, 3, 1, 1, 1, 1),   // three dimensions
      conv_shape({1, 5, 5}, {1, 5, 5}, 1, 1),
  };
  for (const ConvShape& shape : shapes)
    add_conv(list, shape, kF32, {1, 3});
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (size_t i : {0u, 1u, 4u, 6u})
      add_conv(list, shapes[i], dtype, {1, 2});
  }
  for (const ConvShape& shape : shapes)
    add_conv(list, shape, kF64, {1, 2});
  // Many pixels for few elements of a kernel; several kernels; images out of order.
  for (const Images& images : {Images{1, 8}, Images{2, 3}, Images{3, 2, true}})
    add_conv(list, conv_shape({1, 20, 18}, {1, 3, 3}, 2, 3, 1, 1, 1, 1), kF64, images);
  for (DType dtype : {kF32, kF64, DType::kBFloat16}) {
    ConvShape fewer = conv_shape({1, 12, 20}, {1, 3, 3}, 3, 4, 1, 1, 1, 1);
    fewer.output = {1, 12, 17};  // than fit
    add_conv(list, fewer, dtype, {1, 8});
  }
  for (size_t i : {0u, 4u, 6u}) {
    add_conv(list, shapes[i], kF32, {4, 2});
    add_conv(list, shapes[i], kF32, {3, 1, true});
  }
  add_conv(list, conv_shape({1, 14, 14}, {1, 3, 3}, 12, 24, 1, 1, 1, 1), kF32, {2, 4});
  for (DType dtype : {kF32, DType::kBFloat16})
    add_conv(list, conv_shape({1, 9, 7}, {1, 1, 1}, 31, 5, 1, 2), dtype, {1, 3});  // few products
  for (DType dtype : float_dtypes()) {
    for (bool is_product : {false, true}) {
      add_channel_sums(list, dtype, 50, 12, 1, 1, is_product);
      add_channel_sums(list, dtype, 1000, 3, 2, 2, is_product);
      add_channel_sums(list, dtype, 7, 300, 4, 1, is_product);
      add_channel_sums(list, dtype, 1, 1, 1, 3, is_product);
    }
  }
  return list.take();
}

namespace {

void add_pool(SpecList& list, PoolOp op, const PoolShape& s, int64_t images) {
  const bool is_grad = op == PoolOp::kMaxGrad || op == PoolOp::kAverageGrad;
  const int64_t x = elements(s.input) * s.channels * images;
  const int64_t y = elements(s.output) * s.channels * images;
  const char* const names[] = {"max", "average", "max gradient", "average gradient"};
  list.add(
          fmt::format("pool {} {} in {} cells {} stride {} dilation {} pad {} channels {}",
                      names[static_cast<int>(op)], dtype_name(s.dtype), fmt::join(s.input, "x"),
                      fmt::join(s.cells, "x"), s.strides[2], s.dilations[2], s.pads[2], s.channels),
          {{s.dtype, x, Values::kFewValues},
           {s.dtype, y, Values::kSigned},
           result(s.dtype, is_grad ? x : y)},
          [=](KernelSpecs& specs, const SpecPointers& memory) {
            const int64_t from = s.input_bytes(), to = s.output_bytes();
            std::vector<PoolJob> jobs;
            for (int64_t i = 0; i < images; ++i) {
              const bool reads_x = op != PoolOp::kAverageGrad;
              jobs.push_back({reads_x ? memory[0] + i * from : nullptr,
                              is_grad ? memory[1] + i * to : nullptr,
                              memory[2] + i * (is_grad ? from : to)});
            }
            specs.emplace_back(PoolSpec{op, s, jobs});
          })
      .scale = op == PoolOp::kMax ? 0 : 1;
}

PoolShape pool_shape(DType dtype, const ConvShape& conv) {
  PoolShape s;
  s.dtype = dtype;
  s.input = conv.input;
  s.output = conv.output;
  s.cells = conv.cells;
  s.strides = conv.strides;
  s.dilations = conv.dilations;
  s.pads = conv.pads;
  s.channels = conv.channels;
  return s;
}

}  // namespace

std::vector<KernelCase> pool_specs() {
  SpecList list;
  const std::vector<ConvShape> shapes = {
      conv_shape({1, 8, 8}, {1, 2, 2}, 6, 6, 1, 2),
      conv_shape({1, 9, 9}, {1, 3, 3}, 5, 5, 1, 2, 1, 1),  // windows overlap and stand out
      conv_shape({1, 7, 6}, {1, 3, 2}, 300, 300, 1, 1),
      conv_shape({1, 1, 30}, {1, 1, 4}, 3, 3, 1, 3, 1, 1),
      conv_shape({4, 6, 5}, {2, 2, 2}, 2, 2, 1, 2),
      conv_shape({1, 10, 10}, {1, 2, 3}, 4, 4, 1, 1, 2, 1),
  };
  for (PoolOp op : {PoolOp::kMax, PoolOp::kAverage, PoolOp::kMaxGrad, PoolOp::kAverageGrad}) {
    for (const ConvShape& shape : shapes)
      add_pool(list, op, pool_shape(kF32, shape), 3);
    for (DType dtype : {kF64, DType::kBFloat16, DType::kFloat16})
      add_pool(list, op, pool_shape(dtype, shapes[1]), 2);
  }
  return list.take();
}

}  // namespace meshtrain::test
