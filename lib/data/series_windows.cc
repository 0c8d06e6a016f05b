#include "data/series_windows.h"

#include <algorithm>

#include "base/text.h"

namespace meshtrain {
namespace {

// Sample i has the rows first + i stride + k step for k in [0, steps).
struct WindowPlaces {
  int64_t count, first, stride, steps, step;
};

class SeriesRows final : public Rows {
 public:
  // `is_row`: a sample is the single row itself, without a dimension of steps.
  SeriesRows(RowsPtr rows, const WindowPlaces& places, bool is_row)
      : rows_(std::move(rows)), places_(places), shape_(rows_->shape()) {
    shape_[0] = places.count;
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
        const int64_t row = places_.first + sample * places_.stride + k * places_.step;
        wanted.push_back(std::min(row, rows_->size() - 1));
      }
    }
    rows_->read(wanted, to);
  }

 private:
  RowsPtr rows_;
  WindowPlaces places_;
  Shape shape_;
};

}  // namespace

void add_series_windows(const SeriesOptions& series, bool is_beginning, Dataset& dataset) {
  const int64_t stride = series.sequence_stride.value.value_or(1);
  const int64_t step = series.sampling_rate.value.value_or(1);
  const int64_t target_steps = series.target_length.value.value_or(1);
  const int64_t target = series.span() - 1 + series.horizon.value.value_or(1);
  const int64_t needed = dataset.targets.empty()
                             ? series.span()
                             : std::max(series.span(), target + (target_steps - 1) * step + 1);
  if (dataset.num_samples < needed && !is_beginning) {
    throw ConfigError(
        "E316", dataset.loc,
        fmt::format("{}: {} rows are too few for one window, which takes {}{}", dataset.description,
                    format_thousands(dataset.num_samples), format_thousands(needed),
                    dataset.targets.empty() ? "" : " with its target"));
  }
  const int64_t count = std::max<int64_t>(dataset.num_samples - needed, 0) / stride + 1;
  const auto windows = [&](RowsPtr& rows, const WindowPlaces& places, bool is_row) {
    rows = std::make_shared<SeriesRows>(std::move(rows), places, is_row);
  };
  for (Dataset::Array& input : dataset.inputs) {
    windows(input.rows, {count, 0, stride, *series.sequence_length, step}, false);
  }
  const bool is_row = !series.target_length.value;
  for (Dataset::Array& array : dataset.targets) {
    windows(array.rows, {count, target, stride, target_steps, step}, is_row);
  }
  if (dataset.sample_weight) {
    const int64_t row = dataset.targets.empty() ? series.span() - 1 : target;
    windows(dataset.sample_weight, {count, row, stride, 1, step}, true);
  }
  dataset.num_samples = count;
}

}  // namespace meshtrain
