// The rows of a table while they are read: csv_table.cc reads files and lays out arrays,
// csv_fields.cc turns a field into a number, csv_finish.cc makes the table of all rows.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/csv_columns.h"
#include "data/csv_dates.h"
#include "data/csv_faults.h"
#include "data/csv_preprocessing.h"
#include "data/csv_table.h"
#include "data/csv_values.h"

namespace meshtrain {

class CsvTableReader::Rows {
 public:
  Rows(const CsvSettings& settings, const CsvLearned* learned);

  void read(CsvRecords& records);

  int64_t num_rows() const { return num_rows_; }

  CsvTable finish(std::span<const int64_t> mean_rows);

 private:
  // One column of one array.
  struct Slot {
    size_t field = 0, array = 0, position = 0;
    CsvCategories* categories = nullptr;
    bool is_feature = false;
    bool is_one_hot = false;
    std::optional<DatePart> part = std::nullopt;
    const CsvPreprocessed* preprocessed = nullptr;
    bool takes_previous = false;          // for a missing value, the one before
    std::map<int, double> previous = {};  // the last value of each group
  };
  struct Array {
    const CsvLayout::Array* layout;
    CsvBlocks blocks;
    bool is_vector;
    std::optional<DType> whole = std::nullopt;  // type of the Input, where that is one of integers
    std::vector<Slot> slots = {};               // in the order of the row
  };

  // csv_table.cc
  // Whether one of the fields is the name of a column that the training data use.
  bool has_asked_name(std::span<const std::string_view> fields) const;
  bool has_known_name(std::span<const std::string_view> fields) const;
  void take_columns(std::vector<std::string> names);
  bool has_feature(size_t column) const;
  void make_arrays(std::span<const std::string_view> first_row);
  // `whole`: Array.
  void add_array(const CsvLayout::Array& layout, bool is_feature, bool is_weight,
                 std::span<const std::string_view> first_row, std::optional<DType> whole = {});
  std::optional<DType> whole_type(size_t input) const;
  std::vector<std::string> with_tokens(std::vector<std::string> texts, bool is_label) const;
  CsvCategories* categories_of(size_t column, bool is_label, std::string_view first);
  void check_vocabulary(size_t column, const std::vector<std::string>& learned) const;
  void take_row(std::span<const std::string_view> fields, int64_t row, int64_t line);

  // csv_fields.cc
  void store(CsvBlocks& blocks, Slot& slot, std::string_view field);
  static void store_number(CsvBlocks& blocks, const Slot& slot, double value);
  // A value of a preprocessed column, which must be one that its transform can take.
  void take_text(size_t column, CsvPreprocessed& to, std::span<const std::string_view> fields);
  bool is_missing(std::string_view field) const;
  double number(const Slot& slot, std::string_view field);
  double date(const Slot& slot, std::string_view field);
  double missing_fault(CsvFaults::Kind& kind, const Slot& slot, std::string_view field);
  double missing(const Slot& slot, std::string_view field);
  // The value before a missing one in its group; without one it is a fault.
  double previous(const Slot& slot, std::string_view field);
  void take_group(std::string_view field);
  // `value`, which its array must be able to hold.
  double fitting(const Slot& slot, std::string_view field, double value);
  double category(const Slot& slot, std::string_view field);
  int same_number(const CsvCategories& categories, std::string_view text) const;
  // The id of a token of features; -1 for a column without it.
  static int token_id(const Slot& slot, const std::string& token);
  double fault(CsvFaults::Kind& kind, const Slot& slot, const std::string& what);

  // csv_finish.cc
  std::string name_of(const Slot& slot) const;
  void take_means(HostTensor& tensor, const Array& array, std::span<const int64_t> rows,
                  std::map<std::string, double>& means) const;
  void fill_missing(HostTensor& tensor, int64_t position, int64_t width, const std::string& name,
                    std::optional<double> mean) const;
  HostTensor finish_array(Array& array);
  HostTensor expand(HostTensor tensor, const Array& array, std::vector<std::string>& columns) const;
  HostTensor take_id_counts(HostTensor tensor, const Array& array,
                            std::vector<int32_t>& counts) const;
  const CsvPreprocessed* whole_column(const Array& array, bool (ColumnTransform::*is_whole)() const,
                                      const char* what) const;
  void learn_tables(std::span<const int64_t> rows, std::map<std::string, ColumnTable>& tables);

  const CsvSettings& settings_;
  const CsvLearned* learned_;
  bool has_header_ = false;
  bool are_numbers_missing_ = false;  // -999 or the like means "missing"
  std::vector<std::string> names_;
  CsvLayout layout_;
  std::map<size_t, CsvCategories> categories_;  // by column
  std::map<size_t, bool> is_label_;             // and no feature, of the same
  std::map<const CsvCategories*, std::vector<int>> new_ids_;
  std::vector<Array> arrays_;  // inputs, targets, weights of layout_
  std::string first_file_, file_;
  int64_t row_ = 0, line_ = 0, num_rows_ = 0;
  size_t num_fields_ = 0;                           // of a row of the file
  std::map<size_t, CsvPreprocessed> preprocessed_;  // by column
  CsvCategories group_texts_{{}, true};
  std::vector<int> groups_;  // of each row, where the layout has a group
  int group_ = 0;            // of this row
  std::map<std::pair<size_t, int>, std::string> previous_texts_;  // by column and group
  CsvFaults faults_;
};

}  // namespace meshtrain
