// data.split: parts of the training data that are drawn at random.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text.h"
#include "data/array_stats.h"
#include "data/dataset.h"
#include "data/epoch_order.h"

namespace meshtrain {
namespace {

constexpr size_t kParts = std::tuple_size_v<SplitRows>;

// The array whose classes are split alike.
const Dataset::Array& stratified_array(const Dataset& dataset, const Located<std::string>& name) {
  const std::vector<Dataset::Array>& targets = dataset.targets;
  const auto found = std::find_if(targets.begin(), targets.end(),
                                  [&](const auto& target) { return target.name == name.value; });
  if (found != targets.end()) {
    return *found;
  }
  if (name.value == "label" && targets.size() == 1) {
    return targets[0];
  }
  std::vector<std::string> names = {"label"};
  for (const Dataset::Array& target : targets) {
    names.push_back(target.name);
  }
  throw ConfigError("E113", name.loc,
                    fmt::format("`stratify: {}` names no labels of the data", name.value))
      .help(targets.size() == 1 ? "write `stratify: label`" : "names: " + join(names, ", "));
}

// The class of each sample: its number, or the place of the 1 in a one-hot row.
std::vector<int64_t> classes_of(const Dataset& dataset, const Located<std::string>& name) {
  const Dataset::Array& array = stratified_array(dataset, name);
  const bool is_one_hot = array.rows->row_bytes() > dtype_size(array.rows->dtype());
  std::vector<int64_t> classes;
  bool are_classes = true;
  array.rows->for_each_block([&](int64_t, const HostTensor& block) {
    const int64_t width = block.size() / std::max<int64_t>(1, block.shape()[0]);
    for (int64_t at = 0; at < block.size(); at += width) {
      int64_t hot = 0;
      for (int64_t i = 1; i < width; ++i) {
        hot = block.at(at + i) > block.at(at + hot) ? i : hot;
      }
      const double value = is_one_hot ? static_cast<double>(hot) : block.at(at);
      are_classes = are_classes && value == std::floor(value);
      classes.push_back(are_classes ? static_cast<int64_t>(value) : 0);
    }
  });
  if (!are_classes) {
    throw ConfigError(
        "E113", name.loc,
        fmt::format("`{}` cannot be stratified: its numbers are no classes", array.name))
        .help("leave `stratify` out: the split is random");
  }
  return classes;
}

using RowList = std::vector<int64_t>;

// Divides `total` samples among the classes in proportion to `shares`, by the largest remainders;
// equal ones in `order`. A class gives at most what is free of it: the sum may be smaller.
std::vector<int64_t> apportion(const std::vector<double>& shares, const std::vector<int64_t>& free,
                               int64_t total, RowList order) {
  std::vector<int64_t> counts;
  std::vector<double> remainders;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double whole = std::floor(shares[i]);
    counts.push_back(std::min(static_cast<int64_t>(whole), free[i]));
    remainders.push_back(shares[i] - whole);
    total -= counts.back();
  }
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return remainders[at(a)] > remainders[at(b)]; });
  for (bool is_stuck = false; total > 0 && !is_stuck;) {
    is_stuck = true;
    for (const int64_t label : order) {
      const size_t i = at(label);
      if (total > 0 && counts[i] < free[i]) {
        ++counts[i];
        --total;
        is_stuck = false;
      }
    }
  }
  return counts;
}

// How many samples of each class a part takes: its share of all, rounded once. One sample of each
// class is left to train.
std::vector<int64_t> part_sizes(double part, const std::vector<int64_t>& sizes,
                                const std::vector<int64_t>& taken, const RowList& order) {
  std::vector<double> shares;
  std::vector<int64_t> free;
  int64_t count = 0, left = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    shares.push_back(part * static_cast<double>(sizes[i]));
    free.push_back(std::max<int64_t>(0, sizes[i] - taken[i] - 1));
    count += sizes[i];
    left += sizes[i] - taken[i];
  }
  const int64_t total = static_cast<int64_t>(std::llround(static_cast<double>(count) * part));
  return apportion(shares, free, std::min(total, left), order);
}

void check_parts(const SplitRows& parts, const SplitConfig& split, int64_t count) {
  const bool is_empty = parts[0].empty() || (split.validation > 0 && parts[1].empty()) ||
                        (split.test > 0 && parts[2].empty());
  if (is_empty) {
    throw ConfigError("E316", split.loc,
                      fmt::format("`data.split` of {} samples leaves {} to train, {} to validate "
                                  "and {} to test",
                                  count, parts[0].size(), parts[1].size(), parts[2].size()))
        .help("larger parts, or more samples");
  }
}

}  // namespace

SplitRows draw_split(const Dataset& dataset, const SplitConfig& split, int64_t seed) {
  const int64_t count = dataset.num_samples;
  std::map<int64_t, RowList> groups;  // samples of each class in random order
  const std::vector<int64_t> classes =
      split.stratify->empty() ? std::vector<int64_t>() : classes_of(dataset, split.stratify);
  const int64_t own_seed = split.seed->value_or(seed);
  for (const int64_t sample : EpochOrder(count, own_seed, 0).rows(0, count)) {
    groups[classes.empty() ? 0 : classes[static_cast<size_t>(sample)]].push_back(sample);
  }
  std::vector<int64_t> sizes;
  for (const auto& [label, samples] : groups) {
    sizes.push_back(std::ssize(samples));
  }
  const int64_t num_groups = std::ssize(groups);
  const RowList order = EpochOrder(num_groups, own_seed, 0).rows(0, num_groups);
  const std::vector<int64_t> none(groups.size(), 0);
  const std::vector<int64_t> validation = part_sizes(split.validation, sizes, none, order);
  const std::vector<int64_t> test = part_sizes(split.test, sizes, validation, order);
  SplitRows parts;
  size_t group = 0;
  for (const auto& [label, samples] : groups) {
    const int64_t of_part[] = {sizes[group] - validation[group] - test[group], validation[group],
                               test[group]};
    auto at = samples.begin();
    for (size_t i = 0; i < kParts; ++i) {
      parts[i].insert(parts[i].end(), at, at + of_part[i]);
      at += of_part[i];
    }
    ++group;
  }
  check_parts(parts, split, count);
  for (std::vector<int64_t>& rows : parts) {
    std::sort(rows.begin(), rows.end());
  }
  return parts;
}

Dataset select_samples(const Dataset& dataset, const std::vector<int64_t>& rows) {
  Dataset part = dataset;
  for (auto* arrays : {&part.inputs, &part.targets}) {
    for (Dataset::Array& array : *arrays) {
      array.rows = select_rows(array.rows, rows);
    }
  }
  if (part.sample_weight) {
    part.sample_weight = select_rows(part.sample_weight, rows);
  }
  if (part.files) {
    std::vector<std::string> files;
    for (const int64_t row : rows) {
      files.push_back((*dataset.files)[static_cast<size_t>(row)]);
    }
    part.files = std::make_shared<std::vector<std::string>>(std::move(files));
  }
  if (part.groups) {
    SampleGroups groups = {dataset.groups->column, dataset.groups->names, {}};
    for (const int64_t row : rows) {
      groups.ids.push_back(dataset.groups->ids[static_cast<size_t>(row)]);
    }
    part.groups = std::make_shared<SampleGroups>(std::move(groups));
  }
  part.num_samples = static_cast<int64_t>(rows.size());
  return part;
}

}  // namespace meshtrain
