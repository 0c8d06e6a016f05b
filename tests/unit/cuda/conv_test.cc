#include "backend/cuda/conv.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "../gpu/specs.h"
#include "backend/cuda/libraries.h"
#include "backend/gpu/conv.h"
#include "backend/gpu/lowering.h"
#include "gpu_description.h"
#include "support/splitmix.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

ConvShape image_shape(DType dtype, int64_t size, int64_t channels, int64_t filters, int64_t cells,
                      int64_t stride) {
  ConvShape shape;
  shape.dtype = dtype;
  const int64_t pad = cells / 2, output = (size + 2 * pad - cells) / stride + 1;
  shape.input = {1, size, size};
  shape.output = {1, output, output};
  shape.cells = {1, cells, cells};
  shape.strides = {1, stride, stride};
  shape.pads = {0, pad, pad};
  shape.channels = channels;
  shape.filters = filters;
  return shape;
}

// cuDNN's own formula for the size of y.
void check_sizes(const cuda::ConvLayout& layout) {
  for (size_t d = 0; d < layout.steps.size(); ++d) {
    const int64_t window = (layout.kernel[d + 2] - 1) * layout.dilations[d] + 1;
    const int64_t places = layout.x[d + 2] + layout.pads_before[d] + layout.pads_after[d] - window;
    CHECK(layout.y[d + 2] == places / layout.steps[d] + 1);
  }
}

TEST_CASE("layouts have channels adjacent and leave out what has one place") {
  const cuda::ConvLayout layout =
      cuda::conv_layout(image_shape(DType::kFloat32, 28, 3, 16, 5, 2), 8);
  CHECK(layout.x == std::vector<int64_t>{8, 3, 28, 28});
  CHECK(layout.x_strides == std::vector<int64_t>{28 * 28 * 3, 1, 28 * 3, 3});
  CHECK(layout.kernel == std::vector<int64_t>{16, 3, 5, 5});
  CHECK(layout.kernel_strides == std::vector<int64_t>{5 * 5 * 3, 1, 5 * 3, 3});
  CHECK(layout.y == std::vector<int64_t>{8, 16, 14, 14});
  CHECK(layout.y_strides == std::vector<int64_t>{14 * 14 * 16, 1, 14 * 16, 16});
  CHECK(layout.pads_before == std::vector<int64_t>{2, 2});
  CHECK(layout.pads_after == std::vector<int64_t>{1, 1});  // stride 2 ends before the second
  check_sizes(layout);
}

TEST_CASE("one and three spatial dimensions and inputs that no window reaches") {
  ConvShape shape;
  shape.input = {12, 1, 1};
  shape.cells = {3, 1, 1};
  shape.dilations = {2, 1, 1};
  shape.output = {2, 1, 1};  // valid, stride 4: the last three are not seen
  shape.strides = {4, 1, 1};
  shape.channels = 4;
  shape.filters = 6;
  shape.groups = 2;
  const cuda::ConvLayout line = cuda::conv_layout(shape, 5);
  CHECK(line.x == std::vector<int64_t>{5, 4, 12, 1});
  CHECK(line.kernel == std::vector<int64_t>{6, 2, 3, 1});
  CHECK(line.pads_after == std::vector<int64_t>{0, 0});
  check_sizes(line);

  shape.input = {7, 8, 9};
  shape.cells = {3, 3, 3};
  shape.dilations = {1, 1, 1};
  shape.strides = {1, 2, 3};
  shape.pads = {1, 0, 2};
  shape.output = {7, 3, 4};
  const cuda::ConvLayout volume = cuda::conv_layout(shape, 5);
  CHECK(volume.x == std::vector<int64_t>{5, 4, 7, 8, 9});
  CHECK(volume.steps == std::vector<int64_t>{1, 2, 3});
  check_sizes(volume);
}

struct Planner {
  Planner(int compute, bool use_tf32) : convs(core, gpu_description(compute)) {
    core.name = "described";
    core.options.use_tf32 = use_tf32;
  }
  // The engine that was chosen. Images and results lie `offset` behind multiples of 256 bytes.
  const cuda::CudnnObject& engine(const ConvShape& shape, gpu::ConvOp op, int64_t images = 16,
                                  uint64_t offset = 0) {
    gpu::Conv conv{op, shape, images};
    conv.kernel = reinterpret_cast<const std::byte*>(uint64_t{1} << 40);
    conv.x = conv.y = conv.kernel + offset;
    const cuda::ConvPlan& plan = convs.plan(conv);
    return plan.parts[plan.parts.size() - 2];
  }
  std::vector<cudnnBackendNumericalNote_t> notes(const ConvShape& shape, gpu::ConvOp op,
                                                 uint64_t offset = 0) {
    return engine(shape, op, 16, offset).numerical_notes();
  }

  cuda::Core core;
  cuda::Convs convs;
};

bool has(const std::vector<cudnnBackendNumericalNote_t>& notes, cudnnBackendNumericalNote_t note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

TEST_CASE("cuDNN plans every convolution deterministically and in the precision asked for") {
  for (const int compute : {80, 90, 120}) {
    for (const bool use_tf32 : {false, true}) {
      Planner planner(compute, use_tf32);
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        for (const ConvShape& shape :
             {image_shape(dtype, 28, 1, 32, 3, 1), image_shape(dtype, 28, 32, 64, 3, 1),
              image_shape(dtype, 14, 64, 64, 3, 2), image_shape(dtype, 32, 3, 16, 7, 2),
              image_shape(dtype, 9, 6, 10, 1, 1), image_shape(dtype, 9, 5, 7, 4, 3)}) {
          for (const gpu::ConvOp op :
               {gpu::ConvOp::kForward, gpu::ConvOp::kDgrad, gpu::ConvOp::kWgrad}) {
            CAPTURE(compute);
            CAPTURE(shape.channels);
            const auto notes = planner.notes(shape, op);
            CHECK(!has(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
            CHECK(!has(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
            if (dtype == DType::kFloat32 && !use_tf32)
              CHECK(!has(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
            else if (shape.channels >= 8)
              CHECK(has(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
          }
        }
      }
    }
  }
}

// Those for float32 copy whole operands into another layout.
TEST_CASE("tensor cores compute large batches, too") {
  const ConvShape shape = image_shape(DType::kFloat32, 56, 64, 256, 1, 1);
  for (const int compute : {80, 90, 120}) {
    Planner planner(compute, true);
    for (const gpu::ConvOp op : {gpu::ConvOp::kForward, gpu::ConvOp::kDgrad, gpu::ConvOp::kWgrad}) {
      CAPTURE(compute);
      CAPTURE(static_cast<int>(op));
      CHECK(
          has(planner.engine(shape, op, 256).numerical_notes(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
    }
  }
}

// More images than lower_conv.cc puts into a command have no tensor cores.
TEST_CASE("tensor cores compute 16-bit gradients of kernels over almost 2^31 elements") {
  const ConvShape shape = image_shape(DType::kBFloat16, 112, 64, 64, 3, 1);
  for (const int compute : {80, 90, 120}) {
    CAPTURE(compute);
    Planner planner(compute, true);
    CHECK(has(planner.engine(shape, gpu::ConvOp::kWgrad, 2674).numerical_notes(),
              CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
  }
}

// A shard stands behind another one, or alone in another process, and has the same bits.
TEST_CASE("where nothing is measured the engine does not depend on the place of the images") {
  Planner planner(90, true);
  planner.core.options.measure = false;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const ConvShape& shape :
         {image_shape(dtype, 9, 3, 64, 3, 1), image_shape(dtype, 299, 3, 96, 3, 2),
          image_shape(dtype, 7, 5, 9, 3, 1), image_shape(dtype, 8, 8, 16, 3, 1)}) {
      for (const gpu::ConvOp op :
           {gpu::ConvOp::kForward, gpu::ConvOp::kDgrad, gpu::ConvOp::kWgrad}) {
        const auto chosen = [&](uint64_t offset) {
          return planner.engine(shape, op, 3, offset).get_int64(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
        };
        const uint64_t item = dtype_size(dtype);
        CAPTURE(shape.channels);
        CHECK(chosen(0) == chosen(3 * static_cast<uint64_t>(shape.input_bytes()) / item * item));
      }
    }
  }
}

TEST_CASE("cuDNN plans convolutions of images that begin anywhere") {
  for (const int compute : {80, 90, 120}) {
    Planner planner(compute, true);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const uint64_t item = dtype_size(dtype);
      for (const uint64_t offset : {item, 2 * item, 3 * item}) {
        for (const gpu::ConvOp op :
             {gpu::ConvOp::kForward, gpu::ConvOp::kDgrad, gpu::ConvOp::kWgrad})
          CHECK(!has(planner.notes(image_shape(dtype, 9, 5, 7, 3, 1), op, offset),
                     CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
      }
    }
  }
}

TEST_CASE("cuDNN plans every convolution of the catalogue that is its own") {
  std::vector<gpu::Conv> convs;
  for (const KernelCase& spec : conv_specs()) {
    gpu::GpuLowering lowering(
        [](int64_t) { return reinterpret_cast<std::byte*>(uint64_t{1} << 41); });
    SpecPointers memory;
    for (size_t i = 0; i < spec.arrays.size(); ++i)
      memory.push_back(reinterpret_cast<std::byte*>((uint64_t{1} << 40) + (i << 28)));
    lowering.lower(spec.lowered(memory));
    for (const gpu::Command& command : lowering.take()) {
      if (const auto* conv = std::get_if<gpu::Conv>(&command.what))
        convs.push_back(*conv);
    }
  }
  CHECK(convs.size() > 20);
  for (const int compute : {80, 90, 120}) {
    for (const bool use_tf32 : {false, true}) {
      Planner planner(compute, use_tf32);
      for (const gpu::Conv& conv : convs)
        CHECK(!planner.convs.plan(conv).parts.empty());
    }
  }
}

// A shape of 1 to 3 spatial dimensions; of every third, the padding behind is its own.
ConvShape random_shape(uint64_t seed) {
  uint64_t n = 0;
  const auto below = [&](uint64_t limit) { return splitmix_below(seed, n++, limit); };
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  ConvShape shape;
  shape.dtype = kDTypes[below(3)];
  shape.groups = below(2) == 0 ? 1 : 1 + below(5);
  const bool is_depthwise = shape.groups > 1 && below(2) == 0;
  shape.channels = shape.groups * (is_depthwise ? 1 : 1 + below(20));
  shape.filters = shape.groups * (1 + below(20));
  for (size_t d = static_cast<size_t>(below(3)); d < 3; ++d) {
    shape.cells[d] = 1 + below(5);
    shape.strides[d] = 1 + below(3);
    shape.dilations[d] = 1 + below(2);
    const int64_t window = (shape.cells[d] - 1) * shape.dilations[d] + 1;
    shape.input[d] = window + below(20);
    shape.pads[d] = below(static_cast<uint64_t>(window));
    const int64_t behind = seed % 3 == 0 ? below(static_cast<uint64_t>(window)) : shape.pads[d];
    shape.output[d] = (shape.input[d] + shape.pads[d] + behind - window) / shape.strides[d] + 1;
  }
  return shape;
}

TEST_CASE("cuDNN plans whatever it is said to take") {
  Planner planner(90, true);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const ConvShape shape = random_shape(seed);
    CAPTURE(seed);
    CHECK(gpu::library_takes(shape));
    for (const gpu::ConvOp op : {gpu::ConvOp::kForward, gpu::ConvOp::kDgrad, gpu::ConvOp::kWgrad})
      CHECK(!has(planner.notes(shape, op), CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
  }
}

TEST_CASE("a convolution that cuDNN cannot compute is refused with its shape") {
  Planner planner(90, true);
  ConvShape shape = image_shape(DType::kFloat32, 28, 3, 16, 3, 1);
  shape.groups = 2;  // of three channels
  const Caught error = caught([&] { planner.notes(shape, gpu::ConvOp::kForward); });
  CHECK(error.exit_code == 4);
  CHECK(error.says("gpu:0 (described): "));
}

}  // namespace
}  // namespace meshtrain::test
