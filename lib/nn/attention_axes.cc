#include "nn/attention_axes.h"

#include <algorithm>
#include <numeric>

#include "nn/graph_parts.h"

namespace meshtrain {

std::string AttentionAxes::set(std::vector<int64_t> given, size_t rank) {
  rank_ = rank;
  axes_ = std::move(given);
  if (axes_.empty()) {
    axes_.resize(rank - 2);
    std::iota(axes_.begin(), axes_.end(), 1);
  }
  for (int64_t& axis : axes_) {
    const auto counted = axis_in(axis, rank);
    if (!counted || *counted == 0 || *counted == static_cast<int64_t>(rank) - 1) {
      return fmt::format("names {}, which is no dimension between batch and features", axis);
    }
    axis = *counted;
  }
  std::vector<int64_t> sorted = axes_;
  std::sort(sorted.begin(), sorted.end());
  const bool is_twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  return is_twice ? "names a dimension twice" : "";
}

bool AttentionAxes::has(int64_t axis) const {
  return std::find(axes_.begin(), axes_.end(), axis) != axes_.end();
}

std::vector<int64_t> AttentionAxes::order() const {
  std::vector<int64_t> order;
  for (int64_t d = 0; d + 1 < static_cast<int64_t>(rank_); ++d) {
    if (!has(d)) {
      order.push_back(d);
    }
  }
  order.insert(order.end(), axes_.begin(), axes_.end());
  order.push_back(static_cast<int64_t>(rank_) - 1);  // heads
  order.push_back(static_cast<int64_t>(rank_));      // their features
  return order;
}

ValueId AttentionAxes::in_rows(Builder& b, ValueId x) const {
  if (rank_ == 3) {
    return x;
  }
  const ValueId ordered = b.transpose(x, order());
  const Shape shape = b.shape(ordered);
  const auto batch_end = shape.begin() + static_cast<ptrdiff_t>(rank_ - 1 - axes_.size());
  const auto steps_end = shape.end() - 2;
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
  };
  return b.reshape(ordered, {product(shape.begin(), batch_end), product(batch_end, steps_end),
                             shape[rank_ - 1], shape[rank_]});
}

ValueId AttentionAxes::from_rows(Builder& b, ValueId x, const Shape& shape) const {
  if (rank_ == 3) {
    return x;
  }
  const std::vector<int64_t> ordering = order();
  Shape ordered;
  std::vector<int64_t> back(ordering.size());
  for (size_t i = 0; i < ordering.size(); ++i) {
    ordered.push_back(shape[static_cast<size_t>(ordering[i])]);
    back[static_cast<size_t>(ordering[i])] = static_cast<int64_t>(i);
  }
  return b.transpose(b.reshape(x, ordered), back);
}

Shape AttentionAxes::scores_shape(const Shape& query, const Shape& key, int64_t heads) const {
  Shape out;
  for (int64_t d = 0; d + 1 < static_cast<int64_t>(rank_); ++d) {
    if (!has(d)) {
      out.push_back(query[static_cast<size_t>(d)]);
    }
  }
  out.push_back(heads);
  for (const Shape* shape : {&query, &key}) {
    for (const int64_t d : axes_) {
      out.push_back((*shape)[static_cast<size_t>(d)]);
    }
  }
  return out;
}

}  // namespace meshtrain
