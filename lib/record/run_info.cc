#include "record/run_info.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "base/text.h"

namespace meshtrain {
namespace {

std::string mesh_text(const RunInfo& info) {
  if (info.mesh_shape.empty()) {
    return "1 device";
  }
  std::string sizes;
  std::string names;
  for (size_t i = 0; i < info.mesh_shape.size(); ++i) {
    sizes += fmt::format("{}{}", i == 0 ? "" : " x ", info.mesh_shape[i]);
    names += fmt::format(" {}={}", info.axis_names[i], info.mesh_shape[i]);
  }
  return sizes + " " + names;
}

std::string batch_text(const RunInfo& info) {
  const std::string steps =
      fmt::format("{} step{} an epoch", info.steps_per_epoch, info.steps_per_epoch == 1 ? "" : "s");
  if (info.batch_shards <= 1) {
    return fmt::format("{}, whole on every device; {}", info.batch_size, steps);
  }
  return fmt::format("{} = {} on each of {} along `{}`; {}", info.batch_size,
                     info.batch_size / info.batch_shards, info.batch_shards, info.batch_axis,
                     steps);
}

}  // namespace

std::string first_screen(const RunInfo& info) {
  std::string out = fmt::format(
      "meshtrain {}  {}\n"
      "mesh        {}\n"
      "devices     {}\n"
      "batch       {}\n"
      "parameters  {} ({}); {} of weights and optimizer state per device\n"
      "saves       {}\n"
      "run         {}\n",
      info.version, info.config, mesh_text(info), info.devices, batch_text(info),
      format_thousands(info.parameters), format_bytes(info.parameter_bytes),
      format_bytes(info.bytes_per_device), info.saves, info.run_dir.empty() ? "-" : info.run_dir);
  if (!info.began_from.empty()) {
    out += fmt::format("begun from  {}\n", info.began_from);
  }
  if (!info.resumed_from.empty()) {
    out += fmt::format("resumed     {}: {}\n", info.resumed_from, info.resumed_at);
  }
  return escaped_controls(out);
}

}  // namespace meshtrain
