// Convolutions and their gradients: by the library where it takes them (conv.h), otherwise by
// kernels that compute every result by itself.
#include <fmt/format.h>

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

std::string convolving(const ConvShape& shape, int64_t elements, const Places& steps) {
  return struct_text("Convolving", {{"window", window_text(shape)},
                                    {"elements", elements},
                                    {"channels", shape.channels},
                                    {"filters", shape.filters},
                                    {"groups", shape.groups},
                                    {"from_step", steps[0]},
                                    {"kernel_step", steps[1]},
                                    {"to_step", steps[2]}});
}

// Whether the library computes it. Not where a result has few products, as of images of one
// channel. For 64 images of 28 x 28 on an H200 the library's engines, which are made for many, took
// 37 us forward and 44 us for the gradient of the kernel, and these kernels take 10 and 27.
bool is_in_library(const ConvShape& shape) {
  constexpr int64_t kFewProducts = 32;
  const bool has_few = shape.groups == 1 && shape.channels * pixels_of(shape.cells) <= kFewProducts;
  return !has_few && library_takes(shape);
}

// Runs of as many images as the library computes well. For 16-bit floats it has tensor cores for
// the gradient of a kernel only where images and results have less than 2^31 elements each (cuDNN
// 9.19); the engine that takes more is its oldest.
std::vector<Run> library_runs(const ConvShape& shape, const std::vector<Run>& runs) {
  constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;
  if (shape.item_size() != 2)
    return runs;
  const int64_t elements = std::max(shape.input_bytes(), shape.output_bytes()) / 2;
  const int64_t most = std::max<int64_t>(kMostElements / std::max<int64_t>(elements, 1), 1);
  std::vector<Run> result;
  for (const Run& run : runs) {
    const int64_t each = ceil_div(run.count, ceil_div(run.count, most));
    for (int64_t begin = 0; begin < run.count; begin += each) {
      Run part = run;
      part.count = std::min(each, run.count - begin);
      for (size_t i = 0; i < part.first.size(); ++i)
        part.first[i] += begin * run.step[i];
      result.push_back(part);
    }
  }
  return result;
}

// The conv (or its transpose) of the images of a run by one thread an element.
Launch direct_launch(const ConvShape& shape, bool is_dgrad, const Run& run) {
  const int64_t columns = is_dgrad ? shape.channels : shape.filters;
  const int64_t pixels = pixels_of(is_dgrad ? shape.input : shape.output);
  Launch launch;
  const int64_t elements = run.count * pixels * columns;
  launch.body = make_body(
      is_dgrad ? "dgrad" : "conv",
      call_text(is_dgrad ? "conv_dgrad" : "conv",
                {convolving(shape, elements, run.step), index_type(window_reach(shape, elements)),
                 std::string(type_name(shape.dtype))},
                false),
      0, false, "conv");
  launch.blocks = static_cast<uint64_t>((elements + kThreads - 1) / kThreads);
  launch.args = {address_at(run.first[0]), address_at(run.first[1]), address_at(run.first[2])};
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
  const bool is_dgrad = op == ConvOp::kDgrad, in_library = is_in_library(shape);
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
    add(Conv{op, shape, run.count, address_at(run.first[is_dgrad ? 2 : 0]),
             address_at(run.first[1]), address_at(run.first[is_dgrad ? 0 : 2])});
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
  const bool in_library = is_in_library(shape);
  for (const WgradJob& job : jobs) {
    std::vector<Places> places;
    for (const WgradJob::Images& images : job.images)
      places.push_back({place_of(images.x), place_of(images.dy), 0});
    const Places adjacent = {shape.input_bytes(), shape.output_bytes(), 0};
    const std::vector<Run> runs = runs_of(places, [&](const Places& step) {
      return in_library ? step == adjacent : is_forward(step);
    });
    add_wgrad(shape, in_library, in_library ? library_runs(shape, runs) : runs, job.to);
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
    const int64_t all_terms = body.terms * shape.filters;
    body.device = "conv";
    body.function = "conv_wgrad";
    body.of =
        fmt::format("{},\n{}, {}, {}", convolving(shape, all_terms, {run.step[0], 0, run.step[1]}),
                    index_type(window_reach(
                        shape, all_terms, reduction_reach(plans[i].parts * elements, body.terms))),
                    type_name(shape.dtype), type_name(between));
    Launch launch;
    launch.body = reduction_body(body, plans[i]);
    launch.blocks = plans[i].blocks();
    launch.args = {address_at(run.first[0]), address_at(run.first[1]), sums};
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
