// Convolutions and their gradients: by the library where it takes them (conv.h), otherwise by
// kernels that compute every result by itself.
#include <algorithm>

#include "backend/gpu/conv.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/reduction.h"
#include "backend/gpu/runs.h"
#include "backend/gpu/text.h"
#include "backend/gpu/window_text.h"

namespace meshtrain::gpu {
namespace {

int64_t pixels_of(const std::array<int64_t, 3>& sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

std::string conv_head(const ConvShape& shape, bool of_input, int64_t images, int64_t columns,
                      int64_t reach = 0) {
  return window_text(shape, of_input, images, columns, reach) +
         type_line("T", type_name(shape.dtype)) + "typedef mt::Compute<T> A;\n" +
         fused_line(shape.dtype) + constant_line("U", "channels", shape.channels) +
         constant_line("U", "filters", shape.filters) +
         constant_line("U", "group_channels", shape.channels / shape.groups) +
         constant_line("U", "group_filters", shape.filters / shape.groups);
}

std::string steps_text(const Run& run) {
  return constant_line("unsigned long long", "from_step", run.step[0]) +
         constant_line("unsigned long long", "kernel_step", run.step[1]) +
         constant_line("unsigned long long", "to_step", run.step[2]);
}

// Column `column` of pixel (p0, p1, p2) of an image.
constexpr std::string_view kElement = R"(
U i = (U)block * kThreads + threadIdx.x;
if (i >= elements) return;
const U element = i;
const U column = i % columns; i /= columns;
const int p2 = (int)(i % N2); i /= N2;
const int p1 = (int)(i % N1); i /= N1;
const int p0 = (int)(i % N0); i /= N0;
const T* from = (const T*)(arg[0] + i * from_step);
const T* kernel = (const T*)(arg[1] + i * kernel_step);
T* to = (T*)(arg[2] + i * to_step) + element % (N0 * N1 * N2 * columns);
A sum = A(0);
)";

constexpr std::string_view kForward = R"(
from += column / group_filters * group_channels;
kernel += column;
for (int z = 0; z < K0; ++z) {
  const int a = p0 * S0 - P0 + z * D0;
  if (a < 0 || a >= I0) continue;
  for (int y = 0; y < K1; ++y) {
    const int b = p1 * S1 - P1 + y * D1;
    if (b < 0 || b >= I1) continue;
    for (int x = 0; x < K2; ++x) {
      const int d = p2 * S2 - P2 + x * D2;
      if (d < 0 || d >= I2) continue;
      const T* pixel = from + (((I)a * I1 + b) * I2 + d) * (I)channels;
      const T* cell = kernel + (((I)z * K1 + y) * K2 + x) * (I)(group_channels * filters);
      for (U c = 0; c < group_channels; ++c)
        sum = fused(mt::load(pixel + c), mt::load(cell + c * filters), sum);
    }
  }
}
mt::store(to, sum);
)";

constexpr std::string_view kDgrad = R"(
const U first = column / group_channels * group_filters;
from += first;
kernel += column % group_channels * filters + first;
for (int z = 0; z < K0; ++z) {
  const int a = p0 + P0 - z * D0;
  if (a < 0 || a % S0 != 0 || a / S0 >= O0) continue;
  for (int y = 0; y < K1; ++y) {
    const int b = p1 + P1 - y * D1;
    if (b < 0 || b % S1 != 0 || b / S1 >= O1) continue;
    for (int x = 0; x < K2; ++x) {
      const int d = p2 + P2 - x * D2;
      if (d < 0 || d % S2 != 0 || d / S2 >= O2) continue;
      const T* pixel = from + (((I)(a / S0) * O1 + b / S1) * O2 + d / S2) * (I)filters;
      const T* cell = kernel + (((I)z * K1 + y) * K2 + x) * (I)(group_channels * filters);
      for (U f = 0; f < group_filters; ++f)
        sum = fused(mt::load(pixel + f), mt::load(cell + f), sum);
    }
  }
}
mt::store(to, sum);
)";

// Output k of the reduction: an element of the kernel; term r: a pixel of y's gradient.
constexpr std::string_view kWgrad = R"(
const A none = A(0);
auto join = [](A a, A b) -> A { return a + b; };
const unsigned long long x_base = arg[0], dy_base = arg[1];
R* out = (R*)arg[2];
auto term = [=](U k, U r) -> A {
  const U filter = k % filters, cell = k / filters / group_channels;
  const U channel = filter / group_filters * group_channels + k / filters % group_channels;
  const U pixel = r % (U)(O0 * O1 * O2), image = r / (U)(O0 * O1 * O2);
  const int a = (int)(pixel / (O1 * O2)) * S0 - P0 + (int)(cell / (K1 * K2)) * D0;
  const int b = (int)(pixel / O2 % O1) * S1 - P1 + (int)(cell / K2 % K1) * D1;
  const int d = (int)(pixel % O2) * S2 - P2 + (int)(cell % K2) * D2;
  if (a < 0 || a >= I0 || b < 0 || b >= I1 || d < 0 || d >= I2) return A(0);
  const T* x = (const T*)(x_base + image * x_step) + (((I)a * I1 + b) * I2 + d) * (I)channels;
  const T* dy = (const T*)(dy_base + image * dy_step) + (I)pixel * (I)filters;
  return mt::load(x + channel) * mt::load(dy + filter);
};
auto result = [=](U k, unsigned part, A a) { mt::store(out + (U)part * outputs_of_part + k, a); };
)";

// The conv (or its transpose) of the images of a run by one thread an element.
Launch direct_launch(const ConvShape& shape, bool is_dgrad, const Run& run) {
  const int64_t columns = is_dgrad ? shape.channels : shape.filters;
  const int64_t pixels = pixels_of(is_dgrad ? shape.input : shape.output);
  Launch launch;
  launch.body = make_body(is_dgrad ? "dgrad" : "conv",
                          conv_head(shape, is_dgrad, run.count, columns) + steps_text(run) +
                              constant_line("U", "columns", columns) + std::string(kElement) +
                              std::string(is_dgrad ? kDgrad : kForward),
                          0, false);
  launch.blocks = static_cast<uint64_t>((run.count * pixels * columns + kThreads - 1) / kThreads);
  launch.args = {static_cast<uint64_t>(run.first[0]), static_cast<uint64_t>(run.first[1]),
                 static_cast<uint64_t>(run.first[2])};
  launch.work = 2 * run.count * pixels_of(shape.output) * shape.kernel_elements();
  return launch;
}

}  // namespace

bool library_takes(const ConvShape& shape) {
  bool fits = shape.dtype == DType::kFloat32 || shape.dtype == DType::kFloat16 ||
              shape.dtype == DType::kBFloat16;
  for (size_t d = 0; d < shape.input.size(); ++d) {
    // Padding behind; below zero where the last cells of x meet no window. The library has no
    // windows that begin inside of x, and none less than fit.
    const int64_t behind = (shape.output[d] - 1) * shape.strides[d] +
                           (shape.cells[d] - 1) * shape.dilations[d] + 1 - shape.input[d] -
                           shape.pads[d];
    fits = fits && shape.input[d] > 0 && shape.output[d] > 0 && shape.pads[d] >= 0 &&
           behind > -shape.strides[d];
  }
  return fits;
}

void GpuLowering::add(Conv conv) {
  const ConvShape& shape = conv.shape;
  const auto access = [](const std::byte* data, int64_t bytes, bool is_write) {
    return Access{data, data + bytes, is_write};
  };
  std::vector<Access> accesses = {
      access(conv.x, conv.images * shape.input_bytes(), conv.op == ConvOp::kDgrad),
      access(conv.kernel, shape.kernel_elements() * shape.item_size(), conv.op == ConvOp::kWgrad),
      access(conv.y, conv.images * shape.output_bytes(), conv.op == ConvOp::kForward)};
  commands_.push_back({std::move(conv), std::move(accesses), path_});
}

void GpuLowering::add_images(const ConvShape& shape, ConvOp op, const std::vector<ConvJob>& jobs) {
  const bool is_dgrad = op == ConvOp::kDgrad, in_library = library_takes(shape);
  const int64_t from = is_dgrad ? shape.output_bytes() : shape.input_bytes();
  const int64_t to = is_dgrad ? shape.input_bytes() : shape.output_bytes();
  const int64_t kernel = shape.kernel_elements() * shape.item_size();
  if (to == 0)
    return;
  std::vector<Places> places;
  for (const ConvJob& job : jobs)
    places.push_back({place_of(job.from), place_of(job.kernel), place_of(job.to)});
  const auto allowed = [&](const Places& step) {
    return in_library ? step == Places{from, 0, to} : is_forward(step);
  };
  for (const Run& run : runs_of(places, allowed)) {
    if (!in_library) {
      add(direct_launch(shape, is_dgrad, run),
          std::vector<Access>{access_of(run, 0, from, false), access_of(run, 1, kernel, false),
                              access_of(run, 2, to, true)});
      continue;
    }
    const auto address = [&](size_t i) { return reinterpret_cast<const std::byte*>(run.first[i]); };
    add(Conv{op, shape, run.count, address(is_dgrad ? 2 : 0), address(1),
             address(is_dgrad ? 0 : 2)});
  }
}

void GpuLowering::make(const ConvSpec& spec) {
  add_images(spec.shape, ConvOp::kForward, spec.jobs);
}

void GpuLowering::make(const ConvDgradSpec& spec) {
  add_images(spec.shape, ConvOp::kDgrad, spec.jobs);
}

void GpuLowering::make(const ConvWgradSpec& spec) {
  const auto& [shape, jobs] = spec;
  if (shape.kernel_elements() == 0)
    return;
  const bool in_library = library_takes(shape);
  for (const WgradJob& job : jobs) {
    std::vector<Places> places;
    for (const WgradJob::Images& images : job.images)
      places.push_back({place_of(images.x), place_of(images.dy), 0});
    const Places adjacent = {shape.input_bytes(), shape.output_bytes(), 0};
    add_wgrad(shape, in_library,
              runs_of(places,
                      [&](const Places& step) {
                        return in_library ? step == adjacent : is_forward(step);
                      }),
              job.to);
  }
}

void GpuLowering::add_wgrad(const ConvShape& shape, bool in_library, const std::vector<Run>& runs,
                            std::byte* to) {
  const int64_t elements = shape.kernel_elements(), pixels = pixels_of(shape.output);
  // One gradient for each run, or part of a run, and their sum.
  std::vector<ReductionPlan> plans;
  int64_t parts = 0;
  for (const Run& run : runs) {
    plans.push_back(in_library ? ReductionPlan{}
                               : plan_reduction(elements, run.count * pixels, false, true));
    parts += plans.back().parts;
  }
  const DType between = in_library || parts == 1 ? shape.dtype : compute_dtype(shape.dtype);
  const int64_t bytes = elements * static_cast<int64_t>(dtype_size(between));
  std::byte* sums = parts == 1 ? to : scratch(parts * bytes);
  const View all = contiguous_view(sums, between, {parts, elements});
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    const std::byte* x = reinterpret_cast<const std::byte*>(run.first[0]);
    const std::byte* dy = reinterpret_cast<const std::byte*>(run.first[1]);
    if (in_library) {
      add(Conv{ConvOp::kWgrad, shape, run.count, x, sums, dy});
      sums += bytes;
      continue;
    }
    ReductionBody body;
    body.kind = "wgrad";
    body.outputs = elements;
    body.terms = run.count * pixels;
    body.value_bytes = static_cast<int64_t>(dtype_size(compute_dtype(shape.dtype)));
    body.text = conv_head(shape, false, run.count, shape.filters,
                          reduction_reach(plans[i].parts * elements, body.terms)) +
                type_line("R", type_name(between)) +
                constant_line("unsigned long long", "x_step", run.step[0]) +
                constant_line("unsigned long long", "dy_step", run.step[1]) +
                constant_line("U", "outputs_of_part", elements) + std::string(kOtherOfNumber) +
                std::string(kWgrad);
    Launch launch;
    launch.body = reduction_body(body, plans[i]);
    launch.blocks = plans[i].blocks();
    launch.args = {static_cast<uint64_t>(run.first[0]), static_cast<uint64_t>(run.first[1]),
                   reinterpret_cast<uint64_t>(sums)};
    launch.work = 2 * elements * body.terms;
    add(std::move(launch), std::vector<Access>{access_of(run, 0, shape.input_bytes(), false),
                                               access_of(run, 1, shape.output_bytes(), false),
                                               {sums, sums + plans[i].parts * bytes, true}});
    sums += plans[i].parts * bytes;
  }
  if (parts > 1) {
    make(ReduceSpec{
        Reduction::kSum, all, {true, false}, contiguous_view(to, shape.dtype, {elements})});
  }
}

}  // namespace meshtrain::gpu
