#include "data/csv_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "data/csv_rows.h"

namespace meshtrain {
namespace {

bool is_one_of(const std::vector<size_t>& columns, size_t column) {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

}  // namespace

CsvTableReader::Rows::Rows(const CsvSettings& settings, const CsvLearned* learned)
    : settings_(settings), learned_(learned) {
  are_numbers_missing_ = std::any_of(
      settings.missing_texts.begin(), settings.missing_texts.end(), [&](const std::string& text) {
        const std::optional<double> number = parse_decimal(text, settings.decimal);
        return number && !std::isnan(*number);
      });
  if (settings.missing == CsvSettings::Missing::kPrevious) {
    faults_.missing.help =
        "`missing: previous` takes the value before in the column, and there is none: leave such "
        "rows out of the file, or write values into them";
  }
  if (settings.missing_texts != CsvSettings().missing_texts) {
    faults_.not_number.help =
        "`missing_texts` lists all texts that mean missing, NA and the like too";
  }
}

void CsvTableReader::Rows::read(CsvRecords& records) {
  std::vector<std::string_view> fields;
  file_ = records.name();
  if (!records.next(fields)) {
    throw ConfigError("E310", {}, fmt::format("`{}` is empty", file_));
  }
  if (names_.empty()) {  // `auto`: as the training data are, and all files alike
    has_header_ = is_csv_header(fields, settings_.header, settings_.decimal) ||
                  (settings_.header == CsvSettings::Header::kAuto && has_asked_name(fields));
    if (learned_ != nullptr && settings_.header == CsvSettings::Header::kAuto) {
      has_header_ = learned_->has_header && (has_header_ || has_known_name(fields));
    }
  }
  take_columns(csv_column_names(fields, has_header_, file_));
  int64_t row = 0;
  for (bool more = !has_header_ || records.next(fields); more; more = records.next(fields)) {
    ++row;
    if (fields.size() != num_fields_) {
      throw ConfigError("E310", {},
                        fmt::format("`{}`: row {} (line {}) has {} fields, expected {}", file_, row,
                                    records.line(), fields.size(), num_fields_));
    }
    if (arrays_.empty()) {
      make_arrays(fields);
    }
    take_row(fields, row, records.line());
    if (row == settings_.max_rows) {
      break;
    }
  }
  if (row == 0) {
    throw ConfigError("E310", {}, fmt::format("`{}` has a header and no rows", file_));
  }
  num_rows_ += row;
}

// Whether the config names a column that stands here: "0,1,2,label" is a header for `label: label`.
bool CsvTableReader::Rows::has_asked_name(std::span<const std::string_view> fields) const {
  const auto stands_here = [&](const CsvColumn& column) {
    return !parse_decimal(column.text) &&  // else the index of a column
           std::any_of(fields.begin(), fields.end(),
                       [&](std::string_view field) { return trim(field) == column.text; });
  };
  const auto has_one = [&](const std::vector<CsvArray>& arrays) {
    return std::any_of(arrays.begin(), arrays.end(), [&](const CsvArray& array) {
      return std::any_of(array.columns.begin(), array.columns.end(), stands_here);
    });
  };
  return has_one(settings_.inputs) || has_one(settings_.targets) ||
         (settings_.group && stands_here(*settings_.group));
}

bool CsvTableReader::Rows::has_known_name(std::span<const std::string_view> fields) const {
  return std::any_of(fields.begin(), fields.end(), [&](std::string_view field) {
    const std::string name(trim(field));
    return learned_->numbers.contains(name) || learned_->categories.contains(name) ||
           learned_->tables.contains(name);
  });
}

void CsvTableReader::Rows::take_columns(std::vector<std::string> names) {
  num_fields_ = names.size();
  add_crossed_columns(settings_.preprocessing, names, file_);
  if (names_.empty()) {
    names_ = std::move(names);
    layout_ = csv_layout(settings_, learned_, {names_, has_header_, file_});
    for (size_t i = 0; i < settings_.preprocessing.size(); ++i) {
      const auto& [fields, column] = layout_.preprocessing[i];
      preprocessed_.try_emplace(column, *settings_.preprocessing[i], fields, settings_.base_dir);
    }
    first_file_ = file_;
  } else if (names != names_) {
    const auto lacks = [](const std::vector<std::string>& some,
                          const std::vector<std::string>& of) {
      const auto at = std::find_if(some.begin(), some.end(), [&](const std::string& name) {
        return std::find(of.begin(), of.end(), name) == of.end();
      });
      return at == some.end() ? "" : *at;
    };
    const std::string added = lacks(names, names_), lost = lacks(names_, names);
    throw ConfigError(
        "E310", {},
        fmt::format("`{}` and `{}` have different columns: {}", first_file_, file_,
                    !lost.empty()    ? fmt::format("`{}` is only in the first", shown_text(lost))
                    : !added.empty() ? fmt::format("`{}` is only in the second", shown_text(added))
                                     : "they are in another order"))
        .help("files of one source have the same columns in the same order, and one `separator`");
  }
}

void CsvTableReader::Rows::take_row(std::span<const std::string_view> fields, int64_t row,
                                    int64_t line) {
  row_ = row;
  line_ = line;
  if (layout_.group) {
    take_group(fields[*layout_.group]);
  }
  for (auto& [column, each] : preprocessed_) {
    take_text(column, each, fields);
  }
  for (Array& array : arrays_) {
    array.blocks.add_row();
  }
  for (Array& array : arrays_) {
    for (Slot& slot : array.slots) {
      if (slot.preprocessed != nullptr) {
        store_number(array.blocks, slot, 0);  // finish() writes it
      } else {
        store(array.blocks, slot, fields[slot.field]);
      }
    }
  }
}

// Throws E324 when the config gives the column a vocabulary that is not the learned one.
void CsvTableReader::Rows::check_vocabulary(size_t column,
                                            const std::vector<std::string>& learned) const {
  for (const auto& [named, texts] : settings_.vocabularies) {
    if (named.text == layout_.known_as[column] && with_tokens(texts, false) != learned &&
        texts != learned) {
      throw ConfigError("E324", named.loc,
                        fmt::format("the `vocabulary` of `{}` is not that of the training data",
                                    shown_text(named.text)))
          .help("leave it out: ids are always those of the training data");
    }
  }
}

// The texts of a column in the order of their ids. As in Keras' StringLookup the ids of missing and
// unknown texts come first; `texts` may have them.
std::vector<std::string> CsvTableReader::Rows::with_tokens(std::vector<std::string> texts,
                                                           bool is_label) const {
  size_t at = 0;
  for (const std::string& token : {settings_.mask_token, settings_.oov_token}) {
    if (!is_label && !token.empty() &&
        std::find(texts.begin(), texts.end(), token) == texts.end()) {
      texts.insert(texts.begin() + static_cast<std::ptrdiff_t>(at++), token);
    }
  }
  return texts;
}

// Which texts a column has ids for; null for a column of numbers.
CsvCategories* CsvTableReader::Rows::categories_of(size_t column, bool is_label,
                                                   std::string_view first) {
  if (const auto known = categories_.find(column); known != categories_.end()) {
    const bool has_tokens = !settings_.mask_token.empty() || !settings_.oov_token.empty();
    if (has_tokens && is_label_.at(column) != is_label) {
      throw ConfigError(
          "E310", {},
          fmt::format("`{}`: the column `{}` is a label and a feature, whose ids `mask_token` and "
                      "`oov_token` shift",
                      file_, shown_text(layout_.known_as[column])))
          .help("leave it out of `features`, or both tokens out");
    }
    return &known->second;
  }
  const auto add = [&](std::vector<std::string> texts, bool is_open) {
    is_label_[column] = is_label;
    return &categories_.emplace(column, CsvCategories(std::move(texts), is_open)).first->second;
  };
  if (learned_ != nullptr) {
    const std::string& name = layout_.known_as[column];
    if (const auto found = learned_->categories.find(name); found != learned_->categories.end()) {
      check_vocabulary(column, found->second);
      return add(found->second, false);
    }
    if (learned_->numbers.contains(name)) {
      return nullptr;
    }
  }
  for (const auto& [named, texts] : settings_.vocabularies) {
    if (find_csv_column(names_, named, file_) == column) {
      return add(with_tokens(texts, is_label), false);
    }
  }
  const bool is_named = is_one_of(layout_.one_hot, column) ||
                        std::any_of(settings_.categorical.begin(), settings_.categorical.end(),
                                    [&](const CsvColumn& named) {
                                      return find_csv_column(names_, named, file_) == column;
                                    });
  const bool is_text = is_label && !is_one_of(layout_.dates, column) && !is_missing(first) &&
                       !parse_decimal(first, settings_.decimal);
  return is_named || is_text ? add(with_tokens({}, is_label), true) : nullptr;
}

// Whether one of the arrays so far has features of this column.
bool CsvTableReader::Rows::has_feature(size_t column) const {
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
    return std::any_of(array.slots.begin(), array.slots.end(),
                       [&](const Slot& slot) { return slot.is_feature && slot.field == column; });
  });
}

void CsvTableReader::Rows::add_array(const CsvLayout::Array& layout, bool is_feature,
                                     bool is_weight, std::span<const std::string_view> first_row,
                                     std::optional<DType> whole) {
  bool are_ids = true, is_one_hot = false;
  std::vector<Slot> slots;
  const auto add = [&](Slot slot) {
    slot.array = arrays_.size();
    slot.position = slots.size();
    slot.is_feature = is_feature;
    slot.takes_previous = settings_.missing == CsvSettings::Missing::kPrevious &&
                          (is_feature || (!is_weight && has_feature(slot.field)));
    slots.push_back(slot);
  };
  for (const size_t column : layout.columns) {
    if (const auto found = preprocessed_.find(column); found != preprocessed_.end()) {
      const ColumnTransform& transform = found->second.transform();
      are_ids = are_ids && transform.gives_ids();
      is_one_hot = is_one_hot || transform.is_wide();
      add({.field = column, .preprocessed = &found->second});
      continue;
    }
    CsvCategories* const categories =
        is_weight ? nullptr : categories_of(column, !is_feature, first_row[column]);
    const bool is_hot = categories != nullptr && is_one_of(layout_.one_hot, column);
    are_ids = are_ids && categories != nullptr && !is_hot;
    is_one_hot = is_one_hot || is_hot;
    const auto date = std::find(layout_.dates.begin(), layout_.dates.end(), column);
    if (date == layout_.dates.end()) {
      add({.field = column, .categories = categories, .is_one_hot = is_hot});
      continue;
    }
    for (const DatePart part :
         settings_.dates[static_cast<size_t>(date - layout_.dates.begin())].second) {
      add({.field = column, .part = part});
    }
  }
  const bool is_float32 = is_weight && settings_.dtype != DType::kFloat64;
  const bool is_wide = whole && settings_.dtype == DType::kFloat32;  // ids from 2^24 on
  const DType dtype = are_ids      ? DType::kInt32
                      : is_float32 ? DType::kFloat32
                      : is_wide    ? DType::kFloat64
                                   : settings_.dtype;
  MESHTRAIN_CHECK(!slots.empty());
  arrays_.push_back({&layout, CsvBlocks(dtype, slots.size()),
                     layout.is_vector && slots.size() == 1 && !is_one_hot,
                     are_ids ? std::nullopt : whole});
  arrays_.back().slots = std::move(slots);
}

// The type of the Input that an array feeds, where that is one of integers. As everywhere, arrays
// whose names are none of the model's feed its Inputs in their order.
std::optional<DType> CsvTableReader::Rows::whole_type(size_t input) const {
  const std::vector<ModelInput>& inputs = settings_.model_inputs;
  const auto find = [&](const CsvLayout::Array& array) {
    return std::find_if(inputs.begin(), inputs.end(),
                        [&](const ModelInput& each) { return each.name == array.name; });
  };
  const bool has_names =
      std::any_of(layout_.inputs.begin(), layout_.inputs.end(),
                  [&](const auto& array) { return find(array) != inputs.end(); });
  auto found = find(layout_.inputs[input]);
  if (!has_names && layout_.inputs.size() == inputs.size()) {
    found = inputs.begin() + static_cast<std::ptrdiff_t>(input);
  }
  const bool is_whole = found != inputs.end() && is_integer(found->dtype);
  return is_whole ? std::optional(found->dtype) : std::nullopt;
}

void CsvTableReader::Rows::make_arrays(std::span<const std::string_view> first_row) {
  for (size_t i = 0; i < layout_.inputs.size(); ++i) {
    add_array(layout_.inputs[i], true, false, first_row, whole_type(i));
  }
  for (const CsvLayout::Array& array : layout_.targets) {
    add_array(array, false, false, first_row);
  }
  for (const CsvLayout::Array& array : layout_.weights) {
    add_array(array, false, true, first_row);
  }
}

CsvTableReader::CsvTableReader(const CsvSettings& settings, const CsvLearned* learned)
    : rows_(std::make_unique<Rows>(settings, learned)) {}
CsvTableReader::~CsvTableReader() = default;

void CsvTableReader::read(CsvRecords& records) {
  rows_->read(records);
}
int64_t CsvTableReader::num_rows() const {
  return rows_->num_rows();
}
CsvTable CsvTableReader::finish(std::span<const int64_t> mean_rows) {
  return rows_->finish(mean_rows);
}

CsvTable parse_csv(std::string_view text, const std::string& name, const CsvSettings& settings,
                   const CsvLearned* learned) {
  CsvRecords records(name, settings.separator, [&](char* to, size_t count) {
    count = text.copy(to, count);
    text.remove_prefix(count);
    return count;
  });
  CsvTableReader reader(settings, learned);
  reader.read(records);
  std::vector<int64_t> rows(static_cast<size_t>(reader.num_rows()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return reader.finish(rows);
}

}  // namespace meshtrain
