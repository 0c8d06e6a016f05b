#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"
#include "config/devices.h"
#include "config/scalars.h"
#include "mesh/layout_axes.h"

namespace meshtrain {
namespace {

std::string counted(size_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// Whether its text could not be read: what stands for it says nothing then.
bool is_refused(const SourceLoc& place, const Diagnostics& diagnostics) {
  const auto& list = diagnostics.list();
  return std::any_of(list.begin(), list.end(), [&](const Diagnostic& d) {
    return d.severity == Severity::kError && d.loc && d.loc.file == place.file &&
           d.loc.line == place.line && d.loc.column == place.column;
  });
}

// "data=8", of as many names as there are sizes.
std::string named_sizes(const MeshConfig& mesh) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < mesh.shape.value.size(); ++i) {
    parts.push_back(fmt::format("{}={}", mesh.axis_names.value[i], mesh.shape.value[i]));
  }
  return join(parts, ",");
}

void bind_mesh(ConfigValue& tree, MeshConfig& out, Diagnostics& diagnostics) {
  const ConfigValue& shape = field_of(tree, "shape");
  ConfigValue& names = field_of(tree, "axis_names");
  const ConfigValue& devices = field_of(tree, "devices");
  out.shape = located<std::vector<int64_t>>(shape, {});
  if (shape.is_list()) {
    out.shape.value = shape.integers();
  }
  const size_t num_axes = std::max<size_t>(1, out.shape.value.size());
  if (names.is_null()) {
    ConfigValue::List list;
    for (const char* name : {"batch", "model"}) {
      if (list.size() < num_axes) {
        list.push_back({std::string(name), names.loc, true});
      }
    }
    names.data = std::move(list);
    names.is_default = true;
    if (num_axes > 2) {
      diagnostics
          .error("E112", shape.loc, fmt::format("a mesh of {} axes needs `axis_names`", num_axes))
          .help("write `axis_names: [data, fsdp, model]`, one name per axis");
    }
  }
  out.axis_names = located<std::vector<std::string>>(names, {});
  for (const ConfigValue& name : names.list()) {
    auto& known = out.axis_names.value;
    if (!name.string().empty() &&
        std::find(known.begin(), known.end(), name.string()) != known.end()) {
      diagnostics.error("E113", name.loc, fmt::format("axis `{}` is named twice", name.string()));
    }
    known.push_back(name.string());
  }
  if (out.axis_names.value.size() != num_axes && (num_axes <= 2 || !names.is_default) &&
      !is_refused(shape.loc, diagnostics)) {
    Diagnostic& d =
        diagnostics.error("E113", names.is_default ? shape.loc : names.loc,
                          fmt::format("`axis_names` has {} for a mesh of {}",
                                      counted(out.axis_names.value.size(), "name", "names"),
                                      counted(num_axes, "axis", "axes")));
    if (!names.is_default && !shape.is_default) {
      d.note(fmt::format("`shape` is at {}", shape.loc.to_string()));
    }
    if (shape.loc && shape.loc.file->name == "command line" &&
        num_axes < out.axis_names.value.size()) {
      d.help(fmt::format("name the axes: --mesh {}", named_sizes(out)));
    }
  }
  out.devices = located<std::string>(devices, devices.string());
  parse_devices(out.devices, diagnostics);
}

TensorLayout make_layout(const ConfigValue& value) {
  TensorLayout layout;
  layout.loc = value.loc;
  for (const ConfigValue& entry : value.list()) {
    std::vector<std::string>& axes = layout.dims.emplace_back();
    std::vector<SourceLoc>& locs = layout.axis_locs.emplace_back();
    const auto add = [&](const ConfigValue& axis) {
      axes.push_back(axis.string());
      locs.push_back(axis.loc);
    };
    if (entry.is_string()) {
      add(entry);
    } else if (entry.is_list()) {
      std::for_each(entry.list().begin(), entry.list().end(), add);
    }
  }
  return layout;
}

void check_axis(const ConfigValue& name, const std::vector<std::string>& axes, const char* key,
                Diagnostics& diagnostics) {
  if (name.string().empty() ||  // could not be read
      std::find(axes.begin(), axes.end(), name.string()) != axes.end()) {
    return;
  }
  Diagnostic& d = diagnostics.error(
      "E113", name.loc,
      fmt::format("`{}` names `{}`, which is no axis of the mesh", key, name.string()));
  suggest(d, name.string(), axes);
  d.notes.push_back(fmt::format("axes: {}", join(axes, ", ")));
}

// Names of mesh axes; none for null.
Located<std::vector<std::string>> axis_list(const ConfigValue& value,
                                            const std::vector<std::string>& axes, const char* key,
                                            Diagnostics& diagnostics) {
  auto out = located<std::vector<std::string>>(value, {});
  if (value.is_list()) {
    for (const ConfigValue& axis : value.list()) {
      check_axis(axis, axes, key, diagnostics);
      if (std::find(out->begin(), out->end(), axis.string()) != out->end()) {
        diagnostics
            .error("E113", axis.loc, fmt::format("`{}` names `{}` twice", key, axis.string()))
            .help("each axis once");
        continue;
      }
      out.value.push_back(axis.string());
    }
  }
  return out;
}

}  // namespace

void bind_distribution(ConfigValue& tree, const YamlNode* node, DistributionConfig& out,
                       Diagnostics& diagnostics) {
  bind_mesh(field_of(tree, "device_mesh"), out.mesh, diagnostics);
  const std::vector<std::string>& axes = out.mesh.axis_names.value;
  const ConfigValue& map = field_of(tree, "layout_map");
  const YamlNode* rules = node == nullptr ? nullptr : node->find("layout_map");
  size_t i = 0;
  for (const auto& [key, value] : map.dict()) {
    while (rules->children[i].key != key) {
      ++i;  // a rule that could not be read
    }
    out.layout_map.push_back({key, rules->children[i].key_loc, make_layout(value)});
    ++i;
  }
  ConfigValue& type = field_of(tree, "type");
  if (type.is_null()) {
    type.data = std::string(out.layout_map.empty() ? "DataParallel" : "ModelParallel");
    type.is_default = true;
  }
  out.type = located<std::string>(type, type.string());
  if (out.type.value == "DataParallel" && !out.layout_map.empty()) {
    diagnostics
        .warning("W205", out.layout_map[0].loc,
                 fmt::format("DataParallel replicates every variable: {} layout {} not used",
                             out.layout_map.size(),
                             out.layout_map.size() == 1 ? "rule is" : "rules are"))
        .help("write `type: ModelParallel` to use `layout_map`");
    out.layout_map.clear();
  }
  out.batch_dim_name =
      axis_list(field_of(tree, "batch_dim_name"), axes, "batch_dim_name", diagnostics);
  const ConfigValue& match = field_of(tree, "layout_match");
  out.layout_match = located<std::string>(match, match.string());
  const ConfigValue& reductions = field_of(tree, "reductions");
  out.reductions = located<std::string>(reductions, reductions.string());
  const ConfigValue& zero = field_of(tree, "zero");
  out.zero = located<int64_t>(zero, zero.integer());
  out.zero_axes = axis_list(field_of(tree, "zero_axes"), axes, "zero_axes", diagnostics);
  if (out.zero.value == 0 && !out.zero_axes->empty()) {
    diagnostics
        .warning("W205", out.zero_axes.loc,
                 "`zero_axes` without `zero`: nothing is split over them")
        .help("write `zero: 3` (weights too), 2 (gradients too) or 1 (optimizer state)");
  }
  const ConfigValue& reshard = field_of(tree, "reshard_after_forward");
  out.reshard_after_forward = located<bool>(reshard, reshard.boolean());
  const ConfigValue& shards = field_of(tree, "auto_shard_dataset");
  if (!shards.boolean()) {
    diagnostics
        .error("E113", shards.loc,
               "`auto_shard_dataset` is `false`: each process would feed data of its own")
        .help(
            "leave it out: all processes name the same data, and each reads what it computes with");
  }
  const ConfigValue& unmatched = field_of(field_of(tree, "checks"), "unmatched_rule");
  out.unmatched_rule = located<std::string>(unmatched, unmatched.string());
}

void check_axis_names(const DistributionConfig& distribution, Diagnostics& diagnostics) {
  const MeshConfig& mesh = distribution.mesh;
  if (is_refused(mesh.shape.loc, diagnostics) || is_refused(mesh.axis_names.loc, diagnostics)) {
    return;
  }
  for (const LayoutRule& rule : distribution.layout_map) {
    check_layout_axes(rule.layout, mesh.axis_names.value, diagnostics);
  }
}

}  // namespace meshtrain
