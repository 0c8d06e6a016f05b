// What a table is when all its rows are read: final ids, means, columns of several numbers, and
// what was learned.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "data/csv_rows.h"

namespace meshtrain {

std::string CsvTableReader::Rows::name_of(const Slot& slot) const {
  const std::string& column = layout_.known_as[slot.field];
  return slot.part ? fmt::format("{}.{}", column, word_of(*slot.part)) : column;
}

// Puts the mean of each column of numbers into `means`: the learned one, or that of these rows.
// With `missing: mean`, fills missing numbers in. Means are always learned, because a later file
// may miss numbers that this one has.
void CsvTableReader::Rows::take_means(HostTensor& tensor, const Array& array,
                                      std::span<const int64_t> rows,
                                      std::map<std::string, double>& means) const {
  const auto width = static_cast<int64_t>(array.slots.size());
  for (int64_t i = 0; i < width; ++i) {
    const Slot& slot = array.slots[static_cast<size_t>(i)];
    const std::string name = name_of(slot);
    if (slot.categories != nullptr || slot.preprocessed != nullptr) {
      continue;
    }
    std::optional<double> mean;
    if (learned_ == nullptr) {
      mean = mean_of_column(tensor, i, rows);
    } else if (const auto found = learned_->means.find(name); found != learned_->means.end()) {
      mean = found->second;
    }
    if (settings_.missing == CsvSettings::Missing::kMean) {
      fill_missing(tensor, i, width, name, mean);
    }
    if (mean && !std::isnan(*mean)) {
      means[name] = *mean;
    }
  }
}

// Replaces missing numbers, which are NaN, by the mean of their column.
void CsvTableReader::Rows::fill_missing(HostTensor& tensor, int64_t position, int64_t width,
                                        const std::string& name, std::optional<double> mean) const {
  for (int64_t row = 0; row < num_rows_; ++row) {
    if (!std::isnan(tensor.at(row * width + position))) {
      continue;
    }
    if (!mean) {
      throw ConfigError(
          "E311", {},
          fmt::format("`{}`: column `{}` misses numbers, and no mean was learned from the "
                      "training data",
                      first_file_, shown_text(name)))
          .help("train with `missing: mean`, or give a number: `missing: 0`");
    }
    if (std::isnan(*mean) && settings_.max_rows > 0) {
      return;  // a later row may have one
    }
    if (std::isnan(*mean)) {
      throw ConfigError("E311", {},
                        fmt::format("`{}`: column `{}` is missing everywhere, and has no mean",
                                    first_file_, shown_text(name)));
    }
    tensor.set(row * width + position, *mean);
  }
}

// The array with final ids: those of texts in the order of the file become those in sorted order.
HostTensor CsvTableReader::Rows::finish_array(Array& array) {
  HostTensor tensor = array.blocks.finish(array.is_vector);
  const auto width = static_cast<int64_t>(array.slots.size());
  for (const Slot& slot : array.slots) {
    if (const auto found = new_ids_.find(slot.categories); found != new_ids_.end()) {
      for (auto at = static_cast<int64_t>(slot.position); at < tensor.size(); at += width) {
        tensor.set(at, found->second[static_cast<size_t>(tensor.at(at))]);
      }
    }
  }
  return tensor;
}

// Columns of one array as numbers: a category of `one_hot` is several, a preprocessed text may be.
HostTensor CsvTableReader::Rows::expand(HostTensor tensor, const Array& array,
                                        std::vector<std::string>& columns) const {
  std::vector<ColumnWriter> writers;
  bool is_any = false;
  for (const Slot& slot : array.slots) {
    const std::string name = name_of(slot);
    is_any = is_any || slot.is_one_hot || slot.preprocessed != nullptr;
    if (slot.preprocessed != nullptr) {
      writers.push_back(slot.preprocessed->writer());
      const int64_t width =
          writers.back().width - (slot.preprocessed->transform().is_padded() ? 1 : 0);
      for (int64_t i = 0; i < width; ++i) {
        columns.push_back(width == 1 ? name : fmt::format("{}.{}", name, i));
      }
    } else if (slot.is_one_hot) {
      const std::vector<std::string>& texts = slot.categories->texts();
      writers.push_back({static_cast<int64_t>(texts.size()),
                         [count = texts.size()](int64_t, double value, double* out) {
                           std::fill_n(out, count, 0.0);
                           out[static_cast<size_t>(value)] = 1;
                         }});
      for (const std::string& text : texts) {
        columns.push_back(fmt::format("{}={}", name, text));
      }
    } else {
      writers.push_back({1, [](int64_t, double value, double* out) { *out = value; }});
      columns.push_back(name);
    }
  }
  if (!is_any) {
    return tensor;
  }
  HostTensor out = expand_columns(tensor, writers);
  if (array.is_vector) {
    out.reshape({out.shape()[0]});
  }
  return out;
}

// The only column of the array, where `is_whole` says that its transform makes a whole array.
const CsvPreprocessed* CsvTableReader::Rows::whole_column(const Array& array,
                                                          bool (ColumnTransform::*is_whole)() const,
                                                          const char* what) const {
  const auto found = std::find_if(array.slots.begin(), array.slots.end(), [&](const Slot& slot) {
    return slot.preprocessed != nullptr && (slot.preprocessed->transform().*is_whole)();
  });
  if (found == array.slots.end()) {
    return nullptr;
  }
  if (array.slots.size() > 1) {
    const std::string name = shown_text(name_of(*found));
    throw ConfigError("E310", found->preprocessed->place(),
                      fmt::format("the array `{}` has `{}`, which {}, and other columns",
                                  array.layout->name, name, what))
        .help(fmt::format("give it an input of its own: `features: {{{}: {}, numbers: [age]}}`",
                          name, name));
  }
  return found->preprocessed;
}

// Splits an array of a padded column in ids and how many of each row are no padding.
HostTensor CsvTableReader::Rows::take_id_counts(HostTensor tensor, const Array& array,
                                                std::vector<int32_t>& counts) const {
  if (whole_column(array, &ColumnTransform::is_padded, "is tokenized") == nullptr) {
    return tensor;
  }
  const int64_t width = tensor.shape()[1] - 1;
  HostTensor ids(tensor.dtype(), {tensor.shape()[0], width});
  for (int64_t row = 0; row < num_rows_; ++row) {
    const std::byte* const from =
        tensor.bytes() + static_cast<size_t>(row * (width + 1)) * dtype_size(tensor.dtype());
    std::copy_n(from, static_cast<size_t>(width) * dtype_size(tensor.dtype()),
                ids.bytes() + static_cast<size_t>(row * width) * dtype_size(tensor.dtype()));
    counts.push_back(static_cast<int32_t>(tensor.at(row * (width + 1) + width)));
  }
  return ids;
}

// The tables of preprocessed columns: those of the training data, or learned from these rows.
void CsvTableReader::Rows::learn_tables(std::span<const int64_t> rows,
                                        std::map<std::string, ColumnTable>& tables) {
  for (auto& [column, each] : preprocessed_) {
    const std::string& name = layout_.known_as[column];
    each.cross(preprocessed_);  // behind the columns of the file, which have their tables
    if (learned_ == nullptr) {
      each.learn(rows);
    } else if (const auto found = learned_->tables.find(name); found != learned_->tables.end()) {
      each.use(found->second);
    } else {
      throw ConfigError(
          "E324", each.place(),
          fmt::format("the training data have no table of the column `{}`", shown_text(name)))
          .help("write the same `preprocessing` as in `data.train`");
    }
    each.check(name);
    tables[name] = each.table();
  }
}

CsvTable CsvTableReader::Rows::finish(std::span<const int64_t> mean_rows) {
  faults_.report();
  CsvTable table;
  table.groups = std::move(groups_);
  table.group_names = group_texts_.texts();
  table.learned.has_header = has_header_;
  table.learned.columns = layout_.written;
  learn_tables(mean_rows, table.learned.tables);
  for (auto& [column, categories] : categories_) {
    if (categories.is_open()) {
      new_ids_[&categories] =
          categories.sort(with_tokens({}, is_label_.at(column)).size(), settings_.decimal);
    }
    table.learned.categories[layout_.known_as[column]] = categories.texts();
  }
  if (settings_.inputs.empty()) {
    for (const size_t column : layout_.inputs[0].columns) {
      table.learned.features.push_back(layout_.known_as[column]);
    }
  }
  for (size_t i = 0; i < arrays_.size(); ++i) {
    Array& array = arrays_[i];
    const CsvLayout::Array& layout = *array.layout;
    const size_t num_inputs = layout_.inputs.size();
    HostTensor tensor = finish_array(array);
    for (const Slot& slot : array.slots) {
      if (slot.categories == nullptr && slot.preprocessed == nullptr) {
        table.learned.numbers.insert(layout_.known_as[slot.field]);
      }
    }
    if (i < num_inputs && settings_.missing != CsvSettings::Missing::kValue) {
      take_means(tensor, array, mean_rows, table.learned.means);
    }
    tensor = expand(std::move(tensor), array, table.columns[layout.name]);
    if (const CsvPreprocessed* const column =
            whole_column(array, &ColumnTransform::reads_files, "is of files")) {
      table.files[layout.name] = column->files();
    }
    std::vector<int32_t> counts;
    tensor = take_id_counts(std::move(tensor), array, counts);
    if (i < num_inputs) {
      if (!counts.empty()) {
        table.id_counts[layout.name] = std::move(counts);
      }
      table.inputs.push_back({layout.name, std::move(tensor)});
    } else if (i < num_inputs + layout_.targets.size()) {
      table.targets.push_back({layout.name, std::move(tensor)});
      table.labels.push_back(layout_.known_as[layout.columns[0]]);
    } else {
      table.weight = std::move(tensor);
    }
  }
  return table;
}

}  // namespace meshtrain
