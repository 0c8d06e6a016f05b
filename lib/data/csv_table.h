// Arrays of numbers from the columns of CSV files, in one pass.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/source_classes.h"
#include "data/column_transform.h"
#include "data/csv_text.h"
#include "data/dataset.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// A column by its name, or by its index ("0"; "-1" is the last), and where the config says so.
struct CsvColumn {
  std::string text;
  SourceLoc loc;
};

struct CsvArray {
  std::string name;  // in the dataset: "x"
  std::vector<CsvColumn> columns;
  bool is_vector = false;  // (rows,), of one column; else (rows, columns)
};

struct CsvSettings {
  // auto: the first row of the training data's first file, when none of its fields is a number;
  // who opens the file may know more (has_numbers_in_header)
  using Header = CsvHeaderMode;
  enum class Missing { kError, kMean, kPrevious, kValue };

  char separator = ',', decimal = '.';
  Header header = Header::kAuto;
  std::vector<CsvArray> inputs;  // empty: "x", of all columns that are nothing else
  std::vector<CsvArray> targets;
  std::optional<CsvColumn> weight, group;
  std::vector<CsvColumn> categorical;  // their texts become ids; so do labels that are no numbers
  std::vector<std::pair<CsvColumn, std::vector<std::string>>>
      vocabularies;                   // texts in order of ids
  std::vector<CsvColumn> one_hot;     // categorical, too
  std::string mask_token, oov_token;  // first texts of features' categories: missing, unknown
  std::vector<std::pair<CsvColumn, std::vector<DatePart>>> dates;
  std::string date_format;                         // of strptime(); empty: ISO 8601
  std::vector<const ConfigObject*> preprocessing;  // of columns (column_transform.h)
  std::string base_dir;                            // of files that these name
  int64_t max_rows = 0;                            // of each file; 0: all
  DType dtype = DType::kFloat32;                   // of numbers: float32, float64 or int32
  // The Inputs that `inputs` feed, by name or else in this order: columns of an Input of whole
  // numbers are read as float64, which holds them up to 2^53, and no others are taken.
  std::vector<ModelInput> model_inputs;
  // Of features; labels and weights are never missing. kPrevious is also of labels that are
  // features, too.
  Missing missing = Missing::kError;
  double missing_value = 0;
  std::set<std::string, std::less<>> missing_texts = {"NA",   "N/A",  "n/a",  "NaN", "nan",
                                                      "NULL", "null", "None", "?"};
};

// Values learned from the training data, used for all other data.
struct CsvLearned {
  bool has_header = false;
  // An array as the config writes it, its name and its columns -> the names of these columns. An
  // index means the column that has it in the training data, wherever that is elsewhere.
  std::map<std::vector<std::string>, std::vector<std::string>> columns;
  std::vector<std::string> features;                           // columns of "x"
  std::map<std::string, std::vector<std::string>> categories;  // column -> texts in order of ids
  std::set<std::string> numbers;                               // columns that are none
  std::map<std::string, double> means;        // of columns of numbers; none with `missing: NUMBER`
  std::map<std::string, ColumnTable> tables;  // of preprocessed columns
};

// Files of which each row has one, and the array of their contents.
struct CsvFiles {
  std::shared_ptr<const std::vector<std::string>> paths;
  RowsPtr rows;
};

struct CsvTable {
  std::vector<NamedTensor> inputs, targets;
  std::vector<std::string> labels;                          // the first column of each target
  std::map<std::string, std::vector<std::string>> columns;  // of each array: "city", "sold.year"
  // Of inputs of one padded column (ColumnTransform): how many ids of each row are no padding.
  std::map<std::string, std::vector<int32_t>> id_counts;
  std::optional<HostTensor> weight;       // (rows,) float32
  std::vector<int> groups;                // of each row, where settings.group names a column
  std::vector<std::string> group_names;   // the texts of that column
  std::map<std::string, CsvFiles> files;  // instead of the array's numbers
  CsvLearned learned;
};

// The rows of one file after the other.
class CsvTableReader {
 public:
  // `learned` is of the training data, null for these themselves.
  CsvTableReader(const CsvSettings& settings, const CsvLearned* learned);
  ~CsvTableReader();

  // Takes all records of a file, whose columns must be those of the first one. Throws ConfigError
  // E310 for what does not fit together: rows of different lengths, no such column, a column twice,
  // no rows.
  void read(CsvRecords& records);
  int64_t num_rows() const;

  // The arrays. Means are those of `mean_rows`. Throws ConfigError for fields, with
  // row, line and column of the first and the number of them: E310 no number, E311 missing or
  // infinite, E312 not in the vocabulary.
  CsvTable finish(std::span<const int64_t> mean_rows);

 private:
  class Rows;
  std::unique_ptr<Rows> rows_;
};

// The table of a text in memory; `name` stands for it in messages.
CsvTable parse_csv(std::string_view text, const std::string& name, const CsvSettings& settings,
                   const CsvLearned* learned = nullptr);

}  // namespace meshtrain
