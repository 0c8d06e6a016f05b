// The `distribution` section made concrete: the mesh on this machine's devices, which axes split
// the batch, and what each layout rule acts on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "engine/devices.h"
#include "mesh/layout_map.h"

namespace meshtrain {

struct Distribution {
  DeviceMesh mesh;
  DeviceRequest devices;
  AxisList batch_axes;           // of size > 1, major to minor
  std::string batch_axis_names;  // as written, for texts: "data"
  int zero = 0;
  AxisList zero_axes;
};

// Builds the mesh. Without a shape: one axis over all_devices(). Adds E205 (unknown axis), E210
// (mesh and devices differ, or the devices do not split over the processes), E211 (batch_size does
// not divide) and W620 (GPUs that `auto` does not use) to `diagnostics`.
Distribution make_distribution(const Config& config, const LocalResources& resources,
                               Diagnostics& diagnostics);
// For the given number of processes.
Distribution make_distribution(const Config& config, int processes, Diagnostics& diagnostics);

// The layouts of every weight and of layer outputs by the layout map.
struct ResolvedLayouts {
  std::vector<Sharding> weights;         // beside the targets given
  std::vector<const LayoutRule*> rules;  // the rule of each weight, nullptr: replicated
  std::map<std::string, Sharding> pins;  // "d2/output"
  std::map<std::string, const LayoutRule*> pin_rules;
};
// Low-rank factors, by `factors_of` beside the weights, that no rule names are laid out as the
// dimensions of their weight. `mesh`: for E204, which names the command line as the origin of the
// sizes.
ResolvedLayouts resolve_layouts(const LayoutMap& map, const std::vector<LayoutTarget>& weights,
                                const std::vector<int>& factors_of,
                                const std::vector<LayoutTarget>& outputs,
                                const std::vector<std::string>& layer_paths,
                                std::string_view model_name, const MeshConfig& mesh,
                                Diagnostics& diagnostics);

// The rules of the config as a map on `mesh`; problems of single rules go to `diagnostics`.
LayoutMap make_layout_map(const Config& config, const DeviceMesh& mesh, Diagnostics& diagnostics);

}  // namespace meshtrain
