#include "data/column_transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/parse_number.h"
#include "base/text.h"
#include "data/column_images.h"
#include "data/column_lookup.h"
#include "data/column_tokens.h"
#include "data/csv_columns.h"
#include "data/csv_text.h"
#include "data/feature_hash.h"
#include "data/quantiles.h"

namespace meshtrain {
namespace {

// Bins between boundaries: the lowest ends below the first, the highest begins with the last.
class Discretization final : public ColumnTransform {
 public:
  using ColumnTransform::ColumnTransform;

  bool takes_numbers() const override { return true; }
  std::string problem(std::string_view value) const override {
    const std::optional<double> number = parse_decimal(value);
    return number && std::isfinite(*number)
               ? ""
               : fmt::format("is `{}`, which is no {}number", shown_text(value),
                             number ? "finite " : "");
  }
  ColumnTable learn(std::span<const std::string> values,
                    std::span<const int64_t> rows) const override {
    if (const ConfigValue& given = config().arg("bin_boundaries"); !given.is_null()) {
      return {.boundaries = given.numbers()};
    }
    std::vector<float> numbers;
    for (const int64_t row : rows) {
      numbers.push_back(
          static_cast<float>(parse_decimal(values[static_cast<size_t>(row)]).value_or(0)));
    }
    return {.boundaries = quantile_boundaries(std::move(numbers),
                                              static_cast<int>(config().integer("num_bins")),
                                              config().number("epsilon"))};
  }
  void use(const ColumnTable& table) override {
    boundaries_.clear();
    for (const double boundary : table.boundaries) {
      boundaries_.push_back(static_cast<float>(boundary));  // as values: 0.7 is in the bin from 0.7
    }
  }
  int64_t depth() const override { return static_cast<int64_t>(boundaries_.size()) + 1; }
  std::string crossed(std::string_view value) const override {  // the bin
    return parse_decimal(value) ? std::to_string(bin(value)) : std::string(value);
  }

 protected:
  std::vector<int64_t> ids(std::string_view value, std::string&) const override {
    return {bin(value)};
  }

 private:
  int64_t bin(std::string_view value) const {
    const double x = static_cast<float>(parse_decimal(value).value_or(0));
    return std::upper_bound(boundaries_.begin(), boundaries_.end(), x) - boundaries_.begin();
  }

  std::vector<double> boundaries_;
};

class Hashing final : public ColumnTransform {
 public:
  using ColumnTransform::ColumnTransform;
  int64_t depth() const override { return config().integer("num_bins"); }
  bool takes_missing(std::string_view) const override { return false; }
  std::optional<std::string> missing_text() const override {
    const ConfigValue& mask = config().arg("mask_value");
    return mask.is_null() ? std::nullopt : std::optional(mask.string());
  }

 protected:
  std::vector<int64_t> ids(std::string_view value, std::string&) const override {
    const ConfigValue& mask = config().arg("mask_value");
    const bool has_mask = !mask.is_null() && depth() > 1;
    if (has_mask && value == mask.string()) {
      return {0};
    }
    const auto bins = static_cast<uint64_t>(depth() - (has_mask ? 1 : 0));
    return {static_cast<int64_t>(hash(value) % bins) + (has_mask ? 1 : 0)};
  }

 private:
  uint64_t hash(std::string_view value) const {
    const ConfigValue& salt = config().arg("salt");
    if (salt.is_null()) {
      return farm_hash(value);
    }
    const std::vector<int64_t> key =
        salt.is_list() ? salt.integers() : std::vector<int64_t>{salt.integer()};
    return sip_hash(value, static_cast<uint64_t>(key.front()), static_cast<uint64_t>(key.back()));
  }
};

class HashedCrossing final : public ColumnTransform {
 public:
  using ColumnTransform::ColumnTransform;
  int64_t depth() const override { return config().integer("num_bins"); }

 protected:
  std::vector<int64_t> ids(std::string_view value, std::string&) const override {
    std::vector<uint64_t> hashes;
    for (const std::string& each : split(value, kCrossed)) {
      hashes.push_back(farm_hash(each));
    }
    return {crossed_bin(hashes, depth())};
  }
};

class CategoryEncoding final : public ColumnTransform {
 public:
  using ColumnTransform::ColumnTransform;

  std::string problem(std::string_view value) const override {
    const auto id = parse_number<int64_t>(value);
    return id && *id >= 0 && *id < depth()
               ? ""
               : fmt::format("is `{}`, no integer from 0 to {}", shown_text(value), depth() - 1);
  }
  int64_t depth() const override { return config().integer("num_tokens"); }

 protected:
  std::vector<int64_t> ids(std::string_view value, std::string&) const override {
    return {parse_number<int64_t>(value).value_or(kDropped)};
  }
};

}  // namespace

ColumnTransform::ColumnTransform(const ConfigObject& config) : config_(config) {
  const std::string mode =
      config.args.contains("output_mode") ? config.string("output_mode") : "int";
  mode_ = mode == "int"      ? Mode::kInt
          : mode == "count"  ? Mode::kCount
          : mode == "tf_idf" ? Mode::kTfIdf
                             : Mode::kHot;
}

std::string ColumnTransform::write(std::string_view value, double* out) const {
  const auto count = static_cast<size_t>(width());
  std::fill_n(out, count, 0.0);
  std::string problem;
  const std::vector<int64_t> found = ids(value, problem);
  if (gives_ids()) {
    for (size_t i = 0; i < std::min(count, found.size()); ++i) {
      out[i] = static_cast<double>(found[i]);
    }
    return problem;
  }
  for (const int64_t id : found) {
    if (id != kDropped) {
      out[id] = mode_ == Mode::kHot ? 1 : out[id] + (mode_ == Mode::kTfIdf ? weight(id) : 1);
    }
  }
  return problem;
}

std::unique_ptr<ColumnTransform> make_column_transform(const ConfigObject& config,
                                                       const std::string& base_dir) {
  const std::string& name = config.class_name;
  if (name == "Discretization") {
    return std::make_unique<Discretization>(config);
  }
  if (name == "Hashing") {
    return std::make_unique<Hashing>(config);
  }
  if (name == "HashedCrossing") {
    return std::make_unique<HashedCrossing>(config);
  }
  if (name == "CategoryEncoding") {
    return std::make_unique<CategoryEncoding>(config);
  }
  if (auto images = make_column_images(config, base_dir)) {
    return images;
  }
  if (auto tokens = make_column_tokens(config, base_dir)) {
    return tokens;
  }
  return make_column_lookup(config);
}

}  // namespace meshtrain
