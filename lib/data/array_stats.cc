#include "data/array_stats.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "data/with_type.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxClasses = 1000;

// Calls `function` with every number of a tensor, in order, in its own type.
template <class F>
void for_each_number(const HostTensor& tensor, F&& function) {
  const bool is_stored = with_type(tensor.dtype(), [&](auto type) {
    for (const auto value : tensor.span<decltype(type)>()) {
      function(value);
    }
  });
  for (int64_t i = 0; !is_stored && i < tensor.size(); ++i) {
    function(tensor.at(i));
  }
}

// Minimum, maximum and mean as numbers come.
class Range {
 public:
  void add(const HostTensor& block) {
    for_each_number(block, [&](auto value) {
      if constexpr (std::is_floating_point_v<decltype(value)>) {
        if (!std::isfinite(value)) {
          ++(std::isnan(value) ? stats_.nans : stats_.infinities);
          return;
        }
      }
      const auto number = static_cast<double>(value);
      min_ = std::min(min_, number);
      max_ = std::max(max_, number);
      sum_ += number;
      ++count_;
    });
  }

  ArrayStats stats() const {
    ArrayStats out = stats_;
    if (count_ > 0) {
      out.min = min_;
      out.max = max_;
      out.mean = sum_ / static_cast<double>(count_);
    }
    return out;
  }

 private:
  ArrayStats stats_;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  double sum_ = 0;
  int64_t count_ = 0;
};

// The class of each sample while that is what the numbers look like.
class ClassCounts {
 public:
  ClassCounts(const Rows& rows) : width_(1), is_float_(is_floating(rows.dtype())) {
    for (size_t d = 1; d < rows.shape().size(); ++d) {
      width_ *= rows.shape()[d];
    }
    are_classes_ = width_ == 1 || (is_float_ && rows.shape().size() == 2 && width_ > 1);
  }

  void add(const HostTensor& block) {
    if (!are_classes_) {
      return;
    }
    int64_t column = 0, hot = -1;
    for_each_number(block, [&](auto value) {
      const bool is_bit = value == decltype(value)(0) || value == decltype(value)(1);
      are_classes_ = are_classes_ && (is_bit || !is_float_);
      if (!are_classes_) {
        return;
      }
      if (width_ == 1) {
        count(static_cast<int64_t>(value));
        return;
      }
      if (value == decltype(value)(1)) {
        are_classes_ = hot < 0;
        hot = column;
      }
      if (++column == width_) {
        are_classes_ = are_classes_ && hot >= 0;
        count(hot);
        column = 0;
        hot = -1;
      }
    });
  }

  std::optional<std::map<int64_t, int64_t>> counts() const {
    return are_classes_ ? std::optional(counts_) : std::nullopt;
  }

 private:
  void count(int64_t label) {
    ++counts_[label];
    are_classes_ = are_classes_ && counts_.size() <= kMaxClasses;
  }

  int64_t width_;
  bool is_float_;
  bool are_classes_ = true;
  std::map<int64_t, int64_t> counts_;
};

}  // namespace

ArrayStats measure(const Rows& rows, bool are_labels) {
  Range range;
  ClassCounts classes(rows);
  rows.for_each_block([&](int64_t, const HostTensor& block) {
    range.add(block);
    if (are_labels) {
      classes.add(block);
    }
  });
  ArrayStats stats = range.stats();
  if (are_labels) {
    stats.classes = classes.counts();
  }
  return stats;
}

}  // namespace meshtrain
