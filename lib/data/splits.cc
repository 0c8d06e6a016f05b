#include "data/splits.h"

#include <algorithm>
#include <optional>

#include "base/parse_number.h"
#include "base/text.h"

namespace meshtrain {
namespace {

// One end of a slice; nullopt where it cannot be read.
std::optional<int64_t> slice_end(std::string_view text, int64_t size, int64_t if_empty) {
  text = trim(text);
  if (text.empty()) {
    return if_empty;
  }
  const bool percent = text.back() == '%';
  if (percent) {
    text = trim(text.substr(0, text.size() - 1));
  }
  const auto number = parse_number<int64_t>(text);
  if (!number) {
    return std::nullopt;
  }
  int64_t value = *number;
  if (percent) {
    if (value < -100 || value > 100) {
      return std::nullopt;
    }
    return static_cast<int64_t>(static_cast<__int128>(size) * (value < 0 ? 100 + value : value) /
                                100);
  }
  return std::clamp<int64_t>(value < 0 ? std::max<int64_t>(value, -size) + size : value, 0, size);
}

template <class T>
void cut_list(std::shared_ptr<const std::vector<T>>& list, int64_t begin, int64_t end) {
  if (list && end - begin < std::ssize(*list)) {
    list = std::make_shared<std::vector<T>>(list->begin() + begin, list->begin() + end);
  }
}

// What is known of each sample beside the arrays.
void cut_lists(Dataset& dataset, int64_t begin, int64_t end) {
  cut_list(dataset.files, begin, end);
  if (dataset.groups && end - begin < std::ssize(dataset.groups->ids)) {
    const std::vector<int>& ids = dataset.groups->ids;
    dataset.groups = std::make_shared<SampleGroups>(SampleGroups{
        dataset.groups->column, dataset.groups->names, {ids.begin() + begin, ids.begin() + end}});
  }
}

template <class F>
void for_each_array(Dataset& dataset, F&& function) {
  for (std::vector<Dataset::Array>* arrays : {&dataset.inputs, &dataset.targets}) {
    for (Dataset::Array& array : *arrays) {
      function(array.rows);
    }
  }
  if (dataset.sample_weight) {
    function(dataset.sample_weight);
  }
}

}  // namespace

std::pair<int64_t, int64_t> parse_slice(const std::string& text, int64_t size,
                                        const SourceLoc& loc) {
  std::string_view body = trim(text);
  if (body.size() >= 2 && body.front() == '[' && body.back() == ']') {
    body = body.substr(1, body.size() - 2);
    const size_t colon = body.find(':');
    if (colon != std::string_view::npos) {
      const auto begin = slice_end(body.substr(0, colon), size, 0);
      const auto end = slice_end(body.substr(colon + 1), size, size);
      if (begin && end) {
        return {*begin, std::max(*begin, *end)};
      }
    }
  }
  throw ConfigError("E113", loc, fmt::format("cannot read the slice `{}`", text))
      .help(
          "write \"[begin:end]\" as in Python: \"[9000:]\", \"[:-100]\", \"[:90%]\"; without "
          "steps");
}

std::vector<SourceRange> cut_ranges(const std::vector<SourceRange>& ranges, int64_t begin,
                                    int64_t end) {
  std::vector<SourceRange> out;
  int64_t before = 0;  // samples of earlier ranges
  for (const SourceRange& range : ranges) {
    const int64_t first = std::max(range.begin, range.begin + begin - before);
    const int64_t last = std::min(range.end, range.begin + end - before);
    if (first < last) {
      out.push_back({range.split, first, last});
    }
    before += range.end - range.begin;
  }
  return out;
}

Dataset slice_dataset(const Dataset& dataset, int64_t begin, int64_t end) {
  Dataset part = dataset;
  for_each_array(part, [&](RowsPtr& rows) { rows = slice_rows(std::move(rows), begin, end); });
  cut_lists(part, begin, end);
  part.num_samples = end - begin;
  return part;
}

Dataset cut_dataset(Dataset dataset, int64_t begin, int64_t end) {
  for_each_array(dataset, [&](RowsPtr& rows) {
    const bool is_copied = rows->tensor() != nullptr && end - begin < rows->size();
    rows = is_copied ? make_rows(rows->read_range(begin, end))
                     : slice_rows(std::move(rows), begin, end);
  });
  cut_lists(dataset, begin, end);
  dataset.num_samples = end - begin;
  return dataset;
}

Dataset join_datasets(std::vector<Dataset> parts) {
  Dataset joined = parts.at(0);
  const auto concat = [&](auto&& rows_of) {
    std::vector<RowsPtr> rows;
    for (Dataset& part : parts) {
      rows.push_back(rows_of(part));
    }
    return concat_rows(std::move(rows));
  };
  for (size_t i = 0; i < joined.inputs.size(); ++i) {
    joined.inputs[i].rows = concat([&](Dataset& part) { return part.inputs.at(i).rows; });
  }
  for (size_t i = 0; i < joined.targets.size(); ++i) {
    joined.targets[i].rows = concat([&](Dataset& part) { return part.targets.at(i).rows; });
  }
  if (joined.sample_weight) {
    joined.sample_weight = concat([](Dataset& part) { return part.sample_weight; });
  }
  joined.num_samples = 0;
  for (const Dataset& part : parts) {
    joined.num_samples += part.num_samples;
  }
  return joined;
}

}  // namespace meshtrain
