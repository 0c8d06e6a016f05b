#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/text.h"
#include "data/cached_rows.h"
#include "data/checks.h"
#include "data/series_windows.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "data/splits.h"
#include "data/step_order.h"
#include "data/transforms.h"

namespace meshtrain {
namespace {

// Every array of a dataset with its name.
void for_each_array(Dataset& dataset,
                    const std::function<void(const std::string&, RowsPtr&)>& function) {
  for (std::vector<Dataset::Array>* arrays : {&dataset.inputs, &dataset.targets}) {
    for (Dataset::Array& array : *arrays) {
      function(array.name, array.rows);
    }
  }
  if (dataset.sample_weight) {
    function("sample_weight", dataset.sample_weight);
  }
}

void check_lengths(Dataset& dataset) {
  MESHTRAIN_CHECK(!dataset.inputs.empty());
  dataset.num_samples = dataset.inputs[0].rows->size();
  bool equal = true;
  std::vector<std::string> lengths;
  for_each_array(dataset, [&](const std::string& name, RowsPtr& rows) {
    if (rows->size() > 0 && rows->row_bytes() == 0) {  // a file of no bytes can claim any number
      throw ConfigError("E304", dataset.loc,
                        fmt::format("{}: the samples of `{}`, which is {}, have no elements",
                                    dataset.description, name, shape_string(rows->shape())));
    }
    equal = equal && rows->size() == dataset.num_samples;
    lengths.push_back(fmt::format("`{}` has {}", name, rows->size()));
  });
  if (!equal) {
    throw ConfigError("E313", dataset.loc,
                      fmt::format("{}: the arrays have different numbers of samples: {}",
                                  dataset.description, join(lengths, ", ")));
  }
}

void check_all_finite(Dataset& dataset, bool is_for_float64, const char* sample) {
  Diagnostics findings;
  for_each_array(dataset, [&](const std::string& name, RowsPtr& rows) {
    try {
      rows = check_finite(std::move(rows), is_for_float64, name, dataset.description, dataset.loc,
                          sample);
    } catch (const ConfigError& error) {
      findings.append(error.diagnostics());
    }
  });
  findings.throw_if_errors();
}

// Rows that are checked when they are read, however cheap that is.
class UncheckedRows final : public Rows {
 public:
  explicit UncheckedRows(RowsPtr rows) : rows_(std::move(rows)) {}

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return rows_->shape(); }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    rows_->read(order, to);
  }

 private:
  RowsPtr rows_;
};

RowsPtr without_scan(RowsPtr rows) {
  constexpr int64_t kScanned = int64_t{16} << 20;
  const bool is_small = rows->size() * static_cast<int64_t>(rows->row_bytes()) <= kScanned;
  return is_small ? rows : std::make_shared<UncheckedRows>(std::move(rows));
}

// Sources of named arrays, whose `y` may name them again.
bool has_named_arrays(const ConfigObject& source) {
  return has_options<ArchiveOptions>(source) || has_options<NpyOptions>(source);
}

bool has_own_targets(const ConfigObject& source) {
  return has_named_arrays(source)
             ? are_own_targets(source.arg("x"), source.arg("y"))
             : read_options<SourceOptions>(source).own_target.value.has_value();
}

SeriesOptions checked_series(const ConfigObject& source) {
  SeriesOptions series = series_options(source);
  if (series.horizon.value || !has_own_targets(source)) {
    return series;
  }
  if (series.target_length.value) {
    throw ConfigError("E113", series.target_length.loc,
                      "`target_length` with `y: x` needs a `horizon`: without one the window is "
                      "its own target")
        .help("`horizon: 1` makes the rows behind the window the target");
  }
  if (series.target.value) {
    throw ConfigError("E113", series.target.loc,
                      "`target: sequence` with `y: x` needs a `horizon`: without one the window "
                      "is its own target")
        .help("`horizon: 1` makes the row behind each step its target");
  }
  return series;
}

}  // namespace

void take_own_targets(const ConfigObject& source, Dataset& dataset) {
  if (!has_own_targets(source)) {
    return;
  }
  const ConfigValue none;
  const ConfigValue& y = has_named_arrays(source) ? source.arg("y") : none;
  dataset.targets = dataset.inputs;
  dataset.class_names.clear();
  if (dataset.targets.size() == 1) {
    dataset.targets[0].name = "y";
  }
  if (y.is_dict()) {
    for (size_t i = 0; i < dataset.targets.size(); ++i) {
      dataset.targets[i].name = y.dict()[i].first;
    }
  }
}

Dataset load_dataset(const ConfigObject& source, const DataConfig& data, const LearnedPtr& known,
                     const ReadLimits& limits) {
  Dataset dataset = read_source(source, data.base_dir, known, limits);
  check_lengths(dataset);
  if (dataset.sample_weight) {
    dataset.sample_weight = cast_rows(std::move(dataset.sample_weight),
                                      data.is_for_float64 ? DType::kFloat64 : DType::kFloat32);
  }
  std::vector<std::string> details;
  if (has_options<SplitOptions>(source)) {
    const std::string split = read_options<SplitOptions>(source).split;
    if (!ends_with(dataset.description, trim(split))) {
      details.push_back(split);
    }
  }
  std::string part;
  const int64_t all = dataset.num_samples;
  if (dataset.ranges.empty()) {
    dataset.ranges = {{"", 0, all}};
  }
  const auto [slice, slice_loc] = read_options<SourceOptions>(source).slice;
  if (!dataset.is_sliced && slice) {
    const auto [begin, end] = parse_slice(*slice, all, slice_loc);
    part = *slice;
    details.push_back(part);
    dataset = cut_dataset(std::move(dataset), begin, end);
    dataset.ranges = cut_ranges(dataset.ranges, begin, end);
  }
  if (dataset.num_samples == 0) {
    throw ConfigError("E316", part.empty() ? dataset.loc : slice_loc,
                      part.empty()
                          ? fmt::format("{} has no samples", dataset.description)
                          : fmt::format("the slice `{}` of {} samples is empty", part, all));
  }
  for_each_array(dataset, [&](const std::string&, RowsPtr& rows) {
    rows = limits.beginning ? without_scan(std::move(rows)) : cache_rows(std::move(rows), data);
  });
  for_each_array(dataset, [&](const std::string& name, RowsPtr& rows) {
    rows = check_fits_int64(std::move(rows), name, dataset.description, dataset.loc);
  });
  const SeriesOptions series = checked_series(source);
  if (data.nonfinite != Nonfinite::kAllow) {
    check_all_finite(dataset, data.is_for_float64, series.sequence_length ? "row" : "sample");
  }
  const bool forecasts_itself = series.sequence_length && series.horizon.value;
  if (forecasts_itself) {  // `y: x` means later rows, not the window itself
    take_own_targets(source, dataset);
  }
  if (series.sequence_length) {
    add_series_windows(series, limits.beginning, dataset);
  }
  transform_dataset(dataset, data);
  if (!forecasts_itself) {
    take_own_targets(source, dataset);
  }
  if (data.head_tail > 1) {
    order_steps(dataset, data.head_tail, data.head_tail.loc);
  }
  details.push_back(fmt::format("{} samples", dataset.num_samples));
  dataset.description += fmt::format(" ({})", join(details, ", "));
  return dataset;
}

Dataset in_pass(const Dataset& dataset, int64_t pass) {
  Dataset seen = dataset;
  for_each_array(seen, [&](const std::string&, RowsPtr& rows) {
    if (RowsPtr changed = rows->in_pass(pass)) {
      rows = std::move(changed);
    }
  });
  return seen;
}

int64_t num_trained(int64_t samples, double split) {
  return static_cast<int64_t>(std::floor(static_cast<double>(samples) * (1.0 - split)));
}

std::pair<Dataset, Dataset> split_validation(const Dataset& dataset, double split, SourceLoc loc) {
  const int64_t n = dataset.num_samples;
  const int64_t at = num_trained(n, split);
  if (at <= 0 || at >= n) {
    throw ConfigError("E316", std::move(loc),
                      fmt::format("validation_split {} of {} samples leaves {} to train and {} to "
                                  "validate; both need at least one",
                                  format_shortest(split), n, std::clamp<int64_t>(at, 0, n),
                                  n - std::clamp<int64_t>(at, 0, n)));
  }
  return {slice_dataset(dataset, 0, at), slice_dataset(dataset, at, n)};
}

void check_labels(Dataset& dataset, size_t target, int64_t num_classes,
                  std::optional<int64_t> ignored) {
  MESHTRAIN_CHECK(target < dataset.targets.size());
  Dataset::Array& array = dataset.targets[target];
  array.rows = check_label_range(array.rows, {num_classes, ignored}, array.name, dataset.loc);
}

void check_yes_no(Dataset& dataset, size_t target, const std::string& loss) {
  MESHTRAIN_CHECK(target < dataset.targets.size());
  Dataset::Array& array = dataset.targets[target];
  array.rows = check_yes_no_range(array.rows, loss, array.name, dataset.loc);
}

void check_ids(Dataset& dataset, size_t input, int64_t num_rows, const std::string& layer) {
  MESHTRAIN_CHECK(input < dataset.inputs.size());
  Dataset::Array& array = dataset.inputs[input];
  array.rows = check_id_range(array.rows, num_rows, layer, array.name, dataset.loc);
}

}  // namespace meshtrain
