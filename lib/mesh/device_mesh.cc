#include "mesh/device_mesh.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace meshtrain {

namespace {

// Far above any real machine; keeps a mistyped shape from asking for terabytes of device names.
constexpr int64_t kMaxDevices = int64_t{1} << 20;

[[noreturn]] void fail(const std::string& message) {
  throw Error(ExitCode::kMesh, message);
}

std::string tuple_string(const std::vector<int64_t>& values) {
  return values.size() == 1 ? fmt::format("({},)", values[0])
                            : fmt::format("({})", fmt::join(values, ", "));
}

std::string quoted_list(const std::vector<std::string>& names) {
  return names.empty() ? "[]" : fmt::format("['{}']", fmt::join(names, "', '"));
}

// Names must survive the text form of a sharding: "[[data, model], null] sum(expert)".
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "null" &&
         name.find_first_of(" \t\r\n[](),:'\"") == std::string_view::npos;
}

int64_t checked_size(const std::vector<int64_t>& shape, const std::vector<std::string>& names) {
  if (shape.empty() || names.empty()) {
    fail(fmt::format("a device mesh needs a shape and axis names; got shape={}, axis_names={}",
                     tuple_string(shape), quoted_list(names)));
  }
  if (shape.size() != names.size()) {
    fail(fmt::format("a device mesh needs one axis name per dimension; got shape={}, axis_names={}",
                     tuple_string(shape), quoted_list(names)));
  }
  if (shape.size() > static_cast<size_t>(kMaxAxes)) {
    fail(fmt::format("a device mesh has at most {} axes; got {}", kMaxAxes, shape.size()));
  }
  std::set<std::string_view> seen;
  int64_t size = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!is_plain_name(names[i])) {
      fail(
          fmt::format("mesh axis {} is named '{}'; a name is not empty, not 'null' and has no "
                      "spaces, brackets, commas, colons or quotes",
                      i, names[i]));
    }
    if (!seen.insert(names[i]).second) {
      fail(fmt::format("mesh axis '{}' occurs twice in {}", names[i], quoted_list(names)));
    }
    if (shape[i] < 1) {
      fail(fmt::format("mesh axis '{}' has size {}; sizes are at least 1", names[i], shape[i]));
    }
    if (shape[i] > kMaxDevices / size) {
      fail(fmt::format("a mesh of shape {} has more than {} devices", tuple_string(shape),
                       kMaxDevices));
    }
    size *= shape[i];
  }
  return size;
}

std::vector<std::string> default_devices(int64_t count) {
  std::vector<std::string> devices;
  devices.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    devices.push_back(fmt::format("cpu:{}", i));
  }
  return devices;
}

}  // namespace

DeviceMesh::DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> axis_names)
    : DeviceMesh(shape, axis_names, default_devices(checked_size(shape, axis_names))) {}

DeviceMesh::DeviceMesh(std::vector<int64_t> shape, std::vector<std::string> axis_names,
                       std::vector<std::string> devices) {
  const int64_t size = checked_size(shape, axis_names);
  if (static_cast<int64_t>(devices.size()) != size) {
    fail(fmt::format("a mesh of shape {} has {} devices; {} were given", tuple_string(shape), size,
                     devices.size()));
  }
  std::set<std::string_view> seen;
  for (const std::string& device : devices) {
    if (!seen.insert(device).second) {
      fail(fmt::format("device '{}' occurs twice in the mesh", device));
    }
  }
  devices_ = std::move(devices);
  strides_.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides_[i] = stride;
    stride *= shape[i];
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    axes_.push_back({std::move(axis_names[i]), shape[i]});
  }
}

std::optional<int> DeviceMesh::find_axis(std::string_view name) const {
  for (int i = 0; i < num_axes(); ++i) {
    if (axes_[i].name == name) {
      return i;
    }
  }
  return std::nullopt;
}

int DeviceMesh::axis_index(std::string_view name) const {
  const std::optional<int> axis = find_axis(name);
  if (!axis) {
    fail(fmt::format("axis '{}' is not in the mesh; its axes are {}", name,
                     quoted_list(axis_names())));
  }
  return *axis;
}

int64_t DeviceMesh::num_devices() const {
  return static_cast<int64_t>(devices_.size());
}

std::vector<int64_t> DeviceMesh::shape() const {
  std::vector<int64_t> out;
  for (const MeshAxis& axis : axes_) {
    out.push_back(axis.size);
  }
  return out;
}

std::vector<std::string> DeviceMesh::axis_names() const {
  std::vector<std::string> out;
  for (const MeshAxis& axis : axes_) {
    out.push_back(axis.name);
  }
  return out;
}

int64_t DeviceMesh::coordinate(int64_t device, int axis) const {
  return device / strides_[axis] % axes_[axis].size;
}

int64_t DeviceMesh::size_of(std::span<const int> axes) const {
  int64_t size = 1;
  for (const int axis : axes) {
    size *= axes_[axis].size;
  }
  return size;
}

int64_t DeviceMesh::size_of(AxisMask axes) const {
  int64_t size = 1;
  for (int axis = 0; axis < num_axes(); ++axis) {
    size *= (axes >> axis & 1) != 0 ? axes_[axis].size : 1;
  }
  return size;
}

int64_t DeviceMesh::index_along(int64_t device, std::span<const int> axes) const {
  int64_t index = 0;
  for (const int axis : axes) {
    index = index * axes_[axis].size + coordinate(device, axis);
  }
  return index;
}

std::vector<int64_t> DeviceMesh::group(int64_t device, std::span<const int> axes) const {
  for (const int axis : axes) {
    device -= coordinate(device, axis) * strides_[axis];
  }
  std::vector<int64_t> devices(size_of(axes), device);
  // From the minor axis up: `filled` devices already enumerate the axes after this one.
  int64_t filled = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t size = axes_[axes[i]].size;
    const int64_t stride = strides_[axes[i]];
    for (int64_t k = filled; k < filled * size; ++k) {
      devices[k] = devices[k % filled] + k / filled * stride;
    }
    filled *= size;
  }
  return devices;
}

std::string DeviceMesh::to_string() const {
  return fmt::format("<DeviceMesh shape={}, axis_names={}>", tuple_string(shape()),
                     quoted_list(axis_names()));
}

bool DeviceMesh::operator==(const DeviceMesh& other) const {
  return strides_ == other.strides_ && devices_ == other.devices_ &&
         std::equal(axes_.begin(), axes_.end(), other.axes_.begin(), other.axes_.end(),
                    [](const MeshAxis& a, const MeshAxis& b) {
                      return a.name == b.name && a.size == b.size;
                    });
}

}  // namespace meshtrain
