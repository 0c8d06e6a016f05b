#include "mesh/mesh_part.h"

#include <numeric>

namespace meshtrain {
namespace {

std::vector<int64_t> cut(const DeviceMesh& mesh, int processes) {
  std::vector<int64_t> grid;
  int64_t left = processes;
  for (const MeshAxis& axis : mesh.axes()) {
    grid.push_back(std::gcd(left, axis.size));
    left /= grid.back();
  }
  if (left != 1) {
    throw Error(ExitCode::kMesh, fmt::format("{} devices do not split over {} processes",
                                             mesh.num_devices(), processes));
  }
  return grid;
}

DeviceMesh local_mesh(const DeviceMesh& mesh, const std::vector<int64_t>& grid) {
  if (mesh.num_axes() == 0) {
    return mesh;
  }
  std::vector<int64_t> shape = mesh.shape();
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    shape[axis] /= grid[axis];
  }
  return DeviceMesh(std::move(shape), mesh.axis_names());
}

}  // namespace

MeshPart::MeshPart(DeviceMesh mesh)
    : mesh_(std::move(mesh)), local_(mesh_), grid_(static_cast<size_t>(mesh_.num_axes()), 1) {}

MeshPart::MeshPart(DeviceMesh mesh, int processes, int rank)
    : mesh_(std::move(mesh)), grid_(cut(mesh_, processes)), processes_(processes), rank_(rank) {
  MESHTRAIN_CHECK(rank >= 0 && rank < processes, "rank {} of {}", rank, processes);
  local_ = processes == 1 ? mesh_ : local_mesh(mesh_, grid_);
}

int64_t MeshPart::grid_coordinate(int process, int axis) const {
  int64_t after = 1;
  for (size_t a = grid_.size() - 1; a > static_cast<size_t>(axis); --a) {
    after *= grid_[a];
  }
  return process / after % grid_[static_cast<size_t>(axis)];
}

int64_t MeshPart::device(int64_t local_device) const {
  int64_t device = 0;
  for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
    const int64_t at = grid_coordinate(rank_, axis) * local_.axis_size(axis) +
                       local_.coordinate(local_device, axis);
    device = device * mesh_.axis_size(axis) + at;
  }
  return device;
}

int MeshPart::process_of(int64_t device) const {
  return holder(device, ~AxisMask{0}, 0);
}

int MeshPart::holder(int64_t device, AxisMask axes, int asking) const {
  int64_t process = 0;
  for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
    const int64_t at = (axes >> axis & 1u) != 0
                           ? mesh_.coordinate(device, axis) / local_.axis_size(axis)
                           : grid_coordinate(asking, axis);
    process = process * grid_[static_cast<size_t>(axis)] + at;
  }
  return static_cast<int>(process);
}

int64_t MeshPart::piece_like(AxisMask axes, int64_t device) const {
  int64_t piece = 0;
  for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
    if ((axes >> axis & 1u) != 0) {
      const int64_t size = local_.axis_size(axis);
      piece = piece * size + mesh_.coordinate(device, axis) % size;
    }
  }
  return piece;
}

std::vector<int> MeshPart::group(AxisMask axes) const {
  std::vector<int> out;
  for (int rank = 0; rank < processes_; ++rank) {
    if (holder(of(rank).device(0), axes) == rank) {
      out.push_back(rank);
    }
  }
  return out;
}

int64_t MeshPart::place_in_group(AxisMask axes) const {
  int64_t place = 0;
  for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
    if ((axes >> axis & 1u) != 0) {
      place = place * grid_[static_cast<size_t>(axis)] + grid_coordinate(rank_, axis);
    }
  }
  return place;
}

AxisMask MeshPart::crossing() const {
  AxisMask out = 0;
  for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
    out |= grid_[static_cast<size_t>(axis)] > 1 ? AxisMask{1} << axis : 0;
  }
  return out;
}

}  // namespace meshtrain
