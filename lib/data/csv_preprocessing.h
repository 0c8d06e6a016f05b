// Columns of a CSV file that a transform changes (column_transform.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/column_transform.h"
#include "data/csv_table.h"
#include "data/csv_values.h"

namespace meshtrain {

// One such column: its texts while rows are read, then its numbers.
class CsvPreprocessed {
 public:
  // `fields`: the columns of the file that it is made from. Files that `config` names are relative
  // to `base_dir`.
  CsvPreprocessed(const ConfigObject& config, std::vector<size_t> fields,
                  const std::string& base_dir);

  const ColumnTransform& transform() const { return *transform_; }
  SourceLoc place() const { return config_.loc; }
  std::string text_of(std::span<const std::string_view> row) const;
  void add(std::string text) { texts_.push_back(std::move(text)); }

  // Of a column made of several: takes of each what `columns` make of it
  // (ColumnTransform::crossed).
  void cross(const std::map<size_t, CsvPreprocessed>& columns);
  void learn(std::span<const int64_t> rows) { use(transform_->learn(texts_, rows)); }
  void use(ColumnTable table);
  const ColumnTable& table() const { return table_; }
  // Throws ConfigError E312 with the first row that the transform does not take.
  void check(const std::string& name) const;
  ColumnWriter writer() const;
  CsvFiles files() const;  // where the transform reads_files()

 private:
  const ConfigObject& config_;
  std::vector<size_t> fields_;
  std::unique_ptr<ColumnTransform> transform_;
  std::vector<std::string> texts_;
  ColumnTable table_;
};

// Adds the names of columns that transforms make of several. Throws ConfigError E310 for the name
// of a column of the file.
void add_crossed_columns(std::span<const ConfigObject* const> transforms,
                         std::vector<std::string>& names, const std::string& file);

}  // namespace meshtrain
