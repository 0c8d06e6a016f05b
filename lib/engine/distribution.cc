#include "engine/distribution.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "ir/graph.h"

namespace meshtrain {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  int64_t out = 1;
  for (const int64_t size : shape) {
    out = out > (int64_t{1} << 40) ? out : out * size;
  }
  return out;
}

// The largest number below `limit` that divides `batch`.
int64_t most_that_divide(int64_t batch, int64_t limit) {
  int64_t out = limit - 1;
  while (batch % out != 0) {
    --out;
  }
  return out;
}

// A mesh with the same axes for so many devices: axes other than the batch's keep their sizes as
// far as these divide.
std::vector<int64_t> fitting_mesh(std::vector<int64_t> shape, size_t batch_axis, int64_t devices) {
  for (size_t axis = shape.size(); axis-- > 0;) {
    if (axis != batch_axis) {
      shape[axis] = std::gcd(shape[axis], devices);
      devices /= shape[axis];
    }
  }
  shape[batch_axis] = devices;
  return shape;
}

// The place in the mesh of the axis that splits the batch.
size_t batch_axis_of(const DistributionConfig& config, size_t axes) {
  const std::vector<std::string>& names = config.mesh.axis_names.value;
  const auto found = config.batch_dim_name->empty()
                         ? names.begin()
                         : std::find(names.begin(), names.end(), config.batch_dim_name->front());
  const auto place = static_cast<size_t>(found - names.begin());
  return place < std::min(axes, names.size()) ? place : 0;
}

bool is_flag(const SourceLoc& loc) {
  return loc && loc.file->name == "command line" && starts_with(loc.file->line(1), "--");
}

// It stands for --devices, and wins over files.
constexpr const char* kDevicesVariable = "MESHTRAIN_DEVICES";

bool is_variable(const SourceLoc& loc) {
  return loc && loc.file->name == "command line" &&
         starts_with(loc.file->line(1), kDevicesVariable);
}

// `gpu:4` is the GPU with that number; on a mesh of four, four GPUs are meant.
std::string devices_for(const DeviceRequest& request, int64_t devices) {
  const bool is_meant_as_count = request.is_gpu && request.count == 1 && request.gpus.size() == 1 &&
                                 request.gpus[0] == devices;
  return is_meant_as_count ? fmt::format("gpu:0-{}", devices - 1) : request.as_many(devices);
}

// Sizes as --mesh takes them, with the names of axes where --mesh has given these.
std::string mesh_flag(const MeshConfig& mesh, const std::vector<int64_t>& sizes) {
  const bool is_named =
      is_flag(mesh.shape.loc) && mesh.shape.loc.file->line(1).find('=') != std::string_view::npos;
  if (!is_named || mesh.axis_names->size() != sizes.size()) {
    return fmt::format("{}", fmt::join(sizes, "x"));
  }
  std::vector<std::string> axes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    axes.push_back(fmt::format("{}={}", mesh.axis_names->at(i), sizes[i]));
  }
  return join(axes, ",");
}

// Shown where the command line names the devices, else at the shape; where the other stands is
// said.
void report_other_count(const DistributionConfig& distribution, const std::vector<int64_t>& shape,
                        const DeviceRequest& request, int64_t devices, Diagnostics& diagnostics) {
  const MeshConfig& config = distribution.mesh;
  const SourceLoc &sizes = config.shape.loc, &names = config.devices.loc;
  const bool by_flag = names && names.file->name == "command line";
  Diagnostic& d = diagnostics.error(
      "E210", by_flag || !sizes ? names : sizes,
      fmt::format("the mesh {} needs {}, `{}` has {}", shape_string(shape),
                  counted(product(shape), "device"), config.devices.value, devices));
  if (sizes && names && (sizes.file != names.file || sizes.line != names.line)) {
    d.note(by_flag ? fmt::format("`shape` is at {}", sizes.to_string())
                   : fmt::format("`devices` is at {}", names.to_string()));
  }
  if (product(shape) > kMostDevices) {
    d.help(fmt::format("a mesh has at most {} devices", kMostDevices));
  } else if (is_variable(names)) {
    d.help(fmt::format("`unset {0}`, or {0}={1}, or `--devices {1}`, which wins", kDevicesVariable,
                       devices_for(request, product(shape))));
  } else {
    const std::string key = is_flag(names) ? "--devices " : "devices: ";
    d.help(fmt::format("write `{0}{1}` or `{0}auto`", key, devices_for(request, product(shape))));
  }
  const std::vector<int64_t> fitting =
      fitting_mesh(shape, batch_axis_of(distribution, shape.size()), devices);
  d.help(fmt::format("or a mesh of {}: `--mesh {}`", devices, mesh_flag(config, fitting)));
}

// Sizes that do not divide stand beside lines that say nothing of them.
void note_command_line(const MeshConfig& mesh, Diagnostic& d) {
  if (mesh.shape.loc && mesh.shape.loc.file->name == "command line") {
    const std::string_view word = mesh.shape.loc.file->line(1);  // or a flag and its value
    d.note(fmt::format("the mesh comes from the command line ({})",
                       starts_with(word, "--") ? word.substr(0, word.find(' ')) : word));
  }
}

void append_with_origin(const Diagnostics& found, const MeshConfig& mesh, Diagnostics& out) {
  for (const Diagnostic& d : found.list()) {  // errors all
    Diagnostic& copy = out.error(d.code, d.loc, d.message);
    copy.label = d.label;
    copy.notes = d.notes;
    if (d.code == "E204") {
      note_command_line(mesh, copy);
    }
  }
}

bool is_of_preset(const LayoutRule& rule) {
  const SourceLoc &key = rule.loc, &layout = rule.layout.loc;
  return key && layout && key.file == layout.file && key.line == layout.line &&
         key.column == layout.column;
}

// What a rule fails at: the findings for one variable, and the others that fail alike.
struct RuleFailure {
  Diagnostics first;
  std::vector<std::string> more;
};

// By rule, and by what tells one failure from another: its places in the config and their labels.
using RuleFailures = std::map<std::pair<const LayoutRule*, std::string>, RuleFailure>;

void add_failure(const LayoutRule& rule, const std::string& path, const Diagnostics& found,
                 RuleFailures& failures) {
  std::string kind;
  for (const Diagnostic& d : found.list()) {
    kind += fmt::format("{} {} {}\n", d.code, d.loc.to_string(), d.label);
  }
  const auto [failure, is_first] = failures.try_emplace({&rule, kind}, RuleFailure{found, {}});
  if (!is_first) {
    failure->second.more.push_back(path);
  }
}

// One message for each fact about a rule, however many variables it holds for.
void append_failures(const RuleFailures& failures, const MeshConfig& mesh, Diagnostics& out) {
  for (const auto& [key, failure] : failures) {
    const LayoutRule& rule = *key.first;
    Diagnostics found;
    for (const Diagnostic& d : failure.first.list()) {
      Diagnostic& copy = found.error(d.code, d.loc, d.message);
      copy.label = d.label;
      copy.notes = d.notes;
      if (is_of_preset(rule)) {
        copy.help(fmt::format("or a rule of your own beside `preset:`, which wins: '{}': [null]",
                              rule.key));
      }
      if (!failure.more.empty()) {
        const size_t more = failure.more.size();
        copy.note(fmt::format("the same holds for {} more path{} of this rule, such as `{}`", more,
                              more == 1 ? "" : "s", failure.more.front()));
      }
    }
    append_with_origin(found, mesh, out);
  }
}

DeviceMesh make_mesh(const DistributionConfig& distribution, const DeviceRequest& request,
                     const LocalResources& resources, Diagnostics& diagnostics) {
  const MeshConfig& config = distribution.mesh;
  const std::optional<int64_t> devices = request.num_devices(resources.processes);
  std::vector<int64_t> shape = config.shape.value;
  if (shape.empty()) {
    shape = {all_devices(request, resources)};
  }
  const SourceLoc place = config.shape.loc ? config.shape.loc : config.axis_names.loc;
  if (devices && product(shape) != *devices) {
    report_other_count(distribution, shape, request, *devices, diagnostics);
    return {};
  }
  if (product(shape) > kMostDevices) {
    diagnostics.error("E210", place,
                      fmt::format("the mesh {} needs {} devices; 65536 at most",
                                  shape_string(shape), product(shape)));
    return {};
  }
  try {
    return DeviceMesh(std::move(shape), config.axis_names.value);
  } catch (const Error& error) {
    diagnostics.error("E210", place, error.what());
    return {};
  }
}

// Axes by name; those of size 1 split nothing and are left out.
AxisList find_axes(const std::vector<std::string>& names, const SourceLoc& loc,
                   std::string_view what, const DeviceMesh& mesh, Diagnostics& diagnostics) {
  AxisList out;
  for (const std::string& name : names) {
    const std::optional<int> axis = mesh.find_axis(name);
    if (!axis) {
      const std::vector<std::string> axes = mesh.axis_names();
      Diagnostic& d = diagnostics.error(
          "E205", loc,
          fmt::format("{} `{}` is not in the mesh (axes: {})", what, name, join(axes, ", ")));
      suggest(d, name, axes);
    } else if (mesh.axis_size(*axis) > 1) {
      out.push_back(*axis);
    }
  }
  return out;
}

// Warns (W206) once of a rule with fewer entries than the variable has dimensions: `[model]` of a
// matrix splits its rows, which may be the bias' layout in the wrong place.
void warn_of_short_layout(const LayoutRule& rule, const LayoutTarget& variable,
                          std::set<const LayoutRule*>& warned, Diagnostics& diagnostics) {
  const auto& dims = rule.layout.dims;
  const size_t rank = variable.shape.size();
  const bool splits =
      std::any_of(dims.begin(), dims.end(), [](const auto& dim) { return !dim.empty(); });
  if (!splits || dims.size() >= rank || !warned.insert(&rule).second) {
    return;
  }
  TensorLayout whole = rule.layout;
  whole.dims.resize(rank);
  diagnostics
      .warning("W206", rule.layout.loc,
               fmt::format("layout {} has {} of {} entries: `{}` {} is laid out as {}",
                           rule.layout.to_string(), dims.size(), rank, variable.path,
                           shape_string(variable.shape), whole.to_string()))
      .help("write " + whole.to_string());
}

// Warns (W207) of layouts over the only axis of a mesh, which splits the batch by default: they
// shard storage (FSDP), where the name of the axis says that products are to be split.
void warn_of_shared_axis(const DistributionConfig& from, const DeviceMesh& mesh,
                         Diagnostics& diagnostics) {
  constexpr std::string_view kOfBatch[] = {"batch", "data", "dp", "fsdp"};
  if (mesh.num_axes() != 1 || mesh.num_devices() == 1 || !from.batch_dim_name->empty() ||
      std::find(std::begin(kOfBatch), std::end(kOfBatch), mesh.axis_name(0)) !=
          std::end(kOfBatch)) {
    return;
  }
  const auto splits_weight = [](const LayoutRule& rule) {
    const auto& dims = rule.layout.dims;
    return !ends_with(rule.key, "/output") &&
           std::any_of(dims.begin(), dims.end(), [](const auto& dim) { return !dim.empty(); });
  };
  const auto rule = std::find_if(from.layout_map.begin(), from.layout_map.end(), splits_weight);
  if (rule == from.layout_map.end()) {
    return;
  }
  const std::string axis = mesh.axis_name(0);
  diagnostics
      .warning("W207", rule->layout.loc,
               fmt::format("`{}`, the only axis of the mesh, splits the batch: weights that are "
                           "laid out over it are gathered in each step",
                           axis))
      .help(fmt::format("tensor parallel: a mesh of `shape: [1, {}], axis_names: [batch, {}]`",
                        mesh.num_devices(), axis))
      .help(fmt::format("sharded weights (FSDP) on purpose: `batch_dim_name: {}`", axis));
}

}  // namespace

Distribution make_distribution(const Config& config, int processes, Diagnostics& diagnostics) {
  return make_distribution(config, LocalResources::here(processes), diagnostics);
}

Distribution make_distribution(const Config& config, const LocalResources& resources,
                               Diagnostics& diagnostics) {
  const int processes = resources.processes;
  const DistributionConfig& from = config.distribution;
  Distribution out;
  out.devices = parse_devices(from.mesh.devices, diagnostics);
  out.mesh = make_mesh(from, out.devices, resources, diagnostics);
  if (out.mesh.num_axes() == 0) {
    return out;  // reported above
  }
  if (out.mesh.num_devices() % processes != 0) {
    diagnostics
        .error("E210", from.mesh.shape.loc,
               fmt::format("{} split over {} processes",
                           out.mesh.num_devices() == 1
                               ? "1 device does not"
                               : fmt::format("{} devices do not", out.mesh.num_devices()),
                           processes))
        .help(fmt::format("a mesh of {} devices, or as many processes as divide {}",
                          (out.mesh.num_devices() / processes + 1) * processes,
                          out.mesh.num_devices()));
  } else {
    resolve_auto_devices(out.devices, out.mesh.num_devices(), resources, diagnostics);
  }
  const std::vector<std::string> names = from.batch_dim_name->empty()
                                             ? std::vector<std::string>{out.mesh.axis_name(0)}
                                             : from.batch_dim_name.value;
  out.batch_axis_names = join(names, ", ");
  out.batch_axes =
      find_axes(names, from.batch_dim_name.loc, "the batch axis", out.mesh, diagnostics);
  warn_of_shared_axis(from, out.mesh, diagnostics);
  out.zero = static_cast<int>(from.zero.value);
  out.zero_axes = from.zero_axes->empty() ? out.batch_axes
                                          : find_axes(from.zero_axes.value, from.zero_axes.loc,
                                                      "the zero axis", out.mesh, diagnostics);
  const int64_t shards = out.mesh.size_of(out.batch_axes);
  const int64_t batch = config.fit.batch_size.value;
  if (batch % shards != 0) {
    Diagnostic& d = diagnostics.error("E211", config.fit.batch_size.loc,
                                      fmt::format("a batch of {} does not split over `{}` = {}",
                                                  batch, out.batch_axis_names, shards));
    const int64_t above = (batch / shards + 1) * shards;
    d.help(batch < shards ? fmt::format("write `batch_size: {}`", above)
                          : fmt::format("write `batch_size: {}` or `batch_size: {}`",
                                        batch / shards * shards, above));
    if (out.devices.is_auto && from.mesh.shape->empty() && processes == 1) {
      const int64_t most = most_that_divide(batch, shards);
      d.help(fmt::format("or `devices: gpu:0{}`: `auto` takes all {} GPUs that are here",
                         most == 1 ? "" : fmt::format("-{}", most - 1), shards));
    }
    note_command_line(from.mesh, d);
  }
  return out;
}

LayoutMap make_layout_map(const Config& config, const DeviceMesh& mesh, Diagnostics& diagnostics) {
  LayoutMap map(mesh, config.distribution.layout_match == LayoutMatch::kSearch);
  map.set_unmatched(config.distribution.unmatched_rule);
  const auto& rules = config.distribution.layout_map;
  if (!rules.empty() && config.distribution.type != DistributionType::kModelParallel) {
    diagnostics
        .error("E206", rules[0].loc,
               fmt::format("`layout_map` has no effect with `type: {}`",
                           word_of(config.distribution.type.value)))
        .help("write `type: ModelParallel` in `distribution`");
    return map;
  }
  for (const LayoutRule& rule : rules) {
    try {
      map.set(rule);
    } catch (const ConfigError& error) {
      diagnostics.append(error.diagnostics());
    }
  }
  return map;
}

namespace {

// The factor's dimensions beside its rank are the first or the last ones of the weight.
Sharding layout_of_factor(const Sharding& weight, size_t rank, bool is_first) {
  Sharding out = Sharding::replicated(rank);
  for (size_t d = 0; d + 1 < rank; ++d) {
    out.dims[is_first ? d : rank - 1 - d] = weight.dims[is_first ? d : weight.dims.size() - 1 - d];
  }
  return out;
}

void lay_out_factors(const std::vector<LayoutTarget>& weights, const std::vector<int>& factors_of,
                     ResolvedLayouts& layouts) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (factors_of[i] != kNone && layouts.rules[i] == nullptr) {
      const auto weight = static_cast<size_t>(factors_of[i]);
      layouts.weights[i] = layout_of_factor(layouts.weights[weight], weights[i].shape.size(),
                                            ends_with(weights[i].path, "_a"));
      layouts.rules[i] = layouts.rules[weight];
    }
  }
}

}  // namespace

ResolvedLayouts resolve_layouts(const LayoutMap& map, const std::vector<LayoutTarget>& weights,
                                const std::vector<int>& factors_of,
                                const std::vector<LayoutTarget>& outputs,
                                const std::vector<std::string>& layer_paths,
                                std::string_view model_name, const MeshConfig& mesh,
                                Diagnostics& diagnostics) {
  std::vector<LayoutTarget> targets = weights;
  targets.insert(targets.end(), outputs.begin(), outputs.end());
  const std::vector<const LayoutRule*> rules =
      match_layouts(map, targets, layer_paths, model_name, diagnostics);
  ResolvedLayouts out;
  std::set<const LayoutRule*> warned;
  RuleFailures failures;
  for (size_t i = 0; i < targets.size(); ++i) {
    const LayoutTarget& target = targets[i];
    Sharding sharding = Sharding::replicated(target.shape.size());
    if (rules[i] != nullptr) {
      if (i < weights.size()) {
        warn_of_short_layout(*rules[i], target, warned, diagnostics);
      }
      Diagnostics found;
      sharding = resolve_layout(rules[i]->layout, target.path, target.shape, map.mesh(), found,
                                target.pad_dim)
                     .value_or(sharding);
      if (found.has_errors()) {
        add_failure(*rules[i], target.path, found, failures);
      }
    }
    if (i < weights.size()) {
      out.weights.push_back(sharding);
      out.rules.push_back(rules[i]);
    } else if (rules[i] != nullptr) {
      out.pins[target.path] = sharding;
      out.pin_rules[target.path] = rules[i];
    }
  }
  lay_out_factors(weights, factors_of, out);
  append_failures(failures, mesh, diagnostics);
  return out;
}

}  // namespace meshtrain
