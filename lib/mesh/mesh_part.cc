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

MeshPart::MeshPart(DeviceMesh mesh) : MeshPart(std::move(mesh), 1, 0) {}

MeshPart::MeshPart(DeviceMesh mesh, int processes, int rank) : processes_(processes), rank_(rank) {
  MESHTRAIN_CHECK(rank >= 0 && rank < processes, "rank {} of {}", rank, processes);
  std::vector<int64_t> grid = cut(mesh, processes);
  DeviceMesh local = processes == 1 ? mesh : local_mesh(mesh, grid);
  meshes_ = std::make_shared<Meshes>(Meshes{std::move(mesh), std::move(local), std::move(grid)});
}

MeshPart MeshPart::of(int rank) const {
  MESHTRAIN_CHECK(rank >= 0 && rank < processes_, "rank {} of {}", rank, processes_);
  MeshPart out = *this;
  out.rank_ = rank;
  return out;
}

int64_t MeshPart::grid_coordinate(int process, int axis) const {
  int64_t after = 1;
  for (size_t a = grid().size() - 1; a > static_cast<size_t>(axis); --a) {
    after *= grid()[a];
  }
  return process / after % grid()[static_cast<size_t>(axis)];
}

int64_t MeshPart::device(int64_t local_device) const {
  int64_t device = 0;
  for (int axis = 0; axis < mesh().num_axes(); ++axis) {
    const int64_t at = grid_coordinate(rank_, axis) * local().axis_size(axis) +
                       local().coordinate(local_device, axis);
    device = device * mesh().axis_size(axis) + at;
  }
  return device;
}

int MeshPart::process_of(int64_t device) const {
  return holder(device, ~AxisMask{0}, 0);
}

int MeshPart::holder(int64_t device, AxisMask axes, int asking) const {
  int64_t process = 0;
  for (int axis = 0; axis < mesh().num_axes(); ++axis) {
    const int64_t at = (axes >> axis & 1u) != 0
                           ? mesh().coordinate(device, axis) / local().axis_size(axis)
                           : grid_coordinate(asking, axis);
    process = process * grid()[static_cast<size_t>(axis)] + at;
  }
  return static_cast<int>(process);
}

int64_t MeshPart::shard_like(AxisMask axes, int64_t device) const {
  int64_t shard = 0;
  for (int axis = 0; axis < mesh().num_axes(); ++axis) {
    if ((axes >> axis & 1u) != 0) {
      const int64_t size = local().axis_size(axis);
      shard = shard * size + mesh().coordinate(device, axis) % size;
    }
  }
  return shard;
}

std::vector<int> MeshPart::group(AxisMask axes) const {
  std::vector<int> out;
  for (int rank = 0; rank < processes_; ++rank) {
    bool is_member = true;
    for (int axis = 0; axis < mesh().num_axes(); ++axis) {
      is_member = is_member && ((axes >> axis & 1u) != 0 ||
                                grid_coordinate(rank, axis) == grid_coordinate(rank_, axis));
    }
    if (is_member) {
      out.push_back(rank);
    }
  }
  return out;
}

int64_t MeshPart::place_in_group(AxisMask axes) const {
  int64_t place = 0;
  for (int axis = 0; axis < mesh().num_axes(); ++axis) {
    if ((axes >> axis & 1u) != 0) {
      place = place * grid()[static_cast<size_t>(axis)] + grid_coordinate(rank_, axis);
    }
  }
  return place;
}

AxisMask MeshPart::crossing() const {
  AxisMask out = 0;
  for (int axis = 0; axis < mesh().num_axes(); ++axis) {
    out |= grid()[static_cast<size_t>(axis)] > 1 ? AxisMask{1} << axis : 0;
  }
  return out;
}

}  // namespace meshtrain
