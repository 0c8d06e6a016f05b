// Operations that move elements. Source: Keras 3.15 ops/numpy.py, ops/core.py.
#include <algorithm>
#include <numeric>

#include "nn/graph_parts.h"
#include "nn/layers.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;
using Axes = std::vector<int64_t>;

constexpr size_t kMaxIndices = 1024;  // of take

ValueId reshape(Context& c) {
  const ValueId x = c.tensor(0);
  Shape shape = c.integers("newshape");
  for (const int64_t size : shape) {
    if (size == 0 || size < -1) {
      operation_error(fmt::format("a size of {} in `newshape`", size), "sizes are above 0, one -1");
    }
  }
  const int64_t all = num_elements(c.b.shape(x));
  const auto free = std::count(shape.begin(), shape.end(), -1);
  Shape rest = shape;
  std::replace(rest.begin(), rest.end(), int64_t{-1}, int64_t{1});
  const int64_t known = is_too_large(rest) ? 0 : num_elements(rest);
  if (free > 1 || known == 0 || (free == 1 ? all % known != 0 : all != known)) {
    operation_error(fmt::format("{} cannot take the shape [{}]", shape_string(c.b.shape(x)),
                                fmt::join(shape, ", ")),
                    "write -1 for the batch, and sizes with the product of the others");
  }
  std::replace(shape.begin(), shape.end(), int64_t{-1}, all / known);
  return c.b.reshape(x, shape);
}

ValueId ravel(Context& c) {
  const ValueId x = c.tensor(0);
  return c.b.reshape(x, {num_elements(c.b.shape(x))});
}

ValueId transpose(Context& c) {
  const ValueId x = c.tensor(0);
  Axes order = c.axes("axes", c.rank(x));  // checks them
  if (order.size() != c.rank(x)) {
    operation_error(fmt::format("`axes` must name all {} dimensions", c.rank(x)));
  }
  if (c.is_null("axes")) {
    std::reverse(order.begin(), order.end());
  } else {
    order = c.integers("axes");
    for (int64_t& axis : order) {
      axis = *axis_in(axis, c.rank(x));
    }
  }
  return c.b.transpose(x, order);
}

ValueId swapaxes(Context& c) {
  const ValueId x = c.tensor(0);
  Axes order(c.rank(x));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::swap(order[static_cast<size_t>(c.axis_of(x, "axis1"))],
            order[static_cast<size_t>(c.axis_of(x, "axis2"))]);
  return c.b.transpose(x, order);
}

ValueId moveaxis(Context& c) {
  const ValueId x = c.tensor(0);
  return move_axis(c.b, x, static_cast<size_t>(c.axis_of(x, "source")),
                   static_cast<size_t>(c.axis_of(x, "destination")));
}

ValueId expand_dims(Context& c) {
  ValueId x = c.tensor(0);
  Axes places = c.axes("axis", c.rank(x) + c.integers("axis").size());
  for (const int64_t place : places) {
    x = c.b.expand_dims(x, static_cast<int>(place));
  }
  return x;
}

ValueId squeeze(Context& c) {
  ValueId x = c.tensor(0);
  Axes axes = c.axes("axis", c.rank(x));
  std::reverse(axes.begin(), axes.end());
  for (const int64_t axis : axes) {
    const int64_t size = c.b.shape(x)[static_cast<size_t>(axis)];
    if (size == 1) {
      x = c.b.squeeze(x, static_cast<int>(axis));
    } else if (!c.is_null("axis")) {
      operation_error(fmt::format("the size of axis {} is {}, not 1", axis, size));
    }
  }
  return x;
}

ValueId flip(Context& c) {
  ValueId x = c.tensor(0);
  for (const int64_t axis : c.axes("axis", c.rank(x))) {
    x = c.b.reverse(x, static_cast<int>(axis));
  }
  return x;
}

template <int axis>
ValueId flip_one(Context& c) {
  const ValueId x = c.tensor(0);
  if (c.rank(x) <= static_cast<size_t>(axis)) {
    operation_error(fmt::format("it takes {} dimensions or more", axis + 1));
  }
  return c.b.reverse(x, axis);
}

// A quarter turn from the first to the second of the axes, `k` times.
ValueId rot90(Context& c) {
  ValueId x = c.tensor(0);
  const Axes given = c.integers("axes");
  c.axes("axes", c.rank(x));  // checks them
  if (given.size() != 2) {
    operation_error("`axes` must be two dimensions");
  }
  const int from = static_cast<int>(*axis_in(given[0], c.rank(x)));
  const int to = static_cast<int>(*axis_in(given[1], c.rank(x)));
  Axes order(c.rank(x));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::swap(order[static_cast<size_t>(from)], order[static_cast<size_t>(to)]);
  const int64_t turns = (c.integer("k") % 4 + 4) % 4;
  if (turns == 2) {
    return c.b.reverse(c.b.reverse(x, from), to);
  }
  return turns == 0   ? x
         : turns == 1 ? c.b.transpose(c.b.reverse(x, to), order)
                      : c.b.reverse(c.b.transpose(x, order), to);
}

// Of two axes what has the second index `offset` above the first, as the last axis.
ValueId diagonal(Context& c) {
  Builder& b = c.b;
  ValueId x = c.tensor(0);
  const size_t rank = c.rank(x);
  if (rank < 2 || c.axis_of(x, "axis1") == c.axis_of(x, "axis2")) {
    operation_error("`axis1` and `axis2` must be two dimensions");
  }
  Axes order;
  for (size_t d = 0; d < rank; ++d) {
    const int axis = static_cast<int>(d);
    if (axis != c.axis_of(x, "axis1") && axis != c.axis_of(x, "axis2")) {
      order.push_back(axis);
    }
  }
  order.push_back(c.axis_of(x, "axis1"));
  order.push_back(c.axis_of(x, "axis2"));
  x = b.transpose(x, order);
  Shape flat = b.shape(x);
  const int64_t rows = flat[rank - 2], columns = flat[rank - 1], offset = c.integer("offset");
  const int64_t down = std::max<int64_t>(-offset, 0), right = std::max<int64_t>(offset, 0);
  const int64_t count = std::min(rows - down, columns - right);
  if (count < 1) {
    operation_error(fmt::format("the diagonal {} of {} x {} is empty", offset, rows, columns));
  }
  flat.pop_back();
  flat.back() = rows * columns;
  const int64_t begin = down * columns + right, end = begin + (count - 1) * (columns + 1) + 1;
  return b.slice(b.reshape(x, flat), static_cast<int>(rank) - 2, begin, end, columns + 1);
}

ValueId trace(Context& c) {
  ValueId x = diagonal(c);
  x = c.b.dtype(x) == DType::kBool ? c.b.cast(x, DType::kInt32) : x;
  return c.b.reduce_sum(x, {last_axis(c.b, x)});
}

ValueId broadcast_to(Context& c) {
  const ValueId x = c.tensor(0);
  return broadcast_operand(c.b, x, c.integers("shape"));
}

struct Pixels {
  int64_t batch, rows, columns, channels, block;
  bool first;  // the channels come first
};

Pixels pixels_of(Context& c, ValueId x) {
  const int64_t block = c.integer("block_size");
  const Shape& shape = c.b.shape(x);
  if (shape.size() != 4 || block < 1) {
    operation_error("it takes images of 4 dimensions, and a `block_size` of at least 1");
  }
  const bool first = c.channels_first();
  return first ? Pixels{shape[0], shape[2], shape[3], shape[1], block, true}
               : Pixels{shape[0], shape[1], shape[2], shape[3], block, false};
}

// Each pixel becomes a block of pixels with fewer channels.
ValueId depth_to_space(Context& c) {
  const ValueId x = c.tensor(0);
  const auto [n, h, w, channels, block, first] = pixels_of(c, x);
  if (block > channels || channels % (block * block) != 0) {
    operation_error(fmt::format("{} channels do not divide by the square of {}", channels, block));
  }
  const int64_t left = channels / (block * block);
  const ValueId apart = c.b.reshape(
      x, first ? Shape{n, left, block, block, h, w} : Shape{n, h, w, block, block, left});
  const ValueId moved =
      c.b.transpose(apart, first ? Axes{0, 1, 4, 2, 5, 3} : Axes{0, 1, 3, 2, 4, 5});
  return c.b.reshape(
      moved, first ? Shape{n, left, h * block, w * block} : Shape{n, h * block, w * block, left});
}

ValueId space_to_depth(Context& c) {
  const ValueId x = c.tensor(0);
  const auto [n, h, w, channels, block, first] = pixels_of(c, x);
  if (block > h || h % block != 0 || w % block != 0) {
    operation_error(fmt::format("{} x {} pixels do not divide by {}", h, w, block));
  }
  const int64_t rows = h / block, columns = w / block, more = channels * block * block;
  const ValueId apart = c.b.reshape(x, first ? Shape{n, channels, rows, block, columns, block}
                                             : Shape{n, rows, block, columns, block, channels});
  const ValueId moved =
      c.b.transpose(apart, first ? Axes{0, 1, 3, 5, 2, 4} : Axes{0, 1, 3, 2, 4, 5});
  return c.b.reshape(moved, first ? Shape{n, more, rows, columns} : Shape{n, rows, columns, more});
}

// Of the last two dimensions what is on one side of the diagonal `k`; 0 elsewhere.
template <bool lower>
ValueId triangle(Context& c) {
  Builder& b = c.b;
  const ValueId x = c.tensor(0);
  const size_t rank = c.rank(x);
  if (rank < 2) {
    operation_error("it takes at least two dimensions");
  }
  const Shape matrix{b.shape(x)[rank - 2], b.shape(x)[rank - 1]};
  const ValueId rows = b.iota(matrix, 0, DType::kInt32), columns = b.iota(matrix, 1, DType::kInt32);
  const ValueId end = b.add(rows, static_cast<double>(c.integer("k")));
  return b.select(b.binary(lower ? "le" : "ge", columns, end), x, constant_like(b, x, 0));
}

// --- indices ---------------------------------------------------------------------------------

ValueId element(Builder& b, ValueId x, int axis, int64_t index) {
  const int64_t size = b.shape(x)[static_cast<size_t>(axis)];
  if (index < -size || index >= size) {
    operation_error(
        fmt::format("index {} is outside of axis {}, whose size is {}", index, axis, size));
  }
  index += index < 0 ? size : 0;
  return b.slice(x, axis, index, index + 1);
}

// x[start:stop:step] along an axis, by Python's rules.
ValueId slice_of(Builder& b, ValueId x, int axis, const std::vector<ExprValue>& parts) {
  const int64_t size = b.shape(x)[static_cast<size_t>(axis)];
  const auto part = [&](size_t i, int64_t otherwise) {
    const auto* given = std::get_if<int64_t>(&parts[i].data);
    return given == nullptr ? otherwise : *given;
  };
  const int64_t step = std::clamp(part(2, 1), -size, size);  // larger ones take one element as well
  if (step == 0) {
    operation_error("the step of a slice is 0");
  }
  const int64_t first = step > 0 ? 0 : -1, last = step > 0 ? size : size - 1;
  const auto bound = [&](int64_t at) { return std::clamp(at < 0 ? at + size : at, first, last); };
  const bool has_start = std::holds_alternative<int64_t>(parts[0].data);
  const bool has_stop = std::holds_alternative<int64_t>(parts[1].data);
  const int64_t start = has_start ? bound(part(0, 0)) : step > 0 ? 0 : size - 1;
  const int64_t stop = has_stop ? bound(part(1, 0)) : step > 0 ? size : -1;
  if (step > 0 ? start >= stop : start <= stop) {
    operation_error(fmt::format("the slice of axis {} is empty; its size is {}", axis, size));
  }
  if (step > 0) {
    return start == 0 && stop == size && step == 1 ? x : b.slice(x, axis, start, stop, step);
  }
  // Backwards: forwards from the last element of the slice, then reversed.
  const int64_t count = (start - stop - step - 1) / -step;
  const int64_t lowest = start + (count - 1) * step;
  return b.reverse(b.slice(x, axis, lowest, start + 1, -step), axis);
}

bool is_ellipsis(const ExprValue& entry) {
  const auto* text = std::get_if<std::string>(&entry.data);
  return text != nullptr && *text == "...";
}

// `key`: a list of integers, null for a new dimension, "..." and slices as [start, stop, step].
ValueId get_item(Context& c) {
  Builder& b = c.b;
  ValueId x = c.tensor(0);
  const auto& key = std::get<std::vector<ExprValue>>(c.arguments.at("key").data);
  size_t used = 0, ellipses = 0;
  for (const ExprValue& entry : key) {
    ellipses += is_ellipsis(entry) ? 1 : 0;
    used += is_ellipsis(entry) || std::holds_alternative<std::monostate>(entry.data) ? 0 : 1;
  }
  if (used > c.rank(x) || ellipses > 1) {
    operation_error(ellipses > 1
                        ? "an index has one `...` at most"
                        : fmt::format("{} indices for {}", used, shape_string(b.shape(x))));
  }
  const size_t skipped = c.rank(x) - used;
  Axes removed;
  int axis = 0;
  for (const ExprValue& entry : key) {
    if (is_ellipsis(entry)) {
      axis += static_cast<int>(skipped);
    } else if (std::holds_alternative<std::monostate>(entry.data)) {
      x = b.expand_dims(x, axis++);
    } else if (const auto* index = std::get_if<int64_t>(&entry.data)) {
      x = element(b, x, axis, *index);
      removed.push_back(axis++);
    } else if (const auto* parts = std::get_if<std::vector<ExprValue>>(&entry.data)) {
      x = slice_of(b, x, axis++, *parts);
    } else {
      operation_error("an index must be an integer, a slice, null or `...`");
    }
  }
  for (size_t i = removed.size(); i-- > 0;) {
    x = b.squeeze(x, static_cast<int>(removed[i]));
  }
  return x;
}

ValueId take(Context& c) {
  if (c.is_null("axis")) {
    operation_error("`axis` must be given", "such as axis=1");
  }
  const ValueId x = c.tensor(0);
  const int axis = c.axis_of(x);
  const Axes indices = c.integers("indices");
  if (indices.empty() || indices.size() > kMaxIndices) {
    operation_error(fmt::format("{} indices, not 1 to {}", indices.size(), kMaxIndices));
  }
  std::vector<ValueId> parts;
  for (const int64_t index : indices) {
    parts.push_back(element(c.b, x, axis, index));
  }
  if (std::holds_alternative<int64_t>(c.arguments.at("indices").data)) {
    return c.b.squeeze(parts[0], axis);
  }
  return parts.size() == 1 ? parts[0] : c.b.concat(std::move(parts), axis);
}

}  // namespace

std::vector<Operation> shape_operations() {
  return {
      {"get_item", "GetItem", "numpy", "x", "key", get_item},
      {"reshape", "Reshape", "numpy", "x", "newshape", reshape},
      {"ravel", "Ravel", "numpy", "x", "", ravel},
      {"transpose", "Transpose", "numpy", "x", "axes=None", transpose},
      {"swapaxes", "Swapaxes", "numpy", "x", "axis1, axis2", swapaxes},
      {"moveaxis", "Moveaxis", "numpy", "x", "source, destination", moveaxis},
      {"expand_dims", "ExpandDims", "numpy", "x", "axis", expand_dims},
      {"squeeze", "Squeeze", "numpy", "x", "axis=None", squeeze},
      {"flip", "Flip", "numpy", "x", "axis=None", flip},
      {"depth_to_space", "DepthToSpace", "nn", "x", "block_size, data_format='channels_last'",
       depth_to_space},
      {"space_to_depth", "SpaceToDepth", "nn", "x", "block_size, data_format='channels_last'",
       space_to_depth},
      {"tril", "Tril", "numpy", "x", "k=0", triangle<true>},
      {"triu", "Triu", "numpy", "x", "k=0", triangle<false>},
      {"fliplr", "Fliplr", "numpy", "x", "", flip_one<1>},
      {"flipud", "Flipud", "numpy", "x", "", flip_one<0>},
      {"rot90", "Rot90", "numpy", "array", "k=1, axes=(0, 1)", rot90},
      {"diagonal", "Diagonal", "numpy", "x", "offset=0, axis1=0, axis2=1", diagonal},
      {"trace", "Trace", "numpy", "x", "offset=0, axis1=0, axis2=1", trace},
      {"broadcast_to", "BroadcastTo", "numpy", "x", "shape", broadcast_to},
      {"take", "Take", "numpy", "x", "indices, axis=None", take},
  };
}

}  // namespace meshtrain
