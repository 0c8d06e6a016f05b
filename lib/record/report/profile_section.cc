// The part of the report that shows profile/profile.json: where the time of a step goes.
#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "record/report/html.h"
#include "record/report/sections.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

std::string rate_cell(const Json& kernel) {
  if (kernel.at("gflops_per_s").is_number()) {
    return fmt::format("{:.1f} GFLOP/s", kernel.at("gflops_per_s").get<double>());
  }
  const Json& rate = kernel.at("gb_per_s");
  return rate.is_number() ? fmt::format("{:.1f} GB/s", rate.get<double>()) : "";
}

std::string memory_note(const Json& memory) {
  const auto bytes = [](const Json& value) {
    return value.is_number() ? format_bytes(value.get<int64_t>()) : std::string("unknown");
  };
  std::string text =
      fmt::format("Memory of the host at its peak: {}. ", bytes(memory.at("host_peak")));
  if (memory.at("gpu_in_use").is_number()) {
    text += fmt::format("In use on the GPU: {}. ", bytes(memory.at("gpu_in_use")));
  }
  return text + fmt::format("The plan has {} for each of {} devices.",
                            bytes(memory.at("plan_per_device")),
                            memory.at("devices").get<int64_t>());
}

std::string profile_content(const Json& profile) {
  const double step = profile.at("ms_per_step").get<double>();
  std::string first =
      fmt::format("{} steps, {} ms each", profile.at("steps").get<int64_t>(), short_number(step));
  if (const Json& plan = profile.at("plan_ms_per_step"); plan.is_number()) {
    first += fmt::format("; the plan's estimate is {} ms", short_number(plan.get<double>()));
  }
  std::vector<std::vector<std::string>> rows = {
      {"layer", "ms a step", "share", "calls", "rate", "kind"}};
  for (const Json& kernel : profile.at("kernels")) {
    rows.push_back({html_text(kernel.at("layer").get<std::string>()),
                    html_number(kernel.at("ms_per_step").get<double>()),
                    fmt::format("{:.1f}%", kernel.at("share").get<double>() * 100),
                    short_number(kernel.at("calls_per_step").get<double>()), rate_cell(kernel),
                    html_text(kernel.at("kind").get<std::string>())});
  }
  const double between = profile.at("between_kernels_ms").get<double>();
  rows.push_back({"between kernels", html_number(between),
                  fmt::format("{:.1f}%", step > 0 ? between / step * 100 : 0.0), "", "", ""});
  return fmt::format(
      "<p>{}. <code>profile/trace.json</code> opens in chrome://tracing and Perfetto.</p>"
      "<div class=\"names\">{}</div><p class=\"note\">{}</p>",
      html_text(first), html_table(rows, 1), html_text(memory_note(profile.at("memory"))));
}

}  // namespace

// A file of another form gives nothing.
std::string profile_section(const RunRecord& record) {
  const Json profile = parse_json<Json>(record.profile);
  if (!profile.is_object()) {
    return "";
  }
  try {
    return section("Profile", profile_content(profile));
  } catch (const Json::exception&) {
    return "";
  }
}

}  // namespace meshtrain
