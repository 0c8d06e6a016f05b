// Axis names in layouts. They are checked once: when a rule is added to a LayoutMap, or with the
// other errors of an invalid config.
#pragma once

#include "base/diagnostic.h"
#include "mesh/layout_map.h"

namespace meshtrain {

// The place of axis `i` of dimension `d`, else of the whole layout.
SourceLoc axis_loc(const TensorLayout& layout, size_t d, size_t i);

// Adds an E205 for every axis that is not one of `names`, the mesh's, or occurs twice.
void check_layout_axes(const TensorLayout& layout, const std::vector<std::string>& names,
                       Diagnostics& diagnostics);

}  // namespace meshtrain
