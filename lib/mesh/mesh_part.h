// MeshPart: the devices of a mesh that one of several processes has.
//
// The processes form a grid like the mesh: each axis is cut into as many equal parts as the grid
// has positions along it, the first (slowest) axes first, so that neighbours along the last axes
// stay in one process. The devices of a process are a mesh themselves, with the same axes and
// smaller sizes.
//
//   MeshPart part(DeviceMesh({2, 4}, {"data", "model"}), 4, 1);   // grid 2 x 2
//   part.local().shape() == {1, 2};  part.device(0) == 2;         // data=0, model=2
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mesh/sharding.h"

namespace meshtrain {

class MeshPart {
 public:
  MeshPart() = default;  // one device
  // All devices, of the only process. A mesh is a part of itself.
  MeshPart(DeviceMesh mesh);  // NOLINT(google-explicit-constructor)
  // Throws Error (exit 4) when `processes` does not divide the number of devices.
  MeshPart(DeviceMesh mesh, int processes, int rank);

  const DeviceMesh& mesh() const { return meshes_->mesh; }
  const DeviceMesh& local() const { return meshes_->local; }
  int processes() const { return processes_; }
  int rank() const { return rank_; }
  bool is_whole() const { return processes_ == 1; }
  // Positions of the grid along each axis.
  const std::vector<int64_t>& grid() const { return meshes_->grid; }

  // Of the whole mesh, from one of local(), and the process that has it.
  int64_t device(int64_t local_device) const;
  int process_of(int64_t device) const;
  // The process at my own place of the grid but along `axes`, where it is that of `device`: among
  // those that hold what is split over `axes` the one nearest to me.
  int holder(int64_t device, AxisMask axes) const { return holder(device, axes, rank_); }
  int holder(int64_t device, AxisMask axes, int asking) const;
  // Axes along which the grid has more than one position.
  AxisMask crossing() const;
  // The processes that differ from this one only along `axes`, in the order of their places there:
  // the same list on each of them. And the place of this one in the list.
  std::vector<int> group(AxisMask axes) const;
  int64_t place_in_group(AxisMask axes) const;
  // The part of another process, made in no time: plans for thousands ask for each of them.
  MeshPart of(int rank) const;

  // As the functions of sharding.h, for the shards that this process holds: their number, the one
  // that a local device holds, and the first device, of the whole mesh, that holds it.
  int64_t num_shards(AxisMask axes) const { return local().size_of(axes); }
  int64_t shard(AxisMask axes, int64_t local_device) const {
    return distinct_shard(local(), axes, local_device);
  }
  int64_t device_of(AxisMask axes, int64_t shard) const {
    return device(device_of_shard(local(), axes, shard));
  }
  // The shard of mine that a device of the whole mesh would hold in my place of the grid.
  int64_t shard_like(AxisMask axes, int64_t device) const;

 private:
  int64_t grid_coordinate(int process, int axis) const;

  // What all parts of a mesh have in common.
  struct Meshes {
    DeviceMesh mesh, local;
    std::vector<int64_t> grid;  // one for each axis
  };
  std::shared_ptr<const Meshes> meshes_ = std::make_shared<Meshes>();
  int processes_ = 1, rank_ = 0;
};

}  // namespace meshtrain
