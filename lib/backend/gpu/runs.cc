#include "backend/gpu/runs.h"

namespace meshtrain::gpu {
namespace {

Places difference(const Places& a, const Places& b) {
  return {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
}

}  // namespace

std::vector<Run> runs_of(const std::vector<Places>& places,
                         const std::function<bool(const Places&)>& allowed) {
  std::vector<Run> runs;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!runs.empty()) {
      Run& run = runs.back();
      const Places step = difference(places[i], places[i - 1]);
      if (run.count == 1 ? allowed(step) : step == run.step) {
        run.step = step;
        ++run.count;
        continue;
      }
    }
    runs.push_back({places[i], {}, 1});
  }
  return runs;
}

std::vector<Run> fewest_runs(const std::vector<Places>& places,
                             const std::function<bool(const Places&)>& allowed) {
  std::vector<Run> runs = runs_of(places, allowed);
  const int64_t inner = runs.empty() ? 0 : runs[0].count;
  if (static_cast<int64_t>(runs.size()) <= inner)
    return runs;
  // All runs alike: the same places with the outer loop inside.
  std::vector<Places> turned;
  for (int64_t i = 0; i < inner; ++i) {
    for (const Run& run : runs) {
      if (run.count != inner || run.step != runs[0].step)
        return runs;
      turned.push_back({run.first[0] + i * run.step[0], run.first[1] + i * run.step[1],
                        run.first[2] + i * run.step[2]});
    }
  }
  std::vector<Run> other = runs_of(turned, allowed);
  return other.size() < runs.size() ? other : runs;
}

bool is_forward(const Places& step) {
  return step[0] >= 0 && step[1] >= 0 && step[2] >= 0;
}

Access access_of(const Run& run, size_t i, int64_t bytes, bool is_write) {
  const std::byte* begin = reinterpret_cast<const std::byte*>(run.first[i]);
  return {begin, begin + (run.count - 1) * run.step[i] + bytes, is_write};
}

}  // namespace meshtrain::gpu
