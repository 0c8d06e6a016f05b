#include "engine/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/setup.h"
#include "plan/hardware_file.h"

namespace meshtrain {

std::vector<std::vector<int64_t>> factorizations(int64_t number, size_t count) {
  if (count == 1) {
    return {{number}};
  }
  std::vector<std::vector<int64_t>> out;
  for (int64_t first = number; first >= 1; --first) {
    if (number % first != 0) {
      continue;
    }
    for (std::vector<int64_t> rest : factorizations(number / first, count - 1)) {
      rest.insert(rest.begin(), first);
      out.push_back(std::move(rest));
    }
  }
  return out;
}

std::string first_error_text(const ConfigError& error) {
  const auto& list = error.diagnostics().list();
  const auto found = std::find_if(
      list.begin(), list.end(), [](const Diagnostic& d) { return d.severity == Severity::kError; });
  return found == list.end() ? error.what() : found->message;
}

PlanSearch::PlanSearch(const Config& config, int64_t hosts) : hosts_(hosts) {
  Diagnostics diagnostics;
  const MeshConfig& mesh = config.distribution.mesh;
  request_ = parse_devices(mesh.devices, diagnostics);
  diagnostics.throw_if_errors();
  if (request_.is_gpu) {
    throw ConfigError(
        "E113", mesh.devices.loc,
        fmt::format("`{}` names GPUs of this machine, about which no figures are known",
                    mesh.devices.value))
        .help("name their kind: --devices 8xH100; or --devices cpu:8");
  }
  const std::vector<Hardware> table = load_hardware(config.plan.hardware);
  hardware_ = *requested_hardware(request_, table);
  const std::vector<int64_t>& shape = mesh.shape.value;
  const int64_t of_shape =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  num_devices_ = request_.count && !request_.is_auto ? *request_.count : of_shape;
  if (num_devices_ == 1 && shape.empty()) {
    throw ConfigError("E210", mesh.devices.loc, "the number of devices is missing")
        .help("--devices cpu:8, or --devices 8xH100");
  }
  if (hosts > 0 && num_devices_ % hosts != 0) {
    throw ConfigError("E140", {},
                      fmt::format("`--hosts {}`: {} not divisible by it", hosts,
                                  num_devices_ == 1 ? "1 device is"
                                                    : fmt::format("{} devices are", num_devices_)));
  }
  hardware_.per_host = hosts > 0 ? num_devices_ / hosts : hardware_.per_host;
}

std::string PlanSearch::devices_text() const {
  return request_.as_many(num_devices_);
}

std::string PlanSearch::describe() const {
  return request_.describe(num_devices_);
}

PlanScore PlanSearch::score(Config config, bool* splits_batch) const {
  PlanScore out;
  config.distribution.mesh.devices.value = devices_text();
  try {
    const Setup setup(config, nullptr);
    const PlanSummary plan = make_plan(setup, 0, true, &hardware_, &shares_);
    out.fits = plan.estimate->fits;
    out.seconds = plan.estimate->step;
    out.memory = plan.memory.total();
    for (const PlannedCollective& collective : plan.collectives) {
      out.bytes_sent += collective.bytes_sent;
    }
    if (splits_batch != nullptr) {
      *splits_batch = !setup.distribution().batch_axes.empty();
    }
  } catch (const ConfigError& error) {
    out.problem = first_error_text(error);
  }
  return out;
}

}  // namespace meshtrain
