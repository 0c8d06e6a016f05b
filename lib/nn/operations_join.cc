// Operations that join tensors, cut them, and repeat or pad what they hold. Source: Keras 3.15
// ops/numpy.py, ops/core.py.
#include <algorithm>

#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;
using Axes = std::vector<int64_t>;

constexpr size_t kMaxCopies = 1024;
constexpr size_t kMaxRank = 16;
constexpr int64_t kMaxPadding = int64_t{1} << 31;

int64_t size_along(Context& c, ValueId x, int axis) {
  return c.b.shape(x)[static_cast<size_t>(axis)];
}

std::vector<ValueId> listed(Context& c) {
  if (!c.operands[0].is_list || c.operands[0].list.empty()) {
    operation_error("it takes a list of tensors", "write [a, b]");
  }
  return c.promoted(c.operands[0].list);
}

ValueId joined(Context& c, std::vector<ValueId> parts, int axis) {
  const auto without = [&](ValueId part) {
    Shape shape = c.b.shape(part);
    shape[static_cast<size_t>(axis)] = 0;
    return shape;
  };
  for (const ValueId part : parts) {
    if (c.rank(part) != c.rank(parts[0]) || without(part) != without(parts[0])) {
      operation_error(fmt::format("shapes {} and {} differ outside axis {}",
                                  shape_string(c.b.shape(parts[0])), shape_string(c.b.shape(part)),
                                  axis));
    }
  }
  return parts.size() == 1 ? parts[0] : c.b.concat(std::move(parts), axis);
}

ValueId concatenate(Context& c) {
  std::vector<ValueId> parts = listed(c);
  const int axis = c.axis_of(parts[0]);
  return joined(c, std::move(parts), axis);
}

// As numpy.vstack (0), hstack (1) and dstack (2): along this axis, of at least so many dimensions.
template <int axis>
ValueId stack_along(Context& c) {
  std::vector<ValueId> parts = listed(c);
  const size_t least = axis == 2 ? 3 : axis == 1 ? 1 : 2;
  for (ValueId& part : parts) {
    while (c.rank(part) < least) {
      part = c.b.expand_dims(part, c.rank(part) < 2 ? 0 : 2);
    }
  }
  return joined(c, std::move(parts), axis == 1 && c.rank(parts[0]) == 1 ? 0 : axis);
}

ValueId append(Context& c) {
  std::vector<ValueId> parts = c.promoted(c.operands);
  if (!c.is_null("axis")) {
    const int axis = c.axis_of(parts[0]);
    return joined(c, std::move(parts), axis);
  }
  for (ValueId& part : parts) {
    part = c.b.reshape(part, {num_elements(c.b.shape(part))});
  }
  return c.b.concat(std::move(parts), 0);
}

ValueId stack(Context& c) {
  std::vector<ValueId> parts = listed(c);
  const auto axis = static_cast<int>(c.axis("axis", c.rank(parts[0]) + 1));
  const Shape shape = c.b.shape(parts[0]);
  for (ValueId& part : parts) {
    if (c.b.shape(part) != shape) {
      operation_error(fmt::format("shapes {} and {} differ", shape_string(shape),
                                  shape_string(c.b.shape(part))));
    }
    part = c.b.expand_dims(part, axis);
  }
  return parts.size() == 1 ? parts[0] : c.b.concat(std::move(parts), axis);
}

int64_t count_above_0(int64_t count) {
  if (count < 1 || count > static_cast<int64_t>(kMaxCopies)) {
    operation_error(fmt::format("`repeats` {} is not in [1, {}]", count, kMaxCopies));
  }
  return count;
}

ValueId tile(Context& c) {
  ValueId x = c.tensor(0);
  Axes repeats = c.integers("repeats");
  if (repeats.size() > kMaxRank) {
    operation_error(fmt::format("more than {} dimensions", kMaxRank));
  }
  while (repeats.size() < c.rank(x)) {
    repeats.insert(repeats.begin(), 1);
  }
  while (c.rank(x) < repeats.size()) {
    x = c.b.expand_dims(x, 0);
  }
  for (size_t i = 0; i < repeats.size(); ++i) {
    const auto count = static_cast<size_t>(count_above_0(repeats[i]));
    x = count == 1 ? x : c.b.concat(std::vector<ValueId>(count, x), static_cast<int>(i));
  }
  return x;
}

ValueId repeat(Context& c) {
  if (c.is_null("axis")) {
    operation_error("`axis` must be given", "such as axis=1");
  }
  const ValueId x = c.tensor(0);
  const auto axis = static_cast<size_t>(c.axis_of(x));
  const int64_t count = count_above_0(c.integer("repeats"));
  Shape spread = c.b.shape(x), merged = spread;
  spread.insert(spread.begin() + static_cast<std::ptrdiff_t>(axis) + 1, count);
  merged[axis] *= count;
  const ValueId apart = c.b.expand_dims(x, static_cast<int>(axis) + 1);
  return c.b.reshape(c.b.broadcast_to(apart, spread), merged);
}

// Parts of a list that an operation gives: the context says which is meant.
int64_t part_of(const Context& c, int64_t count) {
  if (c.part < -count || c.part >= count) {
    operation_error(fmt::format("there is no part {} of {}", c.part, count));
  }
  return c.part + (c.part < 0 ? count : 0);
}

// A number of parts, or the places where parts begin. A size that does not divide gives the first
// parts one element more, where that `may_differ`.
ValueId part_along(Context& c, ValueId x, int axis, bool may_differ) {
  const int64_t size = size_along(c, x, axis);
  const bool is_count = std::holds_alternative<int64_t>(c.arguments.at("indices_or_sections").data);
  Axes bounds = is_count ? Axes{} : c.integers("indices_or_sections");
  const int64_t count =
      is_count ? c.integer("indices_or_sections") : static_cast<int64_t>(bounds.size()) + 1;
  if (is_count && (count < 1 || count > size || (size % count != 0 && !may_differ))) {
    operation_error(fmt::format("a size of {} does not split into {} equal parts", size, count),
                    "[2, 5] cuts before the elements 2 and 5");
  }
  for (int64_t i = 1; is_count && i < count; ++i) {
    bounds.push_back(i * (size / count) + std::min(i, size % count));
  }
  bounds.insert(bounds.begin(), 0);
  bounds.push_back(size);
  const auto i = static_cast<size_t>(part_of(c, count));
  const auto bound = [&](int64_t at) {
    return std::clamp(at < 0 ? at + size : at, int64_t{0}, size);
  };
  const int64_t begin = bound(bounds[i]), end = bound(bounds[i + 1]);
  if (begin >= end) {
    operation_error(fmt::format("part {} of the size {} is empty", i, size));
  }
  return begin == 0 && end == size ? x : c.b.slice(x, axis, begin, end);
}

template <bool may_differ>
ValueId split_part(Context& c) {
  const ValueId x = c.tensor(0);
  return part_along(c, x, c.axis_of(x), may_differ);
}

// As numpy.vsplit (0), hsplit (1) and dsplit (2).
template <int axis>
ValueId split_along(Context& c) {
  const ValueId x = c.tensor(0);
  const int own = axis == 1 && c.rank(x) == 1 ? 0 : axis;
  if (c.rank(x) <= static_cast<size_t>(own)) {
    operation_error(fmt::format("it takes {} dimensions or more", own + 1));
  }
  return part_along(c, x, own, false);
}

ValueId unstack_part(Context& c) {
  const ValueId x = c.tensor(0);
  const int axis = c.axis_of(x);
  const int64_t size = size_along(c, x, axis);
  if (!c.is_null("num") && c.integer("num") != size) {
    operation_error(fmt::format("`num` is {}, the size is {}", c.integer("num"), size));
  }
  const int64_t i = part_of(c, size);
  return c.b.squeeze(c.b.slice(x, axis, i, i + 1), axis);
}

// The elements move on by `shift`, the last ones to the front.
ValueId rolled(Builder& b, ValueId x, int axis, int64_t shift) {
  const int64_t size = b.shape(x)[static_cast<size_t>(axis)];
  const int64_t cut = ((-shift) % size + size) % size;
  return cut == 0 ? x : b.concat({b.slice(x, axis, cut, size), b.slice(x, axis, 0, cut)}, axis);
}

ValueId roll(Context& c) {
  ValueId x = c.tensor(0);
  const Axes shifts = c.integers("shift");
  if (c.is_null("axis")) {
    if (shifts.size() != 1) {
      operation_error("several shifts need an `axis` each");
    }
    const Shape shape = c.b.shape(x);
    return c.b.reshape(rolled(c.b, c.b.reshape(x, {num_elements(shape)}), 0, shifts[0]), shape);
  }
  const Axes axes = c.integers("axis");
  if (shifts.size() != axes.size() && shifts.size() != 1) {
    operation_error(fmt::format("{} shifts for {} axes", shifts.size(), axes.size()));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const OperationArguments own = {{"axis", ExprValue{axes[i]}}};
    const OperationContext one{c.b, c.floatx, {}, own};
    x = rolled(c.b, x, static_cast<int>(one.axis("axis", c.rank(x))),
               shifts[shifts.size() == 1 ? 0 : i]);
  }
  return x;
}

// Differences of neighbours, `n` times.
ValueId diff(Context& c) {
  ValueId x = c.tensor(0);
  x = c.b.dtype(x) == DType::kBool ? c.b.cast(x, DType::kInt32) : x;
  const int axis = c.axis_of(x);
  for (int64_t i = c.integer("n"); i > 0; --i) {
    const int64_t size = size_along(c, x, axis);
    if (size < 2) {
      operation_error("there are fewer than two elements to take the difference of");
    }
    x = c.b.sub(c.b.slice(x, axis, 1, size), c.b.slice(x, axis, 0, size - 1));
  }
  return x;
}

// `count` elements that continue x beyond its first one (or, of x reversed, its last).
ValueId continued(Builder& b, ValueId x, int axis, int64_t count, const std::string& mode) {
  const int64_t size = b.shape(x)[static_cast<size_t>(axis)], first = mode == "reflect" ? 1 : 0;
  if (mode == "edge") {
    Shape shape = b.shape(x);
    shape[static_cast<size_t>(axis)] = count;
    return b.broadcast_to(b.slice(x, axis, 0, 1), shape);
  }
  if (first + count > size) {
    operation_error(
        fmt::format("{} elements of a size of {} cannot be mirrored here", count, size));
  }
  return b.reverse(b.slice(x, axis, first, first + count), axis);
}

ValueId padded(Context& c, ValueId x, int axis, int64_t before, int64_t after) {
  Builder& b = c.b;
  const std::string mode = c.text("mode");
  if (mode == "constant") {
    const double value = c.is_null("constant_values") ? 0 : c.number("constant_values");
    return before + after == 0 ? x : b.pad(x, axis, before, after, value);
  }
  std::vector<ValueId> parts = {x};
  if (before > 0) {
    parts.insert(parts.begin(), continued(b, x, axis, before, mode));
  }
  if (after > 0) {
    parts.push_back(b.reverse(continued(b, b.reverse(x, axis), axis, after, mode), axis));
  }
  return parts.size() == 1 ? x : b.concat(std::move(parts), axis);
}

// One pair (before, after) for all dimensions, or one each.
ValueId pad(Context& c) {
  ValueId x = c.tensor(0);
  const std::string mode = c.text("mode");
  if (mode != "constant" && mode != "reflect" && mode != "symmetric" && mode != "edge") {
    operation_error("`mode` must be \"constant\", \"edge\", \"reflect\" or \"symmetric\"");
  }
  if (mode != "constant" && !c.is_null("constant_values")) {
    operation_error("`constant_values` is for the mode \"constant\"");
  }
  const ExprValue& given = c.arguments.at("pad_width");
  const auto* pairs = std::get_if<std::vector<ExprValue>>(&given.data);
  const size_t rank = c.rank(x);
  for (size_t i = 0; i < rank; ++i) {
    const bool one_each = pairs != nullptr && pairs->size() == rank && !pairs->empty() &&
                          std::holds_alternative<std::vector<ExprValue>>((*pairs)[0].data);
    const OperationArguments own = {{"pad_width", one_each ? (*pairs)[i] : given}};
    Axes pair = OperationContext{c.b, c.floatx, {}, own}.integers("pad_width");
    pair.resize(pair.size() == 1 ? 2 : pair.size(), pair[0]);
    const auto is_outside = [](int64_t n) { return n < 0 || n > kMaxPadding; };
    if (pair.size() != 2 || is_outside(pair[0]) || is_outside(pair[1])) {
      operation_error(fmt::format(
          "`pad_width` must be [before, after], of 2^31 at most, for each of {} dimensions", rank));
    }
    x = padded(c, x, static_cast<int>(i), pair[0], pair[1]);
  }
  return x;
}

}  // namespace

std::vector<Operation> joining_operations() {
  return {
      {"concatenate", "Concatenate", "numpy", "xs", "axis=0", concatenate},
      {"stack", "Stack", "numpy", "xs", "axis=0", stack},
      {"vstack", "Vstack", "numpy", "xs", "", stack_along<0>},
      {"hstack", "Hstack", "numpy", "xs", "", stack_along<1>},
      {"dstack", "Dstack", "numpy", "xs", "", stack_along<2>},
      {"append", "Append", "numpy", "x1, x2", "axis=None", append},
      {"split", "Split", "numpy", "x", "indices_or_sections, axis=0", split_part<false>, true},
      {"array_split", "ArraySplit", "numpy", "x", "indices_or_sections, axis=0", split_part<true>,
       true},
      {"vsplit", "Vsplit", "numpy", "x", "indices_or_sections", split_along<0>, true},
      {"hsplit", "Hsplit", "numpy", "x", "indices_or_sections", split_along<1>, true},
      {"dsplit", "Dsplit", "numpy", "x", "indices_or_sections", split_along<2>, true},
      {"unstack", "Unstack", "core", "x", "num=None, axis=0", unstack_part, true},
      {"tile", "Tile", "numpy", "x", "repeats", tile},
      {"repeat", "Repeat", "numpy", "x", "repeats, axis=None", repeat},
      {"roll", "Roll", "numpy", "x", "shift, axis=None", roll},
      {"diff", "Diff", "numpy", "a", "n=1, axis=-1", diff},
      {"pad", "Pad", "numpy", "x", "pad_width, mode='constant', constant_values=None", pad},
  };
}

}  // namespace meshtrain
