#include "data/csv_preprocessing.h"

#include <algorithm>

#include "base/diagnostic.h"
#include "base/text.h"
#include "data/csv_columns.h"

namespace meshtrain {

CsvPreprocessed::CsvPreprocessed(const ConfigObject& config, std::vector<size_t> fields,
                                 const std::string& base_dir)
    : config_(config),
      fields_(std::move(fields)),
      transform_(make_column_transform(config, base_dir)) {}

std::string CsvPreprocessed::text_of(std::span<const std::string_view> row) const {
  std::string text;
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (i > 0) {
      text += kCrossed;
    }
    const std::string_view field = row[fields_[i]];
    text += transform_->keeps_spaces() ? field : trim(field);
  }
  return text;
}

void CsvPreprocessed::cross(const std::map<size_t, CsvPreprocessed>& columns) {
  const bool changes = std::any_of(fields_.begin(), fields_.end(), [&](size_t field) {
    return columns.contains(field) && &columns.at(field) != this;
  });
  if (!changes) {
    return;
  }
  for (std::string& text : texts_) {
    std::vector<std::string> parts = split(text, kCrossed);
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (const auto found = columns.find(fields_[i]); found != columns.end()) {
        parts[i] = found->second.transform().crossed(parts[i]);
      }
    }
    text = join(parts, std::string(1, kCrossed));
  }
}

void CsvPreprocessed::use(ColumnTable table) {
  table_ = std::move(table);
  transform_->use(table_);
}

void CsvPreprocessed::check(const std::string& name) const {
  if (!config_.args.contains("num_oov_indices") || config_.integer("num_oov_indices") > 0) {
    return;  // unknown values have ids
  }
  std::vector<double> numbers(static_cast<size_t>(transform_->width()));
  std::string first;
  int64_t count = 0;
  for (size_t row = 0; row < texts_.size(); ++row) {
    const std::string problem = transform_->write(texts_[row], numbers.data());
    if (!problem.empty() && count++ == 0) {
      first = fmt::format("row {} of the column `{}` {}", row + 1, shown_text(name), problem);
    }
  }
  if (count > 0) {
    throw ConfigError(
        "E312", config_.loc,
        first +
            (count > 1 ? fmt::format(" (and {} more such rows)", format_thousands(count - 1)) : ""))
        .help("`num_oov_indices: 1` gives unknown values an id");
  }
}

ColumnWriter CsvPreprocessed::writer() const {
  return {transform_->width(), [this](int64_t row, double, double* out) {
            transform_->write(texts_[static_cast<size_t>(row)], out);
          }};
}

CsvFiles CsvPreprocessed::files() const {
  auto paths = std::make_shared<std::vector<std::string>>();
  for (const std::string& text : texts_) {
    paths->push_back(transform_->file(text));
  }
  return {paths, transform_->rows_of(paths)};
}

void add_crossed_columns(std::span<const ConfigObject* const> transforms,
                         std::vector<std::string>& names, const std::string& file) {
  for (const ConfigObject* transform : transforms) {
    if (!transform->args.contains("columns")) {
      continue;
    }
    const std::string& name = transform->string("name");
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      throw ConfigError("E310", transform->loc_of("name"),
                        fmt::format("`{}` has a column `{}` already", file, shown_text(name)))
          .help("give the new column another name");
    }
    names.push_back(name);
  }
}

}  // namespace meshtrain
