// Sharding: how a value is split over the mesh. It has for every tensor dimension an ordered list
// of mesh axes (major to minor) that split it. It also has a set of axes over which the value is a
// partial sum, max or min. This one type describes variables, activations, gradients and
// collectives alike.
//
//   {{data}, {}}            rows split over `data`, columns whole, replicated over the other axes
//   {{}, {model}}           columns split over `model`
//   {{}, {}} partial data   each position along `data` holds a term; their sum is the value
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/small_vector.h"
#include "mesh/device_mesh.h"
#include "tensor/shape.h"

namespace meshtrain {

using AxisList = SmallVector<int, 2>;      // mesh axis indices, major to minor
using DimAxes = SmallVector<AxisList, 4>;  // of each dimension

inline AxisMask axis_bit(int axis) {
  return AxisMask{1} << axis;
}
inline AxisMask mask_of(const AxisList& axes) {
  AxisMask mask = 0;
  for (const int axis : axes) {
    mask |= axis_bit(axis);
  }
  return mask;
}

enum class Combine : uint8_t { kSum, kMax, kMin };
std::string_view combine_name(Combine combine);  // "sum"

struct Sharding {
  DimAxes dims;
  AxisMask partial = 0;
  Combine combine = Combine::kSum;  // meaning of `partial`; kSum when that is empty

  static Sharding replicated(size_t rank) { return {DimAxes(rank), 0, Combine::kSum}; }

  bool is_replicated() const;  // nothing split, nothing partial
  AxisMask dim_axes() const;   // axes that split some dimension
  AxisMask used_axes() const { return dim_axes() | partial; }
  // The same dims with nothing partial.
  Sharding reduced() const { return {dims, 0, Combine::kSum}; }

  bool operator==(const Sharding&) const = default;
};

// Checks the invariants: rank(sharding) == rank(shape); an axis occurs at most once in dims and
// partial together; the axes of a dimension divide it; every axis is in the mesh. Returns the first
// problem in words, or nothing.
std::optional<std::string> sharding_problem(const Sharding& sharding, const Shape& shape,
                                            const DeviceMesh& mesh);
// Throws InternalError when an invariant does not hold.
void check_sharding(const Sharding& sharding, const Shape& shape, const DeviceMesh& mesh);

// Drops axes of size 1 (they split nothing).
Sharding normalized(Sharding sharding, const DeviceMesh& mesh);

// Shape of one device's shard: local_shape({768, 3072}, {{}, {model}}, model=4) == {768, 768}.
Shape local_shape(const Shape& global, const Sharding& sharding, const DeviceMesh& mesh);
// Returns the start of the shard of `device` in the global tensor, per dimension.
std::vector<int64_t> local_start(const Shape& global, const Sharding& sharding,
                                 const DeviceMesh& mesh, int64_t device);

// Returns the index of the distinct shard that `device` holds, 0 <= index < size_of(axes). Devices
// with equal coordinates along every axis of `axes` hold the same shard. Shards are numbered
// row-major over the axes of the mask in mesh order.
int64_t distinct_shard(const DeviceMesh& mesh, AxisMask axes, int64_t device);
// Returns the first device that holds distinct shard `shard`.
int64_t device_of_shard(const DeviceMesh& mesh, AxisMask axes, int64_t shard);

// "[data, null]", "[[data, model], null] sum(expert)"; axes by name, as a config writes them.
std::string sharding_string(const Sharding& sharding, const DeviceMesh& mesh);
// The inverse of sharding_string; throws Error with what is wrong.
Sharding parse_sharding(std::string_view text, const DeviceMesh& mesh);

}  // namespace meshtrain
