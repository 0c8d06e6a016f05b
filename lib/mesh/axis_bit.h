#pragma once

#include "mesh/device_mesh.h"

namespace meshtrain {

inline AxisMask axis_bit(int axis) {
  return AxisMask{1} << axis;
}

}  // namespace meshtrain
