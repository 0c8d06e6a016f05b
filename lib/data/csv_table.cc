#include "data/csv_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "data/csv_columns.h"
#include "data/csv_dates.h"
#include "data/csv_faults.h"
#include "data/csv_preprocessing.h"
#include "data/csv_values.h"

namespace meshtrain {
namespace {

// The limit of a column; each category takes about 100 bytes of memory.
constexpr size_t kMaxCategories = 100000;

bool is_one_of(const std::vector<size_t>& columns, size_t column) {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

}  // namespace

class CsvTableReader::Rows {
 public:
  Rows(const CsvSettings& settings, const CsvLearned* learned)
      : settings_(settings), learned_(learned) {
    are_numbers_missing_ = std::any_of(settings.missing_texts.begin(), settings.missing_texts.end(),
                                       [](const std::string& text) {
                                         const std::optional<double> number = parse_decimal(text);
                                         return number && !std::isnan(*number);
                                       });
    if (settings.missing_texts != CsvSettings().missing_texts) {
      faults_.not_number.help =
          "`missing_texts` lists all texts that mean missing, NA and the like too";
    }
  }

  void read(CsvRecords& records) {
    std::vector<std::string_view> fields;
    file_ = records.name();
    if (!records.next(fields)) {
      throw ConfigError("E310", {}, fmt::format("`{}` is empty", file_));
    }
    if (names_.empty()) {  // `auto`: as the training data are, and all files alike
      has_header_ = is_csv_header(fields, settings_.header);
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
                          fmt::format("`{}`: row {} (line {}) has {} fields, expected {}", file_,
                                      row, records.line(), fields.size(), num_fields_));
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
  };
  struct Array {
    const CsvLayout::Array* layout;
    CsvBlocks blocks;
    bool is_vector;
    std::vector<Slot> slots = {};  // in the order of the row
  };

  // Whether one of the fields is the name of a column that the training data use.
  bool has_known_name(std::span<const std::string_view> fields) const {
    return std::any_of(fields.begin(), fields.end(), [&](std::string_view field) {
      const std::string name(trim(field));
      return learned_->numbers.contains(name) || learned_->categories.contains(name) ||
             learned_->tables.contains(name);
    });
  }

  void take_columns(std::vector<std::string> names) {
    num_fields_ = names.size();
    add_crossed_columns(settings_.preprocessing, names, file_);
    if (names_.empty()) {
      names_ = std::move(names);
      layout_ = csv_layout(settings_, learned_, {names_, has_header_, file_});
      for (size_t i = 0; i < settings_.preprocessing.size(); ++i) {
        const auto& [fields, column] = layout_.preprocessing[i];
        preprocessed_.try_emplace(column, *settings_.preprocessing[i], fields);
      }
      first_file_ = file_;
    } else if (names != names_) {
      throw ConfigError("E310", {},
                        fmt::format("`{}` and `{}` have different columns", first_file_, file_));
    }
  }

  void make_arrays(std::span<const std::string_view> first_row);
  void add_array(const CsvLayout::Array& layout, bool is_feature, bool is_weight,
                 std::span<const std::string_view> first_row);
  std::vector<std::string> with_tokens(std::vector<std::string> texts, bool is_label) const;
  CsvCategories* categories_of(size_t column, bool is_label, std::string_view first);
  std::string name_of(const Slot& slot) const;
  HostTensor finish_array(Array& array);
  HostTensor expand(HostTensor tensor, const Array& array, std::vector<std::string>& columns) const;
  void check_vocabulary(size_t column, const std::vector<std::string>& learned) const;
  void learn_tables(std::span<const int64_t> rows, std::map<std::string, ColumnTable>& tables);

  void take_row(std::span<const std::string_view> fields, int64_t row, int64_t line) {
    row_ = row;
    line_ = line;
    for (auto& [column, each] : preprocessed_) {
      take_text(column, each, fields);
    }
    for (Array& array : arrays_) {
      array.blocks.add_row();
    }
    for (Array& array : arrays_) {
      for (const Slot& slot : array.slots) {
        if (slot.preprocessed != nullptr) {
          store_number(array.blocks, slot, 0);  // finish() writes it
        } else {
          store(array.blocks, slot, fields[slot.field]);
        }
      }
    }
  }

  void store(CsvBlocks& blocks, const Slot& slot, std::string_view field) {
    const double value = slot.categories ? category(slot, field)
                         : slot.part     ? date(slot, field)
                                         : number(slot, field);
    store_number(blocks, slot, value);
  }

  static void store_number(CsvBlocks& blocks, const Slot& slot, double value) {
    if (blocks.dtype() == DType::kFloat32) {
      blocks.at<float>(slot.position) = static_cast<float>(value);
    } else if (blocks.dtype() == DType::kFloat64) {
      blocks.at<double>(slot.position) = value;
    } else {
      blocks.at<int32_t>(slot.position) = static_cast<int32_t>(value);
    }
  }

  // A value of a preprocessed column, which must be one that its transform can take.
  void take_text(size_t column, CsvPreprocessed& to, std::span<const std::string_view> fields) {
    std::string text = to.text_of(fields);
    std::string problem = to.transform().problem(text);
    const bool is_absent = !problem.empty() && is_missing(text);
    if (is_absent && settings_.missing == CsvSettings::Missing::kValue) {
      text = format_shortest(settings_.missing_value);
      problem = to.transform().problem(text);
    }
    if (!problem.empty()) {
      fault(is_absent ? faults_.missing : faults_.not_number, {.field = column},
            is_absent ? text.empty() ? "is empty" : fmt::format("is `{}`", text) : problem);
    }
    to.add(std::move(text));
  }

  bool is_missing(std::string_view field) const {
    const std::string_view text = trim(field);
    return text.empty() || settings_.missing_texts.contains(text);
  }

  double number(const Slot& slot, std::string_view field) {
    const std::optional<double> value = parse_decimal(field);
    if (value && std::isfinite(*value) && !are_numbers_missing_) {
      return fitting(slot, field, *value);
    }
    if (is_missing(field) || (value && std::isnan(*value))) {
      return missing(slot, field);
    }
    if (!value) {
      return fault(faults_.not_number, slot,
                   fmt::format("is `{}`, which is no number", shown_text(field)));
    }
    return fitting(slot, field, *value);
  }

  double date(const Slot& slot, std::string_view field) {
    if (is_missing(field)) {
      return missing(slot, field);
    }
    const std::optional<std::tm> date = parse_date(field, settings_.date_format);
    return date ? fitting(slot, field, date_part(*date, *slot.part))
                : fault(faults_.no_date, slot,
                        fmt::format("is `{}`, which is no date", shown_text(field)));
  }

  double missing_fault(CsvFaults::Kind& kind, const Slot& slot, std::string_view field) {
    const std::string_view text = trim(field);
    return fault(slot.is_feature ? kind : faults_.missing_label, slot,
                 text.empty() ? "is empty" : fmt::format("is `{}`", text));
  }

  double missing(const Slot& slot, std::string_view field) {
    if (!slot.is_feature || settings_.missing == CsvSettings::Missing::kError) {
      return missing_fault(faults_.missing, slot, field);
    }
    return settings_.missing == CsvSettings::Missing::kMean
               ? std::nan("")
               : fitting(slot, format_shortest(settings_.missing_value), settings_.missing_value);
  }

  // `value`, which its array must be able to hold.
  double fitting(const Slot& slot, std::string_view field, double value) {
    const DType dtype = arrays_[slot.array].blocks.dtype();
    if (dtype == DType::kInt32 &&
        !(std::trunc(value) == value && value >= std::numeric_limits<int32_t>::min() &&
          value <= std::numeric_limits<int32_t>::max())) {
      return fault(faults_.not_number, slot,
                   fmt::format("is `{}`, no 32-bit integer", shown_text(field)));
    }
    const bool is_infinite = dtype == DType::kFloat32
                                 ? std::abs(value) >= 0x1.ffffffp127  // rounds to infinity
                                 : std::isinf(value);
    if (is_infinite) {
      return fault(faults_.infinite, slot,
                   fmt::format("is `{}`, no finite {}", shown_text(field), dtype_name(dtype)));
    }
    return value;
  }

  double category(const Slot& slot, std::string_view field) {
    const std::string_view text = trim(field);
    const bool is_absent =
        is_missing(text) && (slot.categories->is_open() || slot.categories->find(text) < 0);
    if (is_absent) {
      const int id = token_id(slot, settings_.mask_token);
      return id < 0 ? missing_fault(faults_.missing_text, slot, field) : id;
    }
    int id = slot.categories->id(text);
    id = id < 0 ? token_id(slot, settings_.oov_token) : id;
    if (id < 0) {
      const std::vector<std::string>& texts = slot.categories->texts();
      std::vector<std::string> some(texts.begin(),
                                    texts.begin() + std::min<size_t>(8, texts.size()));
      return fault(
          slot.is_feature ? faults_.unknown : faults_.unknown_label, slot,
          fmt::format("is `{}`, which is not among the {} known: `{}`{}", shown_text(text),
                      texts.size(), join(some, "`, `"), texts.size() > some.size() ? ", ..." : ""));
    }
    if (slot.categories->texts().size() > kMaxCategories) {
      throw ConfigError(
          "E310", {},
          fmt::format("`{}`: column `{}` has more than {} different values; it is no "
                      "category",
                      file_, shown_text(names_[slot.field]), format_thousands(kMaxCategories)));
    }
    return id;
  }

  // The id of a token of features; -1 for a column without it.
  static int token_id(const Slot& slot, const std::string& token) {
    return token.empty() || !slot.is_feature ? -1 : slot.categories->find(token);
  }

  double fault(CsvFaults::Kind& kind, const Slot& slot, const std::string& what) {
    if (kind.count++ == 0) {
      kind.first = fmt::format("`{}`: row {} (line {}) column `{}` {}", file_, row_, line_,
                               shown_text(names_[slot.field]), what);
    }
    return 0;
  }

  void take_means(HostTensor& tensor, const Array& array, std::span<const int64_t> rows,
                  std::map<std::string, double>& means) const;
  void fill_missing(HostTensor& tensor, int64_t position, int64_t width, const std::string& name,
                    std::optional<double> mean) const;

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
  CsvFaults faults_;
};

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
  const bool is_text =
      is_label && !is_one_of(layout_.dates, column) && !is_missing(first) && !parse_decimal(first);
  return is_named || is_text ? add(with_tokens({}, is_label), true) : nullptr;
}

std::string CsvTableReader::Rows::name_of(const Slot& slot) const {
  const std::string& column = layout_.known_as[slot.field];
  return slot.part ? fmt::format("{}.{}", column, word_of(*slot.part)) : column;
}

void CsvTableReader::Rows::add_array(const CsvLayout::Array& layout, bool is_feature,
                                     bool is_weight, std::span<const std::string_view> first_row) {
  bool are_ids = true, is_one_hot = false;
  std::vector<Slot> slots;
  const auto add = [&](Slot slot) {
    slot.array = arrays_.size();
    slot.position = slots.size();
    slot.is_feature = is_feature;
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
  const DType dtype = are_ids ? DType::kInt32 : is_weight ? DType::kFloat32 : settings_.dtype;
  MESHTRAIN_CHECK(!slots.empty());
  arrays_.push_back({&layout, CsvBlocks(dtype, slots.size()),
                     layout.is_vector && slots.size() == 1 && !is_one_hot});
  arrays_.back().slots = std::move(slots);
}

void CsvTableReader::Rows::make_arrays(std::span<const std::string_view> first_row) {
  for (const CsvLayout::Array& array : layout_.inputs) {
    add_array(array, true, false, first_row);
  }
  for (const CsvLayout::Array& array : layout_.targets) {
    add_array(array, false, false, first_row);
  }
  for (const CsvLayout::Array& array : layout_.weights) {
    add_array(array, false, true, first_row);
  }
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
      for (int64_t i = 0; i < writers.back().width; ++i) {
        columns.push_back(writers.back().width == 1 ? name : fmt::format("{}.{}", name, i));
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

// The tables of preprocessed columns: those of the training data, or learned from these rows.
void CsvTableReader::Rows::learn_tables(std::span<const int64_t> rows,
                                        std::map<std::string, ColumnTable>& tables) {
  for (auto& [column, each] : preprocessed_) {
    const std::string& name = layout_.known_as[column];
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
  table.learned.has_header = has_header_;
  table.learned.columns = layout_.written;
  learn_tables(mean_rows, table.learned.tables);
  for (auto& [column, categories] : categories_) {
    if (categories.is_open()) {
      new_ids_[&categories] = categories.sort(with_tokens({}, is_label_.at(column)).size());
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
    if (i < num_inputs) {
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
