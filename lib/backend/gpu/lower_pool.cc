// Pools and their gradients: one thread an element. Gradients gather: each input adds up what the
// windows that contain it give to it, in the order of the windows.
#include <fmt/format.h>

#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/runs.h"
#include "backend/gpu/text.h"
#include "backend/gpu/window_text.h"

namespace meshtrain::gpu {
namespace {

// --- the element of this thread: channel c of pixel (p0, p1, p2) of an image ---------------------

constexpr std::string_view kPoolElement = R"(
typedef mt::Compute<T> V;
U i = (U)block * kThreads + threadIdx.x;
if (i >= elements) return;
const U element = i;
const int c = (int)(i % channels); i /= channels;
const int p2 = (int)(i % N2); i /= N2;
const int p1 = (int)(i % N1); i /= N1;
const int p0 = (int)(i % N0); i /= N0;
const T* x = (const T*)(arg[0] + i * x_step) + c;
const T* dy = (const T*)(arg[1] + i * dy_step) + c;
T* to = (T*)(arg[2] + i * to_step) + element % (N0 * N1 * N2 * channels);
)";

constexpr std::string_view kPoolForward = R"(
const int f0 = p0 * S0 - P0, f1 = p1 * S1 - P1, f2 = p2 * S2 - P2;
V all = none;
int count = 0;
for (int z = 0; z < K0; ++z) {
  const int a = f0 + z * D0;
  if (a < 0 || a >= I0) continue;
  for (int y = 0; y < K1; ++y) {
    const int b = f1 + y * D1;
    if (b < 0 || b >= I1) continue;
    for (int w = 0; w < K2; ++w) {
      const int d = f2 + w * D2;
      if (d < 0 || d >= I2) continue;
      const V v = mt::load(x + (((I)a * I1 + b) * I2 + d) * channels);
      all = is_max ? mt::max(all, v) : all + v;
      ++count;
    }
  }
}
mt::store(to, is_max || count == 0 ? all : all / (V)count);
)";

// share(o0, o1, o2, place): what this window gives to its cell `place`.
constexpr std::string_view kGather = R"(
V all = V(0);
for (int z = K0 - 1; z >= 0; --z) {
  const int a = p0 + P0 - z * D0;
  if (a < 0 || a % S0 != 0 || a / S0 >= O0) continue;
  for (int y = K1 - 1; y >= 0; --y) {
    const int b = p1 + P1 - y * D1;
    if (b < 0 || b % S1 != 0 || b / S1 >= O1) continue;
    for (int w = K2 - 1; w >= 0; --w) {
      const int d = p2 + P2 - w * D2;
      if (d < 0 || d % S2 != 0 || d / S2 >= O2) continue;
      all += share(a / S0, b / S1, d / S2, (z * K1 + y) * K2 + w);
    }
  }
}
mt::store(to, all);
)";

constexpr std::string_view kGradient = R"(
auto gradient = [=](int o0, int o1, int o2) -> V {
  return mt::load(dy + (((I)o0 * O1 + o1) * O2 + o2) * channels);
};
)";

constexpr std::string_view kMaxShare = R"(
// The first of the largest cells gets the whole gradient; a NaN is larger than everything.
auto share = [=](int o0, int o1, int o2, int place) -> V {
  V best = V(0);
  int winner = -1;
  for (int z = 0; z < K0; ++z) {
    const int a = o0 * S0 - P0 + z * D0;
    if (a < 0 || a >= I0) continue;
    for (int y = 0; y < K1; ++y) {
      const int b = o1 * S1 - P1 + y * D1;
      if (b < 0 || b >= I1) continue;
      for (int w = 0; w < K2; ++w) {
        const int d = o2 * S2 - P2 + w * D2;
        if (d < 0 || d >= I2) continue;
        const V v = mt::load(x + (((I)a * I1 + b) * I2 + d) * channels);
        if (winner < 0 || v > best || (v != v && best == best)) {
          best = v;
          winner = (z * K1 + y) * K2 + w;
        }
      }
    }
  }
  return winner == place ? gradient(o0, o1, o2) : V(0);
};
)";

constexpr std::string_view kAverageShare = R"(
auto cells_inside = [](int first, int cells, int dilation, int size) -> int {
  const int low = first < 0 ? (dilation - 1 - first) / dilation : 0;
  const int end = first >= size ? 0 : (size - 1 - first) / dilation + 1;
  return (end < cells ? end : cells) - low;
};
auto share = [=](int o0, int o1, int o2, int) -> V {
  const int count = cells_inside(o0 * S0 - P0, K0, D0, I0) *
                    cells_inside(o1 * S1 - P1, K1, D1, I1) *
                    cells_inside(o2 * S2 - P2, K2, D2, I2);
  return gradient(o0, o1, o2) / (V)count;
};
)";

std::string pool_text(PoolOp op, const PoolShape& shape, const Run& run) {
  const bool is_grad = op == PoolOp::kMaxGrad || op == PoolOp::kAverageGrad;
  const bool is_max = op == PoolOp::kMax;
  std::string text = window_text(shape, is_grad, run.count, shape.channels);
  text += type_line("T", type_name(shape.dtype));
  text += constant_line("U", "channels", shape.channels);
  text += constant_line("unsigned long long", "x_step", run.step[0]);
  text += constant_line("unsigned long long", "dy_step", run.step[1]);
  text += constant_line("unsigned long long", "to_step", run.step[2]);
  text += kPoolElement;
  if (is_grad) {
    text += kGradient;
    text += op == PoolOp::kMaxGrad ? kMaxShare : kAverageShare;
    text += kGather;
  } else {
    text += constant_line("bool", "is_max", is_max);
    text += fmt::format(
        "const V none = {};\n",
        is_max ? literal(-std::numeric_limits<double>::infinity(), shape.dtype) : "V(0)");
    text += kPoolForward;
  }
  return text;
}

}  // namespace

void GpuLowering::make(const PoolSpec& spec) {
  const auto& [op, shape, jobs] = spec;
  const bool is_grad = op == PoolOp::kMaxGrad || op == PoolOp::kAverageGrad;
  const int64_t result_bytes = is_grad ? shape.input_bytes() : shape.output_bytes();
  if (result_bytes == 0)
    return;
  std::vector<Places> places;
  for (const PoolJob& job : jobs)
    places.push_back({place_of(job.x), place_of(job.dy), place_of(job.to)});
  for (const Run& run : runs_of(places, is_forward)) {
    const int64_t elements =
        run.count * result_bytes / static_cast<int64_t>(dtype_size(shape.dtype));
    Launch launch;
    launch.body = make_body("pool", pool_text(op, shape, run), 0, false);
    launch.blocks = static_cast<uint64_t>((elements + kThreads - 1) / kThreads);
    std::vector<Access> accesses;
    const std::array<int64_t, 3> bytes = {shape.input_bytes(), shape.output_bytes(), result_bytes};
    for (size_t i = 0; i < bytes.size(); ++i) {
      launch.args.push_back(static_cast<uint64_t>(run.first[i]));
      if (run.first[i] != 0)
        accesses.push_back(access_of(run, i, bytes[i], i == 2));
    }
    // Every window is read once, and by the gradient of a maximum once for each of its cells.
    const int64_t cells = shape.cells[0] * shape.cells[1] * shape.cells[2];
    launch.work = run.count * shape.output_bytes() / static_cast<int64_t>(dtype_size(shape.dtype)) *
                      cells * (op == PoolOp::kMaxGrad ? cells : 1) +
                  elements;
    add(std::move(launch), std::move(accesses));
  }
}

}  // namespace meshtrain::gpu
