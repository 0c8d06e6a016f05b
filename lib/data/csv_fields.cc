// A field of a row as a number, and what is wrong with it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "data/csv_rows.h"

namespace meshtrain {
namespace {

// The limit of a column; each category takes about 100 bytes of memory.
constexpr size_t kMaxCategories = 100000;

// What an Input of this type takes of a table, whose numbers are doubles: these hold every whole
// number below 2^53.
std::pair<double, double> whole_numbers(DType dtype) {
  constexpr double kExact = 0x1p53 - 1;
  switch (dtype) {
    case DType::kUInt8:
      return {0, std::numeric_limits<uint8_t>::max()};
    case DType::kInt32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {-kExact, kExact};
  }
}

}  // namespace

void CsvTableReader::Rows::store(CsvBlocks& blocks, Slot& slot, std::string_view field) {
  const int64_t faults = slot.takes_previous ? faults_.missing.count : 0;
  const double value = slot.categories ? category(slot, field)
                       : slot.part     ? date(slot, field)
                                       : number(slot, field);
  if (slot.takes_previous && faults_.missing.count == faults) {
    slot.previous[group_] = value;
  }
  store_number(blocks, slot, value);
}

// The group of this row.
void CsvTableReader::Rows::take_group(std::string_view field) {
  const std::string_view text = trim(field);
  if (is_missing(text)) {
    fault(faults_.missing_group, {.field = *layout_.group},
          text.empty() ? "is empty" : fmt::format("is `{}`", text));
  }
  group_ = group_texts_.id(text);
  groups_.push_back(group_);
}

void CsvTableReader::Rows::store_number(CsvBlocks& blocks, const Slot& slot, double value) {
  if (blocks.dtype() == DType::kFloat32) {
    blocks.at<float>(slot.position) = static_cast<float>(value);
  } else if (blocks.dtype() == DType::kFloat64) {
    blocks.at<double>(slot.position) = value;
  } else {
    blocks.at<int32_t>(slot.position) = static_cast<int32_t>(value);
  }
}

void CsvTableReader::Rows::take_text(size_t column, CsvPreprocessed& to,
                                     std::span<const std::string_view> fields) {
  const ColumnTransform& transform = to.transform();
  std::string text = to.text_of(fields);
  if (settings_.decimal != '.' && transform.takes_numbers()) {
    const std::optional<double> number = parse_decimal(text, settings_.decimal);
    text = number ? format_shortest(*number) : text;
  }
  std::string problem = transform.problem(text);
  const bool is_token = !transform.takes_missing(text);
  bool is_absent = is_missing(text) && (is_token || !problem.empty());
  if (is_absent &&
      (transform.missing_text() || settings_.missing == CsvSettings::Missing::kValue)) {
    text = transform.missing_text().value_or(format_shortest(settings_.missing_value));
    problem = transform.problem(text);
    is_absent = false;
  }
  const bool takes_previous = settings_.missing == CsvSettings::Missing::kPrevious;
  if (const auto last = previous_texts_.find({column, group_});
      is_absent && takes_previous && last != previous_texts_.end()) {
    text = last->second;
    problem.clear();
    is_absent = false;
  }
  if (is_absent || !problem.empty()) {
    CsvFaults::Kind& kind = transform.reads_files() ? faults_.no_file
                            : !is_absent            ? faults_.not_number
                            : is_token              ? faults_.missing_token
                                                    : faults_.missing;
    fault(kind, {.field = column},
          !is_absent || transform.reads_files() ? problem
          : text.empty()                        ? "is empty"
                                                : fmt::format("is `{}`", text));
  } else if (takes_previous) {
    previous_texts_[{column, group_}] = text;
  }
  to.add(std::move(text));
}

bool CsvTableReader::Rows::is_missing(std::string_view field) const {
  const std::string_view text = trim(field);
  return text.empty() || settings_.missing_texts.contains(text);
}

double CsvTableReader::Rows::number(const Slot& slot, std::string_view field) {
  const std::optional<double> value = parse_decimal(field, settings_.decimal);
  if (value && std::isfinite(*value) && !are_numbers_missing_) {
    return fitting(slot, field, *value);
  }
  if (is_missing(field) || (value && std::isnan(*value))) {
    return missing(slot, field);
  }
  if (!value) {
    return fault(
        faults_.not_number, slot,
        fmt::format("is `{}`, which is no number{}", shown_text(field),
                    settings_.decimal == ',' && parse_decimal(field) ? " with a decimal comma"
                    : is_comma_decimal(field)                        ? "; `decimal: \",\"` reads it"
                                                                     : ""));
  }
  return fitting(slot, field, *value);
}

double CsvTableReader::Rows::date(const Slot& slot, std::string_view field) {
  if (is_missing(field)) {
    return missing(slot, field);
  }
  const std::optional<std::tm> date = parse_date(field, settings_.date_format);
  return date ? fitting(slot, field, date_part(*date, *slot.part))
              : fault(faults_.no_date, slot,
                      fmt::format("is `{}`, which is no date", shown_text(field)));
}

double CsvTableReader::Rows::missing_fault(CsvFaults::Kind& kind, const Slot& slot,
                                           std::string_view field) {
  const std::string_view text = trim(field);
  return fault(slot.is_feature ? kind : faults_.missing_label, slot,
               text.empty() ? "is empty" : fmt::format("is `{}`", text));
}

double CsvTableReader::Rows::previous(const Slot& slot, std::string_view field) {
  const auto last = slot.previous.find(group_);
  if (last != slot.previous.end()) {
    return last->second;
  }
  const std::string_view text = trim(field);
  return fault(faults_.missing, slot,
               fmt::format("{}, and no row before it has a value",
                           text.empty() ? "is empty" : fmt::format("is `{}`", text)));
}

double CsvTableReader::Rows::missing(const Slot& slot, std::string_view field) {
  if (slot.takes_previous) {
    return previous(slot, field);
  }
  if (!slot.is_feature || settings_.missing == CsvSettings::Missing::kError) {
    return missing_fault(faults_.missing, slot, field);
  }
  return settings_.missing == CsvSettings::Missing::kMean
             ? std::nan("")
             : fitting(slot, format_shortest(settings_.missing_value), settings_.missing_value);
}

double CsvTableReader::Rows::fitting(const Slot& slot, std::string_view field, double value) {
  const DType dtype = arrays_[slot.array].blocks.dtype();
  if (const auto whole = arrays_[slot.array].whole; whole) {
    const auto [least, most] = whole_numbers(*whole);
    if (!(std::trunc(value) == value && value >= least && value <= most)) {
      return fault(
          faults_.not_whole, slot,
          fmt::format("is `{}`, and its Input takes {}: whole numbers from {:.0f} to {:.0f}",
                      shown_text(field), dtype_name(*whole), least, most));
    }
  }
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

// The id of the same whole number: pandas writes 1 as 1.0 where a column misses values. To learned
// categories also numbers with more zeros at their end, 1.50, are known. A code such as 01244 is
// another one than 1244.
int CsvTableReader::Rows::same_number(const CsvCategories& categories,
                                      std::string_view text) const {
  const std::optional<double> number = parse_decimal(text, settings_.decimal);
  if (!number) {
    return -1;
  }
  std::string digits = format_shortest(*number);
  std::replace(digits.begin(), digits.end(), '.', settings_.decimal);
  const bool has_fraction = digits.find(settings_.decimal) != std::string::npos;
  const std::string longer = digits + (has_fraction ? "" : settings_.decimal + std::string("0"));
  const bool adds_zeros =
      text.starts_with(has_fraction ? digits : longer) &&
      text.find_first_not_of('0', digits.size() + (has_fraction ? 0 : 1)) == std::string_view::npos;
  if (categories.is_open() ? text != digits && text != longer : text != digits && !adds_zeros) {
    return -1;
  }
  const int id = categories.find(digits);
  return id >= 0 ? id : categories.find(longer);
}

double CsvTableReader::Rows::category(const Slot& slot, std::string_view field) {
  const std::string_view text = trim(field);
  const bool is_absent =
      is_missing(text) && (slot.categories->is_open() || slot.categories->find(text) < 0);
  if (is_absent) {
    const int id = token_id(slot, settings_.mask_token);
    return id >= 0               ? id
           : slot.takes_previous ? previous(slot, field)
                                 : missing_fault(faults_.missing_text, slot, field);
  }
  int id = slot.categories->find(text);
  id = id < 0 ? same_number(*slot.categories, text) : id;
  id = id < 0 ? slot.categories->id(text) : id;
  id = id < 0 ? token_id(slot, settings_.oov_token) : id;
  if (id < 0) {
    const std::vector<std::string>& texts = slot.categories->texts();
    std::vector<std::string> some(texts.begin(), texts.begin() + std::min<size_t>(8, texts.size()));
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

int CsvTableReader::Rows::token_id(const Slot& slot, const std::string& token) {
  return token.empty() || !slot.is_feature ? -1 : slot.categories->find(token);
}

double CsvTableReader::Rows::fault(CsvFaults::Kind& kind, const Slot& slot,
                                   const std::string& what) {
  if (kind.count > 0 && kind.last == std::pair(slot.field, line_) && kind.file == file_) {
    return 0;  // another number of the same field
  }
  kind.last = {slot.field, line_};
  kind.file = file_;
  if (kind.count++ == 0) {
    kind.first = fmt::format("`{}`: row {} (line {}) column `{}` {}", file_, row_, line_,
                             shown_text(names_[slot.field]), what);
  }
  return 0;
}

}  // namespace meshtrain
