#include "plan/plan_summary.h"

#include <algorithm>
#include <map>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "plan/estimate_text.h"
#include "plan/fold_rows.h"

namespace meshtrain {
namespace {

using Json = nlohmann::ordered_json;

std::string size_text(const Shape& shape) {  // "784 x 200", "batch x 10", "scalar"
  std::vector<std::string> parts;
  for (const int64_t size : shape) {
    parts.push_back(size == kUnknownDim ? "batch" : fmt::format("{}", size));
  }
  return parts.empty() ? "scalar" : join(parts, " x ");
}

std::string layout_text(const Sharding& sharding, const DeviceMesh& mesh) {
  return sharding.is_replicated() ? "replicated" : sharding_string(sharding, mesh);
}

int64_t bytes_of(const Shape& shape, DType dtype) {
  return num_elements(shape) * static_cast<int64_t>(dtype_size(dtype));
}

std::string count_text(double count) {  // "40.9 M"
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", count, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string mesh_lines(const PlanSummary& summary) {
  std::vector<std::string> sizes, axes;
  for (const MeshAxis& axis : summary.mesh.axes()) {
    sizes.push_back(fmt::format("{}", axis.size));
    axes.push_back(fmt::format("{}={}", axis.name, axis.size));
  }
  std::string out =
      fmt::format("mesh      {}  {}   {}\n", join(sizes, " x "), join(axes, " "), summary.devices);
  const int64_t copies = summary.mesh.num_devices() / summary.batch_shards;
  out += fmt::format("batch     {} global = {} per shard over {}", summary.batch,
                     summary.batch / summary.batch_shards, summary.batch_axes);
  out += copies > 1 ? fmt::format(", the same {} on each of {} devices",
                                  summary.batch / summary.batch_shards, copies)
                    : "";
  if (summary.samples > 0) {
    out += "; " + counted(summary.full_steps, "full step");
    if (summary.last_batch > 0) {
      out += fmt::format(" + 1 of {}{}", summary.last_batch,
                         summary.last_batch_sharded ? "" : " (unsharded)");
    }
  }
  return out + "\n";
}

std::string variable_table(const PlanSummary& summary) {
  std::vector<std::vector<std::string>> rows = {
      {"variable", "shape", "layout", "per device", "bytes", "rule"}};
  bool four = false;
  for (const PlannedVariable& v : summary.variables) {
    const Shape local = local_shape(v.shape, v.layout.storage, summary.mesh);
    rows.push_back({v.path, size_text(v.shape), layout_text(v.layout.storage, summary.mesh),
                    size_text(local), format_bytes(bytes_of(local, v.dtype)),
                    v.rule_key.empty() ? "-" : v.rule_key + "  " + v.rule_place});
    four = four || v.layout.storage != v.layout.compute || v.layout.storage != v.layout.state;
  }
  std::string out = aligned_columns(fold_blocks(std::move(rows)));
  if (four) {
    rows = {{"variable", "storage", "compute", "gradient", "optimizer state"}};
    for (const PlannedVariable& v : summary.variables) {
      rows.push_back({v.path, layout_text(v.layout.storage, summary.mesh),
                      layout_text(v.layout.compute, summary.mesh),
                      layout_text(v.layout.grad, summary.mesh),
                      layout_text(v.layout.state, summary.mesh)});
    }
    out += "\n" + aligned_columns(fold_blocks(std::move(rows)));
  }
  if (!summary.outputs.empty()) {
    rows = {{"tensor", "shape", "layout", "rule"}};
    for (const PlannedOutput& o : summary.outputs) {
      rows.push_back({o.key, size_text(o.shape), layout_text(o.sharding, summary.mesh),
                      o.rule_key + "  " + o.rule_place});
    }
    out += "\n" + aligned_columns(fold_blocks(std::move(rows)));
  }
  return out;
}

// At most `limit` bytes of whole characters (UTF-8).
std::string shortened(const std::string& text, size_t limit) {
  if (text.size() <= limit) {
    return text;
  }
  size_t end = limit - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
    --end;
  }
  return text.substr(0, end) + "...";
}

constexpr size_t kShownCauses = 4;  // of a collective

// "rule d1/kernel  mlp.yaml:11:5", "batch over data  mlp.yaml:6:3", "zero 3  mlp.yaml:7:3"
std::string cause_text(const PlannedCause& cause) {
  const std::string kind = cause.kind == "batch" ? "batch over" : cause.kind;
  return kind + (kind.empty() ? "" : " ") + cause.name + (cause.place.empty() ? "" : "  ") +
         cause.place;
}

std::vector<std::string> cells_of(const PlannedCollective& c) {
  return {std::string(phase_name(c.phase)),
          std::string(move_name(c.kind)),
          fmt::format("{} ({})", join(c.axes, ", "), c.group_size),
          fmt::format("{}", c.tensors),
          format_bytes(c.bytes),
          format_bytes(c.bytes_sent)};
}

// The rows of a collective: its causes stand one below the other.
void add_rows(std::vector<std::string> cells, const PlannedCollective& c, TextRows& rows) {
  cells.push_back(shortened(join(c.of, ", "), 40));
  const size_t width = cells.size();
  rows.push_back(std::move(cells));
  for (size_t i = 0; i < c.causes.size(); ++i) {
    if (i > 0) {
      rows.emplace_back(width);
    }
    const bool is_last = i + 1 == kShownCauses && c.causes.size() > kShownCauses;
    rows.back().push_back(is_last ? fmt::format("and {} more", c.causes.size() - i)
                                  : cause_text(c.causes[i]));
    if (is_last) {
      break;
    }
  }
}

// "318 collectives, 206 GiB sent by each device per step: all_gather 99, 30 GiB; ..."
std::string traffic_line(const PlanSummary& summary) {
  int64_t total = 0;
  std::map<std::string, std::pair<int64_t, int64_t>> kinds;
  for (const PlannedCollective& c : summary.collectives) {
    total += c.bytes_sent;
    auto& [count, bytes] = kinds[std::string(move_name(c.kind))];
    ++count;
    bytes += c.bytes_sent;
  }
  std::vector<std::string> each;
  for (const auto& [name, sums] : kinds) {
    each.push_back(fmt::format("{} {}, {}", name, sums.first, format_bytes(sums.second)));
  }
  return fmt::format("traffic   {} collectives, {} sent by each device per step{}\n",
                     summary.collectives.size(), format_bytes(total),
                     kinds.size() > 1 ? ": " + join(each, "; ") : "");
}

// Collectives that are equal but for their tensors are one row, with their number.
std::string collective_table(const PlanSummary& summary) {
  if (summary.collectives.empty()) {
    return "traffic   none: no collective in a step\n";
  }
  std::vector<std::string> keys;
  for (const PlannedCollective& c : summary.collectives) {
    std::vector<std::string> parts = cells_of(c);
    for (const PlannedCause& cause : c.causes) {
      parts.push_back(cause_text(cause));
    }
    keys.push_back(join(parts, "\n"));
  }
  const std::vector<size_t> times = times_of(first_equal(keys));
  const bool has_times = std::find(times.begin(), times.end(), size_t{0}) != times.end();
  TextRows rows = {{"phase", "collective", "over", "tensors", "bytes", "sent", "of", "because of"}};
  if (has_times) {
    rows[0].insert(rows[0].begin() + 2, "times");
  }
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] == 0) {
      continue;
    }
    std::vector<std::string> cells = cells_of(summary.collectives[i]);
    if (has_times) {
      cells.insert(cells.begin() + 2, fmt::format("{}", times[i]));
    }
    add_rows(std::move(cells), summary.collectives[i], rows);
  }
  return aligned_columns(rows) + traffic_line(summary);
}

}  // namespace

std::string plan_text(const PlanSummary& summary) {
  const PlannedMemory& m = summary.memory;
  std::string out = mesh_lines(summary);
  out += fmt::format("params    {}\n\n", format_thousands(summary.num_params));
  out += variable_table(summary) + "\n" + collective_table(summary);
  out += fmt::format(
      "memory    per device: weights {}, gradients {}, optimizer {}, step arena {} (gradients and "
      "activations); {} in all\n",
      format_bytes(m.weights), format_bytes(m.gradients), format_bytes(m.optimizer),
      format_bytes(m.activations), format_bytes(m.total()));
  for (const PlannedHead& head : summary.heads) {
    out += fmt::format("head      {}: {} logits of {} tokens at a time, {}\n", head.op,
                       format_thousands(head.classes), format_thousands(head.tokens),
                       format_bytes(head.bytes));
  }
  std::vector<std::string> arenas;
  for (const PlanSummary::Remat& remat : summary.remat) {
    arenas.push_back(fmt::format("{} {}", remat.name, format_bytes(remat.step_arena)));
  }
  out += arenas.empty() ? "" : fmt::format("remat     step arena: {}\n", join(arenas, ", "));
  out += fmt::format("compute   {}FLOP a step, {}FLOP on each device\n", count_text(summary.flops),
                     count_text(summary.flops_per_device));
  out += summary.estimate ? "\n" + estimate_text(summary) : "";
  const std::string warnings = summary.warnings.render();
  return out + (warnings.empty() ? "" : "\n" + warnings);
}

namespace {

Json layout_json(const Sharding& sharding, const DeviceMesh& mesh) {
  Json dims = Json::array();
  for (const AxisList& list : sharding.dims) {
    Json axes = Json::array();
    for (const int axis : list) {
      axes.push_back(mesh.axis_name(axis));
    }
    dims.push_back(list.empty() ? Json(nullptr) : list.size() == 1 ? axes[0] : axes);
  }
  return dims;
}

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (const int64_t size : shape) {
    out.push_back(size == kUnknownDim ? Json(nullptr) : Json(size));
  }
  return out;
}

Json rule_json(const std::string& key, const std::string& place) {
  return key.empty() ? Json(nullptr) : Json{{"key", key}, {"line", place}};
}

Json variables_json(const PlanSummary& summary) {
  Json out = Json::array();
  for (const PlannedVariable& v : summary.variables) {
    const Shape local = local_shape(v.shape, v.layout.storage, summary.mesh);
    out.push_back({{"path", v.path},
                   {"shape", shape_json(v.shape)},
                   {"dtype", dtype_name(v.dtype)},
                   {"trainable", v.trainable},
                   {"layouts",
                    {{"storage", layout_json(v.layout.storage, summary.mesh)},
                     {"compute", layout_json(v.layout.compute, summary.mesh)},
                     {"gradient", layout_json(v.layout.grad, summary.mesh)},
                     {"state", layout_json(v.layout.state, summary.mesh)}}},
                   {"local_shape", shape_json(local)},
                   {"bytes_per_device", bytes_of(local, v.dtype)},
                   {"rule", rule_json(v.rule_key, v.rule_place)}});
  }
  return out;
}

Json causes_json(const PlannedCollective& collective) {
  Json out = Json::array();
  for (const PlannedCause& cause : collective.causes) {
    out.push_back({{"kind", cause.kind}, {"name", cause.name}, {"line", cause.place}});
  }
  return out;
}

Json collectives_json(const PlanSummary& summary) {
  Json out = Json::array();
  for (const PlannedCollective& c : summary.collectives) {
    out.push_back({{"phase", phase_name(c.phase)},
                   {"kind", move_name(c.kind)},
                   {"axes", c.axes},
                   {"group_size", c.group_size},
                   {"dtype", dtype_name(c.dtype)},
                   {"tensors", c.tensors},
                   {"bytes", c.bytes},
                   {"bytes_sent", c.bytes_sent},
                   {"of", c.of},
                   {"causes", causes_json(c)}});
  }
  return out;
}

Json warnings_json(const Diagnostics& diagnostics) {
  Json out = Json::array();
  for (const Diagnostic& d : diagnostics.list()) {
    out.push_back({{"code", d.code}, {"message", d.message}, {"line", d.loc.to_string()}});
  }
  return out;
}

}  // namespace

std::string plan_json(const PlanSummary& summary) {
  Json axes = Json::array();
  for (const MeshAxis& axis : summary.mesh.axes()) {
    axes.push_back({{"name", axis.name}, {"size", axis.size}});
  }
  Json outputs = Json::array();
  for (const PlannedOutput& o : summary.outputs) {
    outputs.push_back({{"key", o.key},
                       {"shape", shape_json(o.shape)},
                       {"layout", layout_json(o.sharding, summary.mesh)},
                       {"rule", rule_json(o.rule_key, o.rule_place)}});
  }
  const auto of_samples = [&](int64_t number) {
    return summary.samples > 0 ? Json(number) : Json(nullptr);
  };
  const PlannedMemory& m = summary.memory;
  Json json = {{"name", summary.name},
               {"mesh",
                {{"shape", summary.mesh.shape()},
                 {"axes", axes},
                 {"devices", summary.mesh.num_devices()},
                 {"kind", summary.devices}}},
               {"batch",
                {{"global", summary.batch},
                 {"per_shard", summary.batch / summary.batch_shards},
                 {"shards", summary.batch_shards},
                 {"axes", summary.batch_axes},
                 {"samples", of_samples(summary.samples)},
                 {"full_steps", of_samples(summary.full_steps)},
                 {"last_batch", of_samples(summary.last_batch)}}},
               {"params", summary.num_params},
               {"variables", variables_json(summary)},
               {"outputs", outputs},
               {"collectives", collectives_json(summary)},
               {"memory",
                {{"weights", m.weights},
                 {"gradients", m.gradients},
                 {"optimizer", m.optimizer},
                 {"step_arena", m.activations},
                 {"total", m.total()}}},
               {"flops", {{"total", summary.flops}, {"per_device", summary.flops_per_device}}},
               {"warnings", warnings_json(summary.warnings)}};
  for (const PlannedHead& head : summary.heads) {
    json["heads"].push_back({{"op", head.op},
                             {"classes", head.classes},
                             {"tokens", head.tokens},
                             {"bytes", head.bytes}});
  }
  for (const PlanSummary::Remat& remat : summary.remat) {
    json["remat"][remat.name] = remat.step_arena;
  }
  if (summary.estimate) {
    json["estimate"] = estimate_json(summary);
  }
  return json_text(json, 2) + "\n";
}

}  // namespace meshtrain
