// The axes of the mesh before the schema reads them: how `shape` may name them, and which of them
// the batch is split over once an override gives the mesh other axes.
#pragma once

#include <vector>

#include "config/yaml.h"

namespace meshtrain {

// Removes the axis names of a run's config.resolved.yaml that nobody wrote, when the command line
// gives the mesh another number of axes: the default names of that number then apply.
void drop_default_axis_names(YamlNode& root);

// `shape: data=4,model=2` names and sizes the axes at once: becomes `shape` and `axis_names`. E112
// for what is no name and size.
void split_mesh_shape(YamlNode& root, Diagnostics& diagnostics);

// The axes of a tree that leaves the choice of the batch axis to their order.
struct DefaultBatchAxes {
  bool is_named = false;        // false: they get the default names
  std::vector<YamlNode> names;  // texts; empty when `batch_dim_name` chooses or an expression names
};
DefaultBatchAxes default_batch_axes(const YamlNode& root);

// Splits the batch over the axis that the files imply, `in_files`, by name: writes `batch_dim_name`
// when an override, a flag or a profile puts another axis first. W211 when the mesh of `root` does
// not have that axis.
void keep_batch_axis(YamlNode& root, const DefaultBatchAxes& in_files, Diagnostics& diagnostics);

}  // namespace meshtrain
