#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"
#include "config/devices.h"
#include "config/scalars.h"
#include "mesh/layout_axes.h"

namespace meshtrain {
namespace {

std::string in_words(size_t count, const char* one, const char* many) {
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

// One name per axis: those `written` in the config, then others.
std::vector<std::string> names_for(const MeshConfig& mesh, bool written) {
  std::vector<std::string> out = written ? mesh.axis_names.value : std::vector<std::string>();
  const size_t num_axes = mesh.shape.value.size();
  for (const char* name : {"data", "fsdp", "model", "batch"}) {
    const bool is_used = std::find(out.begin(), out.end(), name) != out.end();
    if (out.size() < num_axes && !is_used)
      out.emplace_back(name);
  }
  while (out.size() < num_axes)
    out.push_back(fmt::format("axis_{}", out.size()));
  out.resize(num_axes);
  return out;
}

// Both ways to name the axes of a mesh that the command line gives.
std::string naming_help(const MeshConfig& mesh, bool written) {
  const std::vector<std::string> names = names_for(mesh, written);
  std::vector<std::string> parts;
  for (size_t i = 0; i < names.size(); ++i) {
    parts.push_back(fmt::format("{}={}", names[i], mesh.shape.value[i]));
  }
  return fmt::format("name the axes: --mesh {}, or distribution.device_mesh.axis_names=[{}]",
                     join(parts, ","), join(names, ","));
}

void bind_mesh(ConfigValue& tree, MeshConfig& out, Diagnostics& diagnostics) {
  const ConfigValue& shape = tree.field("shape");
  ConfigValue& names = tree.field("axis_names");
  const size_t num_axes = std::max<size_t>(1, out.shape.value.size());
  const bool by_command_line =
      shape.loc && shape.loc.file->name == "command line" && !out.shape.value.empty();
  if (names.is_null()) {
    ConfigValue::List list;
    for (const char* name : {"batch", "model"}) {
      if (list.size() < num_axes) {
        list.push_back({std::string(name), names.loc, true});
        out.axis_names.value.emplace_back(name);
      }
    }
    out.axis_names.loc = {};
    names.data = std::move(list);
    names.is_default = true;
    if (num_axes > 2) {
      diagnostics
          .error("E112", shape.loc, fmt::format("a mesh of {} axes needs `axis_names`", num_axes))
          .help(by_command_line ? naming_help(out, false)
                                : "write `axis_names: [data, fsdp, model]`, one name per axis");
    }
  }
  std::set<std::string> known;
  for (const ConfigValue& name : names.list()) {
    if (!name.string().empty() && !known.insert(name.string()).second) {
      diagnostics.error("E113", name.loc, fmt::format("axis `{}` is named twice", name.string()));
    }
  }
  if (out.axis_names.value.size() != num_axes && (num_axes <= 2 || !names.is_default) &&
      !is_refused(shape.loc, diagnostics)) {
    Diagnostic& d =
        diagnostics.error("E113", names.is_default ? shape.loc : names.loc,
                          fmt::format("`axis_names` has {} for a mesh of {}",
                                      in_words(out.axis_names.value.size(), "name", "names"),
                                      in_words(num_axes, "axis", "axes")));
    if (!names.is_default && !shape.is_default) {
      d.note(fmt::format("`shape` is at {}", shape.loc.to_string()));
    }
    if (by_command_line) {
      d.help(naming_help(out, !names.is_default));
    }
  }
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

// Of a key that is a list of axes, or null.
void check_axes(const ConfigValue& tree, const char* key, const std::vector<std::string>& axes,
                Diagnostics& diagnostics) {
  const ConfigValue& value = tree.field(key);
  std::set<std::string> known;
  if (value.is_null()) {
    return;
  }
  for (const ConfigValue& axis : value.list()) {
    check_axis(axis, axes, key, diagnostics);
    if (!known.insert(axis.string()).second) {
      diagnostics.error("E113", axis.loc, fmt::format("`{}` names `{}` twice", key, axis.string()))
          .help("each axis once");
    }
  }
}

}  // namespace

void bind_distribution(ConfigValue& tree, const YamlNode* node, DistributionConfig& out,
                       Diagnostics& diagnostics) {
  bind_mesh(tree.field("device_mesh"), out.mesh, diagnostics);
  const std::vector<std::string>& axes = out.mesh.axis_names.value;
  const ConfigValue& map = tree.field("layout_map");
  const YamlNode* rules = node == nullptr ? nullptr : node->find("layout_map");
  size_t i = 0;
  for (const auto& [key, value] : map.dict()) {
    while (rules->children[i].key != key) {
      ++i;  // a rule that could not be read
    }
    out.layout_map.push_back({key, rules->children[i].key_loc, make_layout(value)});
    ++i;
  }
  // It stays null in the resolved config, so that a resumed run may get its first layout map.
  if (tree.field("type").is_null()) {
    out.type = {
        out.layout_map.empty() ? DistributionType::kDataParallel : DistributionType::kModelParallel,
        {}};
  }
  if (out.type == DistributionType::kDataParallel && !out.layout_map.empty()) {
    diagnostics
        .warning("W205", out.layout_map[0].loc,
                 fmt::format("DataParallel replicates every variable: {} layout {} not used",
                             out.layout_map.size(),
                             out.layout_map.size() == 1 ? "rule is" : "rules are"))
        .help("write `type: ModelParallel` to use `layout_map`");
    out.layout_map.clear();
  }
  check_axes(tree, "batch_dim_name", axes, diagnostics);
  check_axes(tree, "zero_axes", axes, diagnostics);
  if (out.zero.value == 0 && !out.zero_axes->empty()) {
    diagnostics
        .warning("W205", out.zero_axes.loc,
                 "`zero_axes` without `zero`: nothing is split over them")
        .help("write `zero: 3` (weights too), 2 (gradients too) or 1 (optimizer state)");
  }
  if (!out.auto_shard_dataset) {
    diagnostics
        .error("E113", out.auto_shard_dataset.loc,
               "`auto_shard_dataset` is `false`: each process would feed data of its own")
        .help(
            "leave it out: all processes name the same data, and each reads what it computes with");
  }
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
