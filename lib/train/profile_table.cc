#include "train/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"

namespace meshtrain {
namespace {

using ProfileJson = nlohmann::ordered_json;

constexpr size_t kShown = 10;

struct PathWork {
  std::string kind;
  StepWork work;
};

// Of the first program that has the path: others compute it for another batch.
std::map<std::string, PathWork> works_of(const std::vector<const Program*>& programs) {
  std::map<std::string, PathWork> result;
  for (const Program* program : programs) {
    std::map<std::string, PathWork> own;
    for (const ProgramStep& step : program->steps) {
      PathWork& work = own[step.path];
      if (work.kind.empty()) {
        work.kind = step.op->name;
      }
      const StepWork more = step_work(*program, step, true);
      work.work.flops += more.flops;
      work.work.bytes += more.bytes;
    }
    result.merge(own);
  }
  return result;
}

std::string kind_of(const StepProfile::Kernel& kernel,
                    const std::map<std::string, PathWork>& works) {
  const auto work = works.find(kernel.path);
  if (work != works.end()) {
    return work->second.kind;
  }
  return kernel.kind.empty() ? "fused" : kernel.kind;
}

std::string ms_text(double seconds) {
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string rate_text(const ProfileRow& row) {
  if (row.seconds <= 0) {
    return "";
  }
  if (row.flops > 0) {
    return fmt::format("{:.1f} GFLOP/s", row.flops / row.seconds / 1e9);
  }
  return row.bytes > 0 ? fmt::format("{:.1f} GB/s", row.bytes / row.seconds / 1e9) : "";
}

double share_of(double seconds, const ProfileTable& table) {
  return table.step_seconds > 0 ? seconds / table.step_seconds : 0;
}

ProfileJson bytes_or_null(int64_t bytes) {
  return bytes > 0 ? ProfileJson(bytes) : ProfileJson(nullptr);
}

}  // namespace

ProfileTable profile_table(const StepProfile& profile,
                           const std::vector<const Program*>& programs) {
  ProfileTable table;
  table.steps = static_cast<int64_t>(profile.steps.size());
  if (profile.steps.empty()) {
    return table;
  }
  const std::map<std::string, PathWork> works = works_of(programs);
  std::vector<double> seconds(profile.kernels.size());
  std::map<std::pair<int, int>, int64_t> calls;  // by kernel and thread
  double total = 0, busy = 0;
  for (size_t s = 0; s < profile.steps.size(); ++s) {
    const StepProfile::Step& step = profile.steps[s];
    total += step.end - step.begin;
    const size_t end =
        s + 1 < profile.steps.size() ? profile.steps[s + 1].first_event : profile.events.size();
    for (size_t e = step.first_event; e < end; ++e) {
      const StepProfile::Event& event = profile.events[e];
      const double share = (event.end - event.begin) / step.threads;
      seconds[static_cast<size_t>(event.kernel)] += share;
      busy += share;
      ++calls[{event.kernel, event.thread}];
    }
  }
  const double steps = static_cast<double>(table.steps);
  table.step_seconds = total / steps;
  table.waiting = std::max(total - busy, 0.0) / steps;
  std::vector<int64_t> most(profile.kernels.size());
  for (const auto& [place, count] : calls) {
    int64_t& known = most[static_cast<size_t>(place.first)];
    known = std::max(known, count);
  }
  for (size_t k = 0; k < profile.kernels.size(); ++k) {
    const StepProfile::Kernel& kernel = profile.kernels[k];
    ProfileRow row{kernel.path, kind_of(kernel, works), static_cast<double>(most[k]) / steps,
                   seconds[k] / steps};
    if (const auto work = works.find(kernel.path); work != works.end()) {
      row.flops = work->second.work.flops;
      row.bytes = work->second.work.bytes;
    }
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
  return table;
}

std::string profile_text(const ProfileTable& table, const PlanSummary& plan,
                         const ProfileMemory& memory) {
  std::string out = fmt::format("profile   {} step{}, {} each", table.steps,
                                table.steps == 1 ? "" : "s", ms_text(table.step_seconds));
  if (plan.estimate) {
    out += fmt::format("; the plan's estimate is {}", ms_text(plan.estimate->step));
  }
  out += "\n";
  std::vector<std::vector<std::string>> rows = {
      {"time", "share", "layer", "kind", "calls", "rate"}};
  const auto add = [&](double seconds, const std::string& path, const std::string& kind,
                       const std::string& calls, const std::string& rate) {
    rows.push_back({ms_text(seconds), fmt::format("{:.1f}%", share_of(seconds, table) * 100), path,
                    kind, calls, rate});
  };
  double others = 0;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const ProfileRow& row = table.rows[i];
    if (i < kShown) {
      add(row.seconds, row.path, row.kind, fmt::format("{:g}", row.calls), rate_text(row));
    } else {
      others += row.seconds;
    }
  }
  if (table.rows.size() > kShown) {
    add(others, fmt::format("{} others", table.rows.size() - kShown), "", "", "");
  }
  add(table.waiting, "between kernels", "", "", "");
  out += aligned_columns(rows, {0, 1, 4, 5});
  out += fmt::format("memory    host {} at the peak", format_bytes(memory.host));
  if (memory.device > 0) {
    out += fmt::format(", GPU {} in use", format_bytes(memory.device));
  }
  return out + fmt::format("; the plan has {} for each of {} device{}\n",
                           format_bytes(memory.plan_device), memory.devices,
                           memory.devices == 1 ? "" : "s");
}

std::string profile_json(const ProfileTable& table, const PlanSummary& plan,
                         const ProfileMemory& memory) {
  ProfileJson kernels = ProfileJson::array();
  for (const ProfileRow& row : table.rows) {
    const bool has_rate = row.seconds > 0;
    kernels.push_back(
        {{"layer", row.path},
         {"kind", row.kind},
         {"calls_per_step", row.calls},
         {"ms_per_step", row.seconds * 1e3},
         {"share", share_of(row.seconds, table)},
         {"flops", row.flops > 0 ? ProfileJson(row.flops) : ProfileJson(nullptr)},
         {"bytes", row.bytes > 0 ? ProfileJson(row.bytes) : ProfileJson(nullptr)},
         {"gflops_per_s", has_rate && row.flops > 0 ? ProfileJson(row.flops / row.seconds / 1e9)
                                                    : ProfileJson(nullptr)},
         {"gb_per_s", has_rate && row.bytes > 0 ? ProfileJson(row.bytes / row.seconds / 1e9)
                                                : ProfileJson(nullptr)}});
  }
  return json_text(
             ProfileJson{{"steps", table.steps},
                         {"ms_per_step", table.step_seconds * 1e3},
                         {"plan_ms_per_step", plan.estimate ? ProfileJson(plan.estimate->step * 1e3)
                                                            : ProfileJson(nullptr)},
                         {"between_kernels_ms", table.waiting * 1e3},
                         {"kernels", std::move(kernels)},
                         {"memory",
                          {{"host_peak", bytes_or_null(memory.host)},
                           {"gpu_in_use", bytes_or_null(memory.device)},
                           {"plan_per_device", memory.plan_device},
                           {"devices", memory.devices}}}},
             2) +
         "\n";
}

std::string chrome_trace(const StepProfile& profile, const std::vector<const Program*>& programs,
                         int rank) {
  const std::map<std::string, PathWork> works = works_of(programs);
  ProfileJson events = ProfileJson::array();
  events.push_back({{"name", "process_name"},
                    {"ph", "M"},
                    {"pid", rank},
                    {"args", {{"name", fmt::format("rank {}", rank)}}}});
  for (size_t t = 0; t < profile.threads.size(); ++t) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"tid", t + 1},
                      {"args", {{"name", profile.threads[t]}}}});
  }
  const auto add = [&](const std::string& name, const std::string& kind, double begin, double end,
                       size_t thread) {
    events.push_back({{"name", name},
                      {"cat", kind},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", thread},
                      {"ts", begin * 1e6},
                      {"dur", (end - begin) * 1e6}});
  };
  for (size_t s = 0; s < profile.steps.size(); ++s) {
    add(fmt::format("step {}", s + 1), "step", profile.steps[s].begin, profile.steps[s].end, 0);
  }
  for (const StepProfile::Event& event : profile.events) {
    const StepProfile::Kernel& kernel = profile.kernels[static_cast<size_t>(event.kernel)];
    add(kernel.path, kind_of(kernel, works), event.begin, event.end,
        static_cast<size_t>(event.thread) + 1);
  }
  return json_text(ProfileJson{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}) +
         "\n";
}

}  // namespace meshtrain
