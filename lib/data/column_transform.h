// Keras' preprocessing layers over columns of a table, on the host: TextVectorization,
// StringLookup, IntegerLookup, Discretization, Hashing, HashedCrossing and CategoryEncoding; and
// Tokenizer, Image and Mask, which are ours. Their classes are declared in
// config/catalogue_preprocessing.cc.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/object.h"
#include "data/rows.h"

namespace meshtrain {

// What a transform learned from the training data, or was given.
struct ColumnTable {
  std::vector<std::string> vocabulary;  // without special tokens, in the order of ids
  std::vector<double> weights;          // of tf_idf: of each of the vocabulary
  std::vector<double> boundaries;       // of Discretization
  int64_t length = 0;  // of TextVectorization with output_mode int, and Tokenizer: ids of a text
  std::string tokenizer = {};  // of Tokenizer: the text of its tokenizer.json

  bool operator==(const ColumnTable&) const = default;
};

class ColumnTransform {
 public:
  explicit ColumnTransform(const ConfigObject& config);
  virtual ~ColumnTransform() = default;

  // What is wrong with one value of the columns, where that shows without a table: "is `x`, no
  // integer". Empty: nothing.
  virtual std::string problem(std::string_view) const { return ""; }
  // The table of these values. `rows`: those that train.
  virtual ColumnTable learn(std::span<const std::string>, std::span<const int64_t>) const {
    return {};
  }
  // Takes the table that write() needs.
  virtual void use(const ColumnTable&) {}
  // Number of ids; after use().
  virtual int64_t depth() const = 0;

  // Whether the numbers are ids (output_mode int), else zeros, ones, counts or weights.
  bool gives_ids() const { return mode_ == Mode::kInt; }
  // Whether each value becomes several numbers.
  virtual bool is_wide() const { return !gives_ids(); }
  // Whether the last of a value's numbers counts those before it that are no padding.
  virtual bool is_padded() const { return false; }
  // Whether a value names a file, whose content is an array: file() is its path, and rows_of() the
  // arrays of such files.
  virtual bool reads_files() const { return false; }
  virtual std::string file(std::string_view) const { return ""; }
  virtual RowsPtr rows_of(std::shared_ptr<const std::vector<std::string>>) const { return nullptr; }
  // Whether a text that means missing is a value like others; if not, the text that stands for it,
  // if there is one.
  virtual bool takes_missing(std::string_view) const { return true; }
  virtual std::optional<std::string> missing_text() const { return std::nullopt; }
  // What a HashedCrossing takes of a value; after use().
  virtual std::string crossed(std::string_view value) const { return std::string(value); }
  // Whether values are numbers; they get decimal points.
  virtual bool takes_numbers() const { return false; }
  // Whether spaces at the ends of a field belong to the value.
  virtual bool keeps_spaces() const { return false; }
  // Numbers that a value becomes; after use().
  virtual int64_t width() const { return gives_ids() ? 1 : depth(); }
  // Writes width() numbers for the value. Returns what is wrong with it: "is `x`, which ...".
  std::string write(std::string_view value, double* out) const;

 protected:
  // The ids of a value; kDropped for what has none. `problem`: why there are none at all.
  static constexpr int64_t kDropped = -1;
  virtual std::vector<int64_t> ids(std::string_view value, std::string& problem) const = 0;
  virtual double weight(int64_t) const { return 1; }  // of an id, for tf_idf

  enum class Mode : uint8_t { kInt, kHot, kCount, kTfIdf };
  Mode mode() const { return mode_; }
  const ConfigObject& config() const { return config_; }

 private:
  const ConfigObject& config_;
  Mode mode_;
};

// `config`, of Category::kTransform, must live as long as the transform. Files that it names are
// relative to `base_dir`. Null for a class that transforms whole arrays.
std::unique_ptr<ColumnTransform> make_column_transform(const ConfigObject& config,
                                                       const std::string& base_dir = "");

// A HashedCrossing takes several values as one: joined by this.
constexpr char kCrossed = '\x1f';

}  // namespace meshtrain
