#include "data/series_windows.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"

namespace meshtrain {
namespace {

// The first rows of the windows.
class WindowStarts {
 public:
  WindowStarts(int64_t count, int64_t stride) : count_(count), stride_(stride) {}
  // `order`: the rows of the file, which are put into this order; empty where they are in it.
  WindowStarts(std::vector<int64_t> starts, std::vector<int64_t> order)
      : count_(std::ssize(starts)),
        starts_(std::make_shared<std::vector<int64_t>>(std::move(starts))),
        order_(std::make_shared<std::vector<int64_t>>(std::move(order))) {}

  RowsPtr ordered(RowsPtr rows) const {
    return order_ && !order_->empty() ? select_rows(std::move(rows), *order_) : rows;
  }
  int64_t count() const { return count_; }
  int64_t operator[](int64_t window) const {
    return starts_ ? (*starts_)[static_cast<size_t>(window)] : window * stride_;
  }

 private:
  int64_t count_, stride_ = 0;
  std::shared_ptr<const std::vector<int64_t>> starts_;  // null where they are `stride_` apart
  std::shared_ptr<const std::vector<int64_t>> order_;
};

// A sample has the rows first + k step for k in [0, steps), counted from the start of its window.
struct WindowPlaces {
  int64_t first, steps, step;
};

class SeriesRows final : public Rows {
 public:
  // `is_row`: a sample is the single row itself, without a dimension of steps.
  SeriesRows(RowsPtr rows, WindowStarts starts, const WindowPlaces& places, bool is_row)
      : rows_(std::move(rows)),
        starts_(std::move(starts)),
        places_(places),
        shape_(rows_->shape()) {
    shape_[0] = starts_.count();
    if (!is_row) {
      shape_.insert(shape_.begin() + 1, places.steps);
    }
  }

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return rows_->cost(); }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    std::vector<int64_t> wanted;
    wanted.reserve(order.size() * static_cast<size_t>(places_.steps));
    for (const int64_t sample : order) {
      check_row(sample);
      for (int64_t k = 0; k < places_.steps; ++k) {
        const int64_t row = starts_[sample] + places_.first + k * places_.step;
        wanted.push_back(std::min(row, rows_->size() - 1));
      }
    }
    rows_->read(wanted, to);
  }

  // Rows without dimensions are left out: what is a channel of a window would be none of a row.
  std::optional<RowCounts> row_counts(int64_t begin, int64_t end) const override {
    const int64_t size = rows_->size(), span = places_.steps * places_.step;
    if (rows_->shape().size() < 2 || shape_.size() == rows_->shape().size()) {
      return std::nullopt;
    }
    // First the windows that begin at each row less those that ended before: one every `step` rows.
    std::vector<int64_t> counts(static_cast<size_t>(size), 0);
    for (int64_t sample = begin; sample < end; ++sample) {
      const int64_t first = starts_[sample] + places_.first;
      if (first + span - places_.step >= size) {
        return std::nullopt;  // the last row counts again
      }
      ++counts[static_cast<size_t>(first)];
      if (first + span < size) {
        --counts[static_cast<size_t>(first + span)];
      }
    }
    for (int64_t row = places_.step; row < size; ++row) {
      counts[static_cast<size_t>(row)] += counts[static_cast<size_t>(row - places_.step)];
    }
    return RowCounts{rows_, std::move(counts)};
  }

 private:
  RowsPtr rows_;
  WindowStarts starts_;
  WindowPlaces places_;
  Shape shape_;
};

[[noreturn]] void refuse_short_series(const Dataset& dataset, const std::string& what,
                                      int64_t needed) {
  throw ConfigError(
      "E316", dataset.loc,
      fmt::format("{}: {} too few for one window, which takes {}{}", dataset.description, what,
                  format_thousands(needed), dataset.targets.empty() ? "" : " with its target"));
}

// Puts the rows of each group one after the other, and starts windows within each. Windows of all
// groups are in the order of their first rows in the file.
WindowStarts start_in_groups(Dataset& dataset, int64_t needed, int64_t stride) {
  const std::vector<int>& groups = dataset.groups->ids;
  std::vector<int64_t> order(groups.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto group_of = [&](int64_t row) { return groups[static_cast<size_t>(row)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return group_of(a) < group_of(b); });
  const auto row_at = [&](int64_t position) { return order[static_cast<size_t>(position)]; };
  std::vector<int64_t> starts;
  int64_t num_groups = 0, num_short = 0, longest = 0;
  for (int64_t begin = 0, end = 0; begin < std::ssize(order); begin = end) {
    while (end < std::ssize(order) && group_of(row_at(end)) == group_of(row_at(begin))) {
      ++end;
    }
    for (int64_t start = begin; start + needed <= end; start += stride) {
      starts.push_back(start);
    }
    ++num_groups;
    num_short += end - begin < needed ? 1 : 0;
    longest = std::max(longest, end - begin);
  }
  dataset.description += fmt::format(", {} series", format_thousands(num_groups));
  if (num_short > 0 && !starts.empty()) {
    dataset.description += fmt::format(" ({} too short for a window)", format_thousands(num_short));
  }
  if (starts.empty()) {
    refuse_short_series(dataset, fmt::format("the longest has {} rows,", format_thousands(longest)),
                        needed);
  }
  std::sort(starts.begin(), starts.end(),
            [&](int64_t a, int64_t b) { return row_at(a) < row_at(b); });
  SampleGroups of_windows = {dataset.groups->column, dataset.groups->names, {}};
  for (const int64_t start : starts) {
    of_windows.ids.push_back(group_of(row_at(start)));
  }
  dataset.groups = std::make_shared<SampleGroups>(std::move(of_windows));
  if (std::is_sorted(order.begin(), order.end())) {
    order.clear();
  }
  return {std::move(starts), std::move(order)};
}

WindowStarts start_windows(Dataset& dataset, int64_t needed, int64_t stride, bool is_beginning) {
  if (is_beginning && dataset.num_samples < needed) {
    return {1, stride};
  }
  if (dataset.groups && !is_beginning) {
    return start_in_groups(dataset, needed, stride);
  }
  if (dataset.num_samples < needed) {
    refuse_short_series(dataset, fmt::format("{} rows are", format_thousands(dataset.num_samples)),
                        needed);
  }
  return {(dataset.num_samples - needed) / stride + 1, stride};
}

}  // namespace

void add_series_windows(const SeriesOptions& series, bool is_beginning, Dataset& dataset) {
  const int64_t stride = series.sequence_stride.value.value_or(1);
  const int64_t step = series.sampling_rate.value.value_or(1);
  const int64_t horizon = series.horizon.value.value_or(1);
  const int64_t length = *series.sequence_length;
  const bool is_each = series.target.value.has_value();  // step has a target
  const bool is_row = !is_each && !series.target_length.value;
  const WindowPlaces target = {is_each ? horizon : series.span() - 1 + horizon,
                               is_each ? length : series.target_length.value.value_or(1), step};
  const int64_t needed =
      dataset.targets.empty()
          ? series.span()
          : std::max(series.span(), target.first + (target.steps - 1) * step + 1);
  const WindowStarts starts = start_windows(dataset, needed, stride, is_beginning);
  const auto windows = [&](RowsPtr& rows, const WindowPlaces& places, bool is_single) {
    rows = std::make_shared<SeriesRows>(starts.ordered(std::move(rows)), starts, places, is_single);
  };
  for (Dataset::Array& input : dataset.inputs) {
    windows(input.rows, {0, length, step}, false);
  }
  for (Dataset::Array& array : dataset.targets) {
    windows(array.rows, target, is_row);
  }
  if (dataset.sample_weight && is_each && !dataset.targets.empty()) {
    windows(dataset.sample_weight, target, false);
  } else if (dataset.sample_weight) {
    const int64_t row = dataset.targets.empty() ? series.span() - 1 : target.first;
    windows(dataset.sample_weight, {row, 1, step}, true);
  }
  if (is_beginning) {
    dataset.groups = nullptr;  // of rows
  }
  dataset.num_samples = starts.count();
}

bool are_windows_of_windows(const Shape& have, const Shape& wanted) {
  return have.size() == wanted.size() + 1 && wanted.size() > 1 && have[0] == wanted[0] &&
         std::equal(wanted.begin(), wanted.end(), have.begin() + 1);
}

}  // namespace meshtrain
