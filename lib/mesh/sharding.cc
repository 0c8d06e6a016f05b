#include "mesh/sharding.h"

#include <array>
#include <bit>

#include "base/text.h"

namespace meshtrain {

namespace {
constexpr std::array<std::string_view, 3> kCombineNames = {"sum", "max", "min"};

std::string axis_text(const DeviceMesh& mesh, int axis) {
  return axis >= 0 && axis < mesh.num_axes() ? mesh.axis_name(axis) : fmt::format("#{}", axis);
}

std::string axes_text(const DeviceMesh& mesh, const AxisList& axes) {
  std::vector<std::string> names;
  for (const int axis : axes) {
    names.push_back(axis_text(mesh, axis));
  }
  return join(names, ", ");
}

AxisList axes_of(AxisMask mask) {
  AxisList axes;
  for (; mask != 0; mask &= mask - 1) {
    axes.push_back(std::countr_zero(mask));
  }
  return axes;
}
}  // namespace

std::string_view combine_name(Combine combine) {
  return kCombineNames[static_cast<size_t>(combine)];
}

bool Sharding::is_replicated() const {
  if (partial != 0) {
    return false;
  }
  for (const AxisList& axes : dims) {
    if (!axes.empty()) {
      return false;
    }
  }
  return true;
}

AxisMask Sharding::dim_axes() const {
  AxisMask mask = 0;
  for (const AxisList& axes : dims) {
    for (const int axis : axes) {
      mask |= axis_bit(axis);
    }
  }
  return mask;
}

std::optional<std::string> sharding_problem(const Sharding& sharding, const Shape& shape,
                                            const DeviceMesh& mesh) {
  if (sharding.dims.size() != shape.size()) {
    return fmt::format("the sharding has {} dimensions, the tensor {} has {}", sharding.dims.size(),
                       shape_string(shape), shape.size());
  }
  if ((uint64_t{sharding.partial} >> mesh.num_axes()) != 0) {
    return fmt::format("a partial axis is not in the mesh of {} axes", mesh.num_axes());
  }
  if (sharding.partial == 0 && sharding.combine != Combine::kSum) {
    return fmt::format("combine is {} but nothing is partial", combine_name(sharding.combine));
  }
  AxisMask seen = sharding.partial;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t count = 1;
    for (const int axis : sharding.dims[d]) {
      if (axis < 0 || axis >= mesh.num_axes()) {
        return fmt::format("axis {} of dimension {} is not in the mesh of {} axes", axis, d,
                           mesh.num_axes());
      }
      if ((seen & axis_bit(axis)) != 0) {
        return fmt::format("axis '{}' of dimension {} is used twice", mesh.axis_name(axis), d);
      }
      seen |= axis_bit(axis);
      count *= mesh.axis_size(axis);
    }
    if (shape[d] != kUnknownDim && shape[d] % count != 0) {
      return fmt::format("dimension {} of {} is not divisible by {} ({})", d, shape_string(shape),
                         count, axes_text(mesh, sharding.dims[d]));
    }
  }
  return std::nullopt;
}

void check_sharding(const Sharding& sharding, const Shape& shape, const DeviceMesh& mesh) {
  const std::optional<std::string> problem = sharding_problem(sharding, shape, mesh);
  MESHTRAIN_CHECK(!problem, "{}: {}", sharding_string(sharding, mesh), *problem);
}

Sharding normalized(Sharding sharding, const DeviceMesh& mesh) {
  for (AxisList& axes : sharding.dims) {
    erase_if(axes, [&](int axis) { return mesh.axis_size(axis) == 1; });
  }
  for (const int axis : axes_of(sharding.partial)) {
    if (mesh.axis_size(axis) == 1) {
      sharding.partial &= ~axis_bit(axis);
    }
  }
  if (sharding.partial == 0) {
    sharding.combine = Combine::kSum;
  }
  return sharding;
}

Shape local_shape(const Shape& global, const Sharding& sharding, const DeviceMesh& mesh) {
  MESHTRAIN_CHECK(sharding.dims.size() == global.size(), "{} on {}",
                  sharding_string(sharding, mesh), shape_string(global));
  Shape local = global;
  for (size_t d = 0; d < global.size(); ++d) {
    if (global[d] == kUnknownDim || sharding.dims[d].empty()) {
      continue;
    }
    const int64_t count = mesh.size_of(sharding.dims[d]);
    MESHTRAIN_CHECK(global[d] % count == 0, "dimension {} of {} under {}", d, shape_string(global),
                    sharding_string(sharding, mesh));
    local[d] = global[d] / count;
  }
  return local;
}

std::vector<int64_t> local_start(const Shape& global, const Sharding& sharding,
                                 const DeviceMesh& mesh, int64_t device) {
  const Shape local = local_shape(global, sharding, mesh);
  std::vector<int64_t> start(global.size(), 0);
  for (size_t d = 0; d < global.size(); ++d) {
    const int64_t index = mesh.index_along(device, sharding.dims[d]);
    MESHTRAIN_CHECK(index == 0 || global[d] != kUnknownDim,
                    "where dimension {} of unknown size begins on device {}", d, device);
    start[d] = index * local[d];
  }
  return start;
}

int64_t distinct_shard(const DeviceMesh& mesh, AxisMask axes, int64_t device) {
  int64_t shard = 0;
  for (; axes != 0; axes &= axes - 1) {
    const int axis = std::countr_zero(axes);
    shard = shard * mesh.axis_size(axis) + mesh.coordinate(device, axis);
  }
  return shard;
}

int64_t device_of_shard(const DeviceMesh& mesh, AxisMask axes, int64_t shard) {
  MESHTRAIN_CHECK(shard >= 0 && shard < mesh.size_of(axes), "shard {}", shard);
  int64_t device = 0;
  int64_t stride = 1;
  for (int axis = mesh.num_axes() - 1; axis >= 0; --axis) {
    const int64_t size = mesh.axis_size(axis);
    if ((axes & axis_bit(axis)) != 0) {
      device += shard % size * stride;
      shard /= size;
    }
    stride *= size;
  }
  return device;
}

std::string sharding_string(const Sharding& sharding, const DeviceMesh& mesh) {
  std::string out = "[";
  for (size_t d = 0; d < sharding.dims.size(); ++d) {
    const AxisList& axes = sharding.dims[d];
    out += d == 0 ? "" : ", ";
    out += axes.empty()       ? "null"
           : axes.size() == 1 ? axis_text(mesh, axes[0])
                              : fmt::format("[{}]", axes_text(mesh, axes));
  }
  out += "]";
  if (sharding.partial != 0) {
    out += fmt::format(" {}({})", combine_name(sharding.combine),
                       axes_text(mesh, axes_of(sharding.partial)));
  }
  return out;
}

namespace {

// Reads the grammar of sharding_string:
//   sharding = "[" [entry {"," entry}] "]" [combine "(" name {"," name} ")"]
//   entry    = "null" | name | "[" [name {"," name}] "]"
class ShardingParser {
 public:
  ShardingParser(std::string_view text, const DeviceMesh& mesh) : text_(text), mesh_(mesh) {}

  Sharding parse() {
    Sharding out;
    expect('[');
    if (!accept(']')) {
      do {
        out.dims.push_back(entry());
      } while (accept(','));
      expect(']');
    }
    if (peek() != '\0') {
      out.combine = combine(word());
      expect('(');
      do {
        out.partial |= axis_bit(axis(word()));
      } while (accept(','));
      expect(')');
    }
    if (peek() != '\0') {
      fail("nothing more was expected");
    }
    return out;
  }

 private:
  AxisList entry() {
    if (!accept('[')) {
      const std::string_view name = word();
      return name == "null" ? AxisList{} : AxisList{axis(name)};
    }
    AxisList axes;
    if (accept(']')) {
      return axes;
    }
    do {
      axes.push_back(axis(word()));
    } while (accept(','));
    expect(']');
    return axes;
  }

  int axis(std::string_view name) {
    const std::optional<int> found = mesh_.find_axis(name);
    if (!found) {
      fail(fmt::format("axis '{}' is not in the mesh", name));
    }
    if ((seen_ & axis_bit(*found)) != 0) {
      fail(fmt::format("axis '{}' occurs twice", name));
    }
    seen_ |= axis_bit(*found);
    return *found;
  }

  Combine combine(std::string_view name) {
    for (size_t i = 0; i < kCombineNames.size(); ++i) {
      if (kCombineNames[i] == name) {
        return static_cast<Combine>(i);
      }
    }
    fail(fmt::format("'{}' is not one of sum, max, min", name));
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) {
      return false;
    }
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) {
      fail(fmt::format("expected '{}'", c));
    }
  }
  std::string_view word() {
    peek();
    const size_t end = std::min(text_.find_first_of(" ,[]()", at_), text_.size());
    if (end == at_) {
      fail("expected a name");
    }
    const std::string_view out = text_.substr(at_, end - at_);
    at_ = end;
    return out;
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ExitCode::kConfig,
                fmt::format("sharding '{}': {} at character {}", text_, why, at_ + 1));
  }

  std::string_view text_;
  const DeviceMesh& mesh_;
  size_t at_ = 0;
  AxisMask seen_ = 0;
};

}  // namespace

Sharding parse_sharding(std::string_view text, const DeviceMesh& mesh) {
  return ShardingParser(text, mesh).parse();
}

}  // namespace meshtrain
