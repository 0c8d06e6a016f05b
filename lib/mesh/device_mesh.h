// DeviceMesh: a named, row-major grid of devices, as keras.distribution.DeviceMesh.
//
//   DeviceMesh mesh({2, 4}, {"data", "model"});
//   mesh.coordinate(5, mesh.axis_index("model")) == 1     // device 5 is at data=1, model=1
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace meshtrain {

// A set of mesh axes: bit i is axis i.
using AxisMask = uint32_t;
constexpr int kMaxAxes = 16;

struct MeshAxis {
  std::string name;
  int64_t size = 1;
};

class DeviceMesh {
 public:
  DeviceMesh() = default;  // one device, no axes
  // Throws Error (exit 4) as Keras raises ValueError: empty shape or names, different lengths (both
  // are named), size < 1, a repeated name, more than kMaxAxes axes.
  DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> axis_names);
  // As above with explicit devices ("cpu:0"); throws when their number is not the mesh's size or
  // one is repeated.
  DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> axis_names,
             std::vector<std::string> devices);

  int num_axes() const { return static_cast<int>(axes_.size()); }
  const std::vector<MeshAxis>& axes() const { return axes_; }
  const std::string& axis_name(int axis) const { return axes_[axis].name; }
  int64_t axis_size(int axis) const { return axes_[axis].size; }
  std::optional<int> find_axis(std::string_view name) const;
  int axis_index(std::string_view name) const;  // throws Error listing the axes when absent
  int64_t num_devices() const;
  std::vector<int64_t> shape() const;
  std::vector<std::string> axis_names() const;
  const std::vector<std::string>& devices() const { return devices_; }  // "cpu:0", ... if not given

  // Position of `device` along `axis`; devices are laid out row-major.
  int64_t coordinate(int64_t device, int axis) const;
  // Product of the sizes of a list or a set of axes.
  int64_t size_of(std::span<const int> axes) const;
  int64_t size_of(AxisMask axes) const;
  // Index of `device` among the positions along `axes`, the first axis the most significant. This
  // one function decides the shard, the slice and the rank in a group of a device.
  int64_t index_along(int64_t device, std::span<const int> axes) const;
  // Devices that differ from `device` only along `axes`, ordered by index_along: the group that a
  // collective over these axes runs in.
  std::vector<int64_t> group(int64_t device, std::span<const int> axes) const;

  std::string to_string() const;  // <DeviceMesh shape=(2, 4), axis_names=['data', 'model']>
  bool operator==(const DeviceMesh& other) const;

 private:
  std::vector<MeshAxis> axes_;
  std::vector<int64_t> strides_;  // devices between neighbours along each axis
  std::vector<std::string> devices_ = {"cpu:0"};
};

}  // namespace meshtrain
