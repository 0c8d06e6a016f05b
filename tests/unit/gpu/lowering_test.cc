// Into how many commands of which kind GpuLowering turns products, convolutions and reductions.
#include "backend/gpu/lowering.h"

#include <doctest/doctest.h>

#include "backend/gpu/conv.h"
#include "backend/gpu/merge_launches.h"

namespace meshtrain::test {
namespace {

using gpu::Command;
using gpu::Conv;
using gpu::Launch;
using gpu::Matmul;

constexpr DType kF32 = DType::kFloat32;

// Addresses that nobody follows.
struct Made {
  std::byte* next = reinterpret_cast<std::byte*>(uint64_t{1} << 44);
  gpu::GpuLowering lowering{[this](int64_t bytes) { return take(bytes); }};

  Made() { lowering.lower(StepSpec{"test"}); }
  std::byte* take(int64_t bytes) {
    std::byte* out = next;
    next += (bytes + 511) / 256 * 256;
    return out;
  }
  View view(DType dtype, const Shape& shape) {
    return contiguous_view(take(num_elements(shape) * static_cast<int64_t>(dtype_size(dtype))),
                           dtype, shape);
  }
  void reduce(const Shape& shape, const std::vector<bool>& reduced) {
    Shape out;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!reduced[d])
        out.push_back(shape[d]);
    }
    lowering.lower(ReduceSpec{Reduction::kSum, view(kF32, shape), reduced, view(kF32, out)});
  }
  // A (m, k) times B (k, n), rows adjacent.
  MatmulSpec product(DType dtype, int64_t m, int64_t n, int64_t k) {
    MatmulSpec spec;
    spec.dtype = dtype;
    spec.a = take(1 << 30);
    spec.b = take(1 << 30);
    spec.c = take(1 << 30);
    spec.m = m;
    spec.n = n;
    spec.k = k;
    spec.a_row = k;
    spec.a_column = spec.b_column = 1;
    spec.b_row = spec.c_row = n;
    spec.batches = {{}};
    return spec;
  }
  // Each must be a T.
  template <class T>
  std::vector<T> commands() {
    std::vector<T> out;
    for (const Command& command : lowering.take()) {
      REQUIRE(std::holds_alternative<T>(command.what));
      out.push_back(std::get<T>(command.what));
    }
    return out;
  }
};

// 3 x 3 cells over 16 x 16 pixels.
ConvShape image_shape(DType dtype) {
  ConvShape shape;
  shape.dtype = dtype;
  shape.input = shape.output = {1, 16, 16};
  shape.cells = {1, 3, 3};
  shape.pads = {0, 1, 1};
  shape.channels = 4;
  shape.filters = 8;
  return shape;
}

TEST_CASE("products of a library are one command for regular batches") {
  Made made;
  MatmulSpec spec = made.product(kF32, 128, 64, 32);
  spec.batches.clear();
  for (int64_t i = 0; i < 8; ++i)
    spec.batches.push_back({i * 4096, 0, i * 8192});  // one B for all
  made.lowering.lower(spec);
  const std::vector<Matmul> products = made.commands<Matmul>();
  REQUIRE(products.size() == 1);
  CHECK(products[0].batch == 8);
  CHECK(products[0].a_step == 4096);
  CHECK(products[0].b_step == 0);
  CHECK(products[0].c_step == 8192);
}

TEST_CASE("batches in two loops take as many commands as the shorter one is long") {
  Made made;
  MatmulSpec spec = made.product(DType::kBFloat16, 256, 256, 64);
  spec.batches.clear();
  for (int64_t image = 0; image < 64; ++image) {
    for (int64_t head = 0; head < 12; ++head) {
      spec.batches.push_back(
          {image * 500000 + head * 64, image * 500000 + head * 64, (image * 12 + head) * 65536});
    }
  }
  made.lowering.lower(spec);
  const std::vector<Matmul> products = made.commands<Matmul>();
  REQUIRE(products.size() == 12);
  CHECK(products[1].batch == 64);
  CHECK(products[1].spec.a == spec.a + 64 * 2);
  CHECK(products[1].a_step == 500000);
  CHECK(products[1].c_step == 12 * 65536);
}

TEST_CASE("tiny products and what a library cannot address are kernels") {
  Made made;
  made.lowering.lower(made.product(kF32, 64, 10, 200));
  MatmulSpec spread = made.product(kF32, 128, 128, 128);
  spread.a_column = 2;
  spread.a_row = 256;
  made.lowering.lower(spread);
  made.lowering.lower(made.product(DType::kInt32, 128, 128, 128));
  MatmulSpec repeated = made.product(kF32, 128, 128, 128);
  repeated.b_row = 0;
  made.lowering.lower(repeated);
  made.lowering.lower(made.product(kF32, 64, 10, 0));
  CHECK(made.commands<Launch>().size() == 5);
  made.lowering.lower(made.product(kF32, 0, 10, 200));
  CHECK(made.commands<Launch>().empty());
}

TEST_CASE("strides that do not matter are made to fit the library") {
  Made made;
  MatmulSpec row = made.product(kF32, 1, 4096, 512);  // a row times a matrix
  row.a_row = 3;
  row.c_row = 5;
  made.lowering.lower(row);
  MatmulSpec outer = made.product(kF32, 4096, 512, 1);  // a column times a row
  outer.a_row = 7;
  outer.a_column = 9;
  outer.b_row = 11;
  made.lowering.lower(outer);
  const std::vector<Matmul> products = made.commands<Matmul>();
  REQUIRE(products.size() == 2);
  CHECK(products[0].spec.a_row == 512);
  CHECK(products[0].spec.c_row == 4096);
  CHECK(products[1].spec.a_column == 1);
  CHECK(products[1].spec.a_row == 7);
  CHECK(products[1].spec.b_row >= 512);
  CHECK(products[1].spec.b_column == 1);
}

TEST_CASE("images behind one another through one kernel are one command") {
  Made made;
  const ConvShape shape = image_shape(kF32);
  const std::byte *x = made.take(1 << 20), *kernels = made.take(1 << 20);
  std::byte* y = made.take(1 << 20);
  std::vector<ConvJob> jobs;
  for (int64_t i = 0; i < 6; ++i) {
    jobs.push_back({x + i * shape.input_bytes(), kernels + i / 3 * 4096,  // two devices
                    y + i * shape.output_bytes()});
  }
  made.lowering.lower(ConvSpec{shape, jobs});
  const std::vector<Conv> convs = made.commands<Conv>();
  REQUIRE(convs.size() == 2);
  CHECK(convs[1].images == 3);
  CHECK(convs[1].x == x + 3 * shape.input_bytes());
  CHECK(convs[1].kernel == kernels + 4096);
  CHECK(convs[1].y == y + 3 * shape.output_bytes());
  made.lowering.lower(ConvSpec{image_shape(DType::kFloat64), jobs});
  CHECK(made.commands<Launch>().size() == 2);
}

// 112 x 112 pixels of 64 channels and filters.
TEST_CASE("16-bit gradients of kernels take less than 2^31 elements a command") {
  for (const auto& [dtype, parts] : {std::pair{DType::kBFloat16, 3}, std::pair{kF32, 1}}) {
    CAPTURE(dtype_name(dtype));
    Made made;
    ConvShape shape = image_shape(dtype);
    shape.input = shape.output = {1, 112, 112};
    shape.channels = shape.filters = 64;
    WgradJob job;
    const int64_t bytes = shape.input_bytes(), images = 2 * 2674 + 1;
    const std::byte *x = made.take(images * bytes), *dy = made.take(images * bytes);
    for (int64_t i = 0; i < images; ++i)
      job.images.push_back({x + i * bytes, dy + i * bytes});
    job.to = made.take(1 << 20);
    made.lowering.lower(ConvWgradSpec{shape, {job}});
    int found = 0;
    int64_t next = 0;
    for (const Command& command : made.lowering.take()) {
      if (const auto* conv = std::get_if<Conv>(&command.what)) {
        CHECK(conv->x == x + next * bytes);
        CHECK(conv->y == dy + next * bytes);
        next += conv->images;
        ++found;
      }
    }
    CHECK(next == images);
    CHECK(found == parts);
  }
}

TEST_CASE("the gradient of a kernel over two shards is two commands and a sum") {
  Made made;
  const ConvShape shape = image_shape(kF32);
  WgradJob job;
  const std::byte *x = made.take(1 << 20), *dy = made.take(1 << 20);
  for (int64_t i = 0; i < 4; ++i)
    job.images.push_back(
        {x + i * shape.input_bytes(), dy + i / 2 * 100000 + i * shape.output_bytes()});
  job.to = made.take(4096);
  made.lowering.lower(ConvWgradSpec{shape, {job}});
  const std::vector<Command> commands = made.lowering.take();
  REQUIRE(commands.size() == 3);
  CHECK(std::get<Conv>(commands[0].what).images == 2);
  CHECK(std::get<Conv>(commands[1].what).kernel ==
        std::get<Conv>(commands[0].what).kernel + shape.kernel_elements() * 4);
  CHECK(std::get<Launch>(commands[2].what).args[1] == gpu::LaunchArg(job.to));
}

TEST_CASE("cuDNN is not asked for windows that it cannot have") {
  ConvShape shape = image_shape(kF32);
  CHECK(gpu::library_takes(shape));
  shape.output = {1, 16, 17};  // padding behind
  CHECK(gpu::library_takes(shape));
  shape.output = {1, 16, 12};  // fewer than fit
  CHECK(!gpu::library_takes(shape));
  shape = image_shape(kF32);
  shape.pads = {0, 1, -1};
  CHECK(!gpu::library_takes(shape));
  CHECK(!gpu::library_takes(image_shape(DType::kFloat64)));
}

TEST_CASE("reductions take a second kernel only where one would leave a GPU idle") {
  const auto kernels = [](const Shape& shape, const std::vector<bool>& reduced) {
    Made made;
    made.reduce(shape, reduced);
    return made.commands<Launch>().size();
  };
  CHECK(kernels({1000000}, {true}) == 2);
  CHECK(kernels({65536, 10}, {true, false}) == 2);
  CHECK(kernels({4096, 1024}, {false, true}) == 1);
  CHECK(kernels({16384, 50257}, {false, true}) == 1);
  CHECK(kernels({32768, 16500}, {false, true}) == 1);
  CHECK(kernels({8, 100000}, {true, false}) == 1);
  CHECK(kernels({64, 10}, {false, true}) == 1);
  CHECK(kernels({64, 200}, {true, false}) == 1);
  CHECK(kernels({64, 200}, {true, true}) == 1);
}

TEST_CASE("small reductions behind one another are one call") {
  Made made;
  const View rows = made.view(kF32, {64, 200}), sums = made.view(kF32, {64}),
             sum = made.view(kF32, {});
  made.lowering.lower(ReduceSpec{Reduction::kMax, rows, {false, true}, sums});
  made.lowering.lower(ReduceSpec{Reduction::kSum, sums, {true}, sum});
  const gpu::MergedLaunches merged = gpu::merge_launches(made.lowering.take());
  CHECK(merged.calls.size() == 1);
}

}  // namespace
}  // namespace meshtrain::test
