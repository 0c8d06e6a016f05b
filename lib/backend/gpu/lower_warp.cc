// Images sampled at affine coordinates, as cpu/warp.cc computes them.
#include <fmt/format.h>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"

namespace meshtrain::gpu {
namespace {

// Taps: the pixels along one axis that take part in a sample. Index -1 stands for the fill value.
// Products and sums are rounded one by one, so that places are those of the CPU.
std::string taps_text(const WarpShape& shape) {
  std::string text = "struct Taps { long long at[2]; double weight[2]; };\n";
  if (shape.fill == WarpFill::kWrap || shape.fill == WarpFill::kReflect)
    text +=
        "const auto mod = [](long long a, long long n) -> long long { return (a % n + n) % n; };\n";
  text += R"(const auto inside = [=](long long index, long long size) -> long long {
if (index >= 0 && index < size) return index;
)";
  switch (shape.fill) {
    case WarpFill::kConstant:
      text += "return -1;\n";
      break;
    case WarpFill::kNearest:
      text += "return index < 0 ? 0 : size - 1;\n";
      break;
    case WarpFill::kWrap:
      text += "return mod(index, size);\n";
      break;
    case WarpFill::kReflect:
      text +=
          "const long long phase = mod(index, 2 * size);\n"
          "return phase < size ? phase : 2 * size - 1 - phase;\n";
      break;
  }
  text += "};\n";
  text += R"(const auto taps_at = [=](double place, long long size) -> Taps {
if (!(fabs(place) < 1e9)) place = -1e9;
Taps out;
)";
  if (shape.nearest) {
    text +=
        "out.at[0] = inside((long long)::round(place), size);\n"
        "out.at[1] = -1;\nout.weight[0] = 1;\nout.weight[1] = 0;\n";
  } else {
    text +=
        "const double low = ::floor(place);\n"
        "out.at[0] = inside((long long)low, size);\n"
        "out.at[1] = inside((long long)low + 1, size);\n"
        "out.weight[0] = 1 - (place - low);\n"
        "out.weight[1] = place - low;\n";
  }
  return text + R"(return out;
};
const auto place_of = [](const double* t, double x, double y) -> double {
return __dadd_rn(__dadd_rn(__dmul_rn(t[0], x), __dmul_rn(t[1], y)), t[2]);
};
)";
}

// One element of the result, whose taps are read.
std::string forward_text(const WarpShape& shape) {
  return fmt::format(
      R"(const Taps columns = taps_at(place_of(t, (double)column, (double)row), width);
const Taps rows = taps_at(place_of(t + 3, (double)column, (double)row), height);
T sum = 0;
for (int r = 0; r < {0}; ++r)
for (int c = 0; c < {0}; ++c) {{
const T weight = (T)(rows.weight[r] * columns.weight[c]);
const bool is_inside = rows.at[r] >= 0 && columns.at[c] >= 0;
sum += weight * (is_inside ? mt::load(in + (rows.at[r] * width + columns.at[c]) * channels) : {1});
}}
mt::store(out + i, sum);
)",
      shape.nearest ? 1 : 2, literal(shape.fill_value, shape.dtype));
}

// Along a line of results the place in x moves by t[0]: those that fall on column m of the image as
// the fill continues it, m = ..., -1, 0, 1, ..., are neighbours.
std::string lines_text(WarpFill fill) {
  switch (fill) {
    case WarpFill::kConstant:
      return R"(const long long first = 0, last = 0;
const auto low_of = [=](long long) -> double { return (double)column - 1; };
const auto high_of = [=](long long) -> double { return (double)column + 1; };
)";
    case WarpFill::kNearest:
      return R"(const long long first = 0, last = 0;
const auto low_of = [=](long long) -> double { return column == 0 ? -2e9 : (double)column - 1; };
const auto high_of = [=](long long) -> double { return column == width - 1 ? 2e9 : (double)column + 1; };
)";
    default:
      break;
  }
  // Copy m of the image begins at m * width; every other one is mirrored where the fill reflects.
  return fmt::format(R"(const long long first = (long long)::floor(lowest / width) - 1;
const long long last = (long long)::floor(highest / width) + 1;
const auto middle = [=](long long m) -> double {{
return (double)(m * width + ({} ? width - 1 - column : column)); }};
const auto low_of = [=](long long m) -> double {{ return middle(m) - 1; }};
const auto high_of = [=](long long m) -> double {{ return middle(m) + 1; }};
)",
                     fill == WarpFill::kReflect ? "(m & 1) != 0" : "false");
}

// One element of the gradient: the sum over the results that it is a tap of, line by line. Only the
// neighbourhood of where the transform takes it is looked at; which of those it is a tap of is
// decided as in the forward direction.
std::string transpose_text(const WarpShape& shape) {
  std::string text = fmt::format(
      R"(T sum = 0;
const auto visit = [&](long long y, long long x) {{
const Taps rows = taps_at(place_of(t + 3, (double)x, (double)y), height);
const Taps columns = taps_at(place_of(t, (double)x, (double)y), width);
for (int r = 0; r < {0}; ++r)
for (int c = 0; c < {0}; ++c)
if (rows.at[r] == row && columns.at[c] == column)
sum += (T)(rows.weight[r] * columns.weight[c]) * mt::load(in + (y * width + x) * channels);
}};
for (long long y = 0; y < height; ++y) {{
const double begin = place_of(t, 0, (double)y), end = place_of(t, (double)(width - 1), (double)y);
if (!(fabs(begin) < 1e9 && fabs(end) < 1e9)) {{
for (long long x = 0; x < width; ++x) visit(y, x);
continue;
}}
const double lowest = begin < end ? begin : end, highest = begin < end ? end : begin;
)",
      shape.nearest ? 1 : 2);
  text += lines_text(shape.fill);
  return text + R"(if (last - first > width) {
for (long long x = 0; x < width; ++x) visit(y, x);
continue;
}
long long next = 0;
for (long long k = first; k <= last && next < width; ++k) {
const long long m = end < begin ? first + last - k : k;
const double low = low_of(m), high = high_of(m);
if (high < lowest || low > highest) continue;
double from = 0, to = (double)(width - 1);
if (begin != end) {
const double a = ((end < begin ? high : low) - begin) / (end - begin) * to;
const double b = ((end < begin ? low : high) - begin) / (end - begin) * to;
if (a - 1 > from) from = ::floor(a - 1);
if (b + 1 < to) to = ::ceil(b + 1);
}
if (from > next) next = (long long)from;
for (; next <= (long long)to; ++next) visit(y, next);
}
}
mt::store(out + i, sum);
)";
}

}  // namespace

void GpuLowering::make(const AffineWarpSpec& spec) {
  const auto& [shape, transposed, x, transforms, out] = spec;
  MESHTRAIN_CHECK(is_floating(shape.dtype), "{}", dtype_name(shape.dtype));
  const int64_t image = shape.height * shape.width * shape.channels;
  const int64_t total = shape.images * image;
  if (total == 0)
    return;
  Launch launch;
  launch.blocks = blocks_for(total, 1);
  launch.work = total * (transposed ? 5 + shape.height : 5);
  launch.args = {address(x), address(transforms), address(out)};
  std::string text = fmt::format(
      "typedef {0} E;\ntypedef {1} T;\n"
      "const long long height = {2}, width = {3}, channels = {4};\n"
      "E* out = (E*)arg[2];\n",
      type_name(shape.dtype), compute_type(shape.dtype), shape.height, shape.width, shape.channels);
  text += taps_text(shape);
  text += fmt::format(
      "for (unsigned long long i = (unsigned long long)block * kThreads + threadIdx.x; i < {0}ull; "
      "i "
      "+= {1}ull) {{\n"
      "const unsigned long long pixel = i / {2}ull;\n"
      "const long long column = (long long)(pixel % {3}ull), row = (long long)(pixel / {3}ull % "
      "{4}ull);\n"
      "const double* t = (const double*)arg[1] + i / {5}ull * 6;\n"
      "const E* in = (const E*)arg[0] + i / {5}ull * {5}ull + i % {2}ull;\n",
      total, launch.blocks * kThreads, shape.channels, shape.width, shape.height, image);
  text += (transposed ? transpose_text(shape) : forward_text(shape)) + "}\n";
  launch.body = make_body(transposed ? "warp_transpose" : "warp", std::move(text), 0, false);
  const auto item = static_cast<int64_t>(dtype_size(shape.dtype));
  add(std::move(launch), std::vector<Use>{{x, total * item, false},
                                          {transforms, shape.images * 6 * 8, false},
                                          {out, total * item, true}});
}

}  // namespace meshtrain::gpu
