#include "data/column_lookup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <unordered_map>

#include "base/parse_number.h"
#include "base/text.h"
#include "data/csv_columns.h"
#include "data/csv_values.h"
#include "data/feature_hash.h"
#include "data/text_tokens.h"

namespace meshtrain {
namespace {

// Ids of tokens: the mask's where there is one and ids are the output, those of unknown tokens,
// then those of the vocabulary.
class Lookup : public ColumnTransform {
 public:
  using ColumnTransform::ColumnTransform;

  ColumnTable learn(std::span<const std::string> values,
                    std::span<const int64_t> rows) const override {
    ColumnTable table;
    if (const ConfigValue& given = config().arg("vocabulary"); !given.is_null()) {
      table.vocabulary = given_tokens(given);
      if (mode() == Mode::kTfIdf) {
        table.weights = config().arg("idf_weights").numbers();
      }
    } else {
      count_tokens(values, rows, table);
    }
    return table;
  }
  void use(const ColumnTable& table) override {
    categories_ = std::make_unique<CsvCategories>(table.vocabulary, /*is_open=*/false);
    weights_ = table.weights;
    mean_weight_ = weights_.empty() ? 0
                                    : std::accumulate(weights_.begin(), weights_.end(), 0.0) /
                                          static_cast<double>(weights_.size());
  }
  bool takes_missing(std::string_view text) const override {
    const ConfigValue& given = config().arg("vocabulary");
    const std::vector<std::string> tokens =
        given.is_null() ? std::vector<std::string>() : given_tokens(given);
    return std::find(tokens.begin(), tokens.end(), text) != tokens.end();
  }
  std::optional<std::string> missing_text() const override {
    return mask() == nullptr ? std::nullopt : std::optional(*mask());
  }
  int64_t depth() const override {
    const int64_t size = first_token() + static_cast<int64_t>(categories_->texts().size());
    const bool is_padded = !gives_ids() && config().boolean("pad_to_max_tokens");
    return is_padded ? std::max(size, config().integer("max_tokens")) : size;
  }

 protected:
  virtual std::vector<std::string> tokens(std::string_view value) const = 0;
  virtual std::vector<std::string> given_tokens(const ConfigValue& given) const {
    return given.strings();
  }
  virtual const std::string* mask() const = 0;  // null: there is none
  virtual const std::string* oov() const = 0;   // null: an ordinary token
  virtual int64_t num_oov() const { return config().integer("num_oov_indices"); }
  // Which of several unknown ids an unknown token has.
  virtual int64_t oov_bin(const std::string& token) const {
    return static_cast<int64_t>(farm_hash(token) % static_cast<uint64_t>(num_oov()));
  }
  // Order of tokens that occur equally often; the larger first.
  virtual bool is_larger(const std::string& a, const std::string& b) const { return a > b; }

  std::vector<int64_t> ids(std::string_view value, std::string& problem) const override {
    std::vector<int64_t> out;
    for (const std::string& token : tokens(value)) {
      out.push_back(id(token, problem));
    }
    return out;
  }
  double weight(int64_t id) const override {
    const int64_t i = id - first_token();
    return i < 0 ? mean_weight_ : weights_[static_cast<size_t>(i)];
  }

 private:
  int64_t first_oov() const { return mask() != nullptr && gives_ids() ? 1 : 0; }
  int64_t first_token() const { return first_oov() + num_oov(); }

  int64_t id(const std::string& token, std::string& problem) const {
    if (mask() != nullptr && token == *mask()) {
      return gives_ids() ? 0 : kDropped;
    }
    if (const int found = categories_->find(token); found >= 0) {
      return first_token() + found;
    }
    if (num_oov() == 0) {
      problem = fmt::format("is `{}`, which is not among the {} of the vocabulary",
                            shown_text(token), categories_->texts().size());
      return kDropped;
    }
    return first_oov() + (num_oov() == 1 ? 0 : oov_bin(token));
  }

  void count_tokens(std::span<const std::string> values, std::span<const int64_t> rows,
                    ColumnTable& table) const {
    std::unordered_map<std::string, int64_t> counts, documents;
    for (const int64_t row : rows) {
      std::vector<std::string> found = tokens(values[static_cast<size_t>(row)]);
      for (const std::string& token : found) {
        ++counts[token];
      }
      if (mode() == Mode::kTfIdf) {
        for (const std::string& token : std::set(found.begin(), found.end())) {
          ++documents[token];
        }
      }
    }
    for (const std::string* special : {mask(), oov()}) {
      if (special != nullptr) {
        counts.erase(*special);
      }
    }
    std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
    std::sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : is_larger(a.first, b.first);
    });
    if (const ConfigValue& most = config().arg("max_tokens"); !most.is_null()) {
      const int64_t kept = std::max<int64_t>(0, most.integer() - first_token());
      sorted.resize(std::min(sorted.size(), static_cast<size_t>(kept)));
    }
    for (auto& [token, count] : sorted) {
      if (mode() == Mode::kTfIdf) {
        table.weights.push_back(std::log(1 + static_cast<double>(rows.size()) /
                                                 (1 + static_cast<double>(documents[token]))));
      }
      table.vocabulary.push_back(std::move(token));
    }
  }

  std::unique_ptr<CsvCategories> categories_;
  std::vector<double> weights_;
  double mean_weight_ = 0;
};

class StringLookup final : public Lookup {
 public:
  explicit StringLookup(const ConfigObject& config)
      : Lookup(config), mask_(config.arg("mask_token")), oov_(config.string("oov_token")) {}

 protected:
  std::vector<std::string> tokens(std::string_view value) const override {
    return {std::string(value)};
  }
  const std::string* mask() const override { return mask_.is_null() ? nullptr : &mask_.string(); }
  const std::string* oov() const override { return &oov_; }

 private:
  const ConfigValue& mask_;
  const std::string oov_;
};

// Its tokens are integers, written without leading zeros.
class IntegerLookup final : public Lookup {
 public:
  explicit IntegerLookup(const ConfigObject& config)
      : Lookup(config), oov_(std::to_string(config.integer("oov_token"))) {
    if (const ConfigValue& mask = config.arg("mask_token"); !mask.is_null()) {
      mask_ = std::to_string(mask.integer());
    }
  }

  std::string problem(std::string_view value) const override {
    return parse_number<int64_t>(value)
               ? ""
               : fmt::format("is `{}`, which is no integer", shown_text(value));
  }

 protected:
  std::vector<std::string> tokens(std::string_view value) const override {
    return {std::to_string(parse_number<int64_t>(value).value_or(0))};
  }
  std::vector<std::string> given_tokens(const ConfigValue& given) const override {
    std::vector<std::string> out;
    for (const int64_t token : given.integers()) {
      out.push_back(std::to_string(token));
    }
    return out;
  }
  const std::string* mask() const override { return mask_.empty() ? nullptr : &mask_; }
  const std::string* oov() const override { return &oov_; }
  int64_t oov_bin(const std::string& token) const override {
    const int64_t bin = *parse_number<int64_t>(token) % num_oov();
    return bin < 0 ? bin + num_oov() : bin;
  }
  bool is_larger(const std::string& a, const std::string& b) const override {
    return *parse_number<int64_t>(a) > *parse_number<int64_t>(b);
  }

 private:
  std::string mask_, oov_;
};

class TextVectorization final : public Lookup {
 public:
  explicit TextVectorization(const ConfigObject& config) : Lookup(config) {
    const ConfigValue& standardize = config.arg("standardize");
    const std::string how = standardize.is_null() ? "" : standardize.string();
    rules_.lowers = how.find("lower") != std::string::npos;
    rules_.strips_punctuation = how.find("punctuation") != std::string::npos;
    const ConfigValue& splits = config.arg("split");
    using Split = TokenRules::Split;
    rules_.split = splits.is_null()                  ? Split::kNone
                   : splits.string() == "whitespace" ? Split::kWhitespace
                                                     : Split::kCharacter;
    const ConfigValue& ngrams = config.arg("ngrams");
    if (ngrams.is_list()) {
      rules_.ngrams = ngrams.integers();
    } else if (!ngrams.is_null()) {
      rules_.ngrams.resize(static_cast<size_t>(ngrams.integer()));
      std::iota(rules_.ngrams.begin(), rules_.ngrams.end(), int64_t{1});
    }
  }

  ColumnTable learn(std::span<const std::string> values,
                    std::span<const int64_t> rows) const override {
    ColumnTable table = Lookup::learn(values, rows);
    if (gives_ids()) {
      table.length = length_of(values, rows);
    }
    return table;
  }
  void use(const ColumnTable& table) override {
    Lookup::use(table);
    length_ = table.length;
  }
  bool is_wide() const override { return true; }
  bool keeps_spaces() const override { return true; }
  bool takes_missing(std::string_view) const override { return true; }  // a text without words
  int64_t width() const override { return gives_ids() ? length_ : depth(); }

 protected:
  std::vector<std::string> tokens(std::string_view value) const override {
    return tokens_of(value, rules_);
  }
  const std::string* mask() const override { return &mask_; }
  const std::string* oov() const override { return &oov_; }
  int64_t num_oov() const override { return 1; }

 private:
  // As given, or that of the longest text.
  int64_t length_of(std::span<const std::string> values, std::span<const int64_t> rows) const {
    if (const ConfigValue& given = config().arg("output_sequence_length"); !given.is_null()) {
      return given.integer();
    }
    size_t length = 1;
    for (const int64_t row : rows) {
      length = std::max(length, tokens(values[static_cast<size_t>(row)]).size());
    }
    return static_cast<int64_t>(length);
  }

  TokenRules rules_;
  int64_t length_ = 1;
  const std::string mask_, oov_ = "[UNK]";
};

}  // namespace

std::unique_ptr<ColumnTransform> make_column_lookup(const ConfigObject& config) {
  if (config.class_name == "StringLookup") {
    return std::make_unique<StringLookup>(config);
  }
  if (config.class_name == "IntegerLookup") {
    return std::make_unique<IntegerLookup>(config);
  }
  if (config.class_name == "TextVectorization") {
    return std::make_unique<TextVectorization>(config);
  }
  return nullptr;
}

}  // namespace meshtrain
