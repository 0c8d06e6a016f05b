#include "mesh/mesh_part.h"

#include <doctest/doctest.h>

#include <set>

using namespace meshtrain;

TEST_CASE("mesh part: the first axes are cut first") {
  const DeviceMesh mesh({2, 4}, {"data", "model"});
  CHECK(MeshPart(mesh, 2, 1).grid() == std::vector<int64_t>{2, 1});
  CHECK(MeshPart(mesh, 4, 1).grid() == std::vector<int64_t>{2, 2});
  const MeshPart part(mesh, 4, 1);
  CHECK(part.local().shape() == std::vector<int64_t>{1, 2});
  CHECK(part.device(0) == 2);
  CHECK(part.device(1) == 3);
  CHECK(part.crossing() == 3u);
  CHECK(MeshPart(mesh, 2, 0).crossing() == 1u);
  CHECK(MeshPart(mesh).is_whole());
  CHECK(MeshPart(DeviceMesh({3, 2}, {"a", "b"}), 2, 1).grid() == std::vector<int64_t>{1, 2});
}

TEST_CASE("mesh part: processes that do not divide the devices are refused") {
  const DeviceMesh mesh({2, 3}, {"data", "model"});
  CHECK_THROWS_WITH_AS(MeshPart(mesh, 4, 0), "6 devices do not split over 4 processes", Error);
}

TEST_CASE("mesh part: every device has one process and every process its devices") {
  for (const DeviceMesh& mesh :
       {DeviceMesh({2, 4}, {"a", "b"}), DeviceMesh({6}, {"a"}),
        DeviceMesh({2, 3, 2}, {"a", "b", "c"}), DeviceMesh({1, 8}, {"a", "b"})}) {
    for (int processes = 1; processes <= mesh.num_devices(); ++processes) {
      if (mesh.num_devices() % processes != 0)
        continue;
      std::set<int64_t> seen;
      for (int rank = 0; rank < processes; ++rank) {
        const MeshPart part(mesh, processes, rank);
        for (int64_t local = 0; local < part.local().num_devices(); ++local) {
          const int64_t device = part.device(local);
          CHECK(seen.insert(device).second);
          CHECK(part.process_of(device) == rank);
          for (AxisMask axes = 0; axes < AxisMask{1} << mesh.num_axes(); ++axes) {
            CHECK(part.shard_like(axes, device) == part.shard(axes, local));
            CHECK(part.holder(device, axes) == rank);
            const auto group = part.group(axes);
            CHECK(group.at(static_cast<size_t>(part.place_in_group(axes))) == rank);
            for (const int member : group) {
              CHECK(part.of(member).group(axes) == group);
              CHECK(part.of(member).holder(device, axes) == rank);
            }
          }
        }
      }
      CHECK(static_cast<int64_t>(seen.size()) == mesh.num_devices());
    }
  }
}
