// MeshPart: the devices of a mesh that belong to one of several processes.
//
// The processes form a grid like the mesh: each axis is divided into as many equal parts as the
// grid has positions along it. The first (slowest) axes are divided first, so that neighbours along
// the last axes belong to one process. The devices of a process form a mesh themselves, with the
// same axes and smaller sizes.
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
  // All devices, for a run of one process.
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

  // Returns the index in the whole mesh of a device of local().
  int64_t device(int64_t local_device) const;
  // Returns the process that owns a device of the whole mesh.
  int process_of(int64_t device) const;
  // Returns the process with this one's grid position, except along `axes`, where the position is
  // that of `device`. It is the nearest process with the device's shard of a value split over
  // `axes`.
  int holder(int64_t device, AxisMask axes) const { return holder(device, axes, rank_); }
  int holder(int64_t device, AxisMask axes, int asking) const;
  // Axes along which the grid has more than one position.
  AxisMask crossing() const;
  // Returns the processes that differ from this one only along `axes`, ordered by their position:
  // each member gets the same list. place_in_group() is the index of this process in the list.
  std::vector<int> group(AxisMask axes) const;
  int64_t place_in_group(AxisMask axes) const;
  // Returns the part of another process. Constant time: plans for thousands of processes need all.
  MeshPart of(int rank) const;

  // As distinct_shard() and device_of_shard() (sharding.h), for the shards of this process: their
  // number, the index of a local device's shard, and its first device in the whole mesh.
  int64_t num_shards(AxisMask axes) const { return local().size_of(axes); }
  int64_t shard(AxisMask axes, int64_t local_device) const {
    return distinct_shard(local(), axes, local_device);
  }
  int64_t device_of(AxisMask axes, int64_t shard) const {
    return device(device_of_shard(local(), axes, shard));
  }
  // Returns the local shard that `device` would hold at this process's position of the grid.
  int64_t shard_like(AxisMask axes, int64_t device) const;

 private:
  int64_t grid_coordinate(int process, int axis) const;

  // Shared by all parts of a mesh.
  struct Meshes {
    DeviceMesh mesh, local;
    std::vector<int64_t> grid;  // one for each axis
  };
  std::shared_ptr<const Meshes> meshes_ = std::make_shared<Meshes>();
  int processes_ = 1, rank_ = 0;
};

}  // namespace meshtrain
