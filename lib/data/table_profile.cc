#include "data/table_profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/text.h"
#include "base/utf8.h"
#include "data/characters.h"
#include "data/csv_columns.h"
#include "data/csv_dates.h"
#include "data/csv_table.h"
#include "data/gunzip.h"
#include "data/source_files.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMostFrequent = 5;
constexpr size_t kShownRows = 2;
constexpr size_t kBeginning = 200;

TextCounts most_frequent(const std::unordered_map<std::string, int64_t>& counts, size_t most) {
  TextCounts sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  sorted.resize(std::min(sorted.size(), most));
  return sorted;
}

// One column, field by field.
class Column {
 public:
  void add(std::string_view field, const std::set<std::string, std::less<>>& missing_texts,
           char decimal) {
    const std::string_view text = trim(field);
    const std::optional<double> number = parse_decimal(text, decimal);
    if (text.empty() || missing_texts.contains(text) || (number && std::isnan(*number))) {
      ++missing_;
      return;
    }
    ++count_;
    if (number && std::isfinite(*number)) {
      ++numbers_;
      integers_ += *number == std::floor(*number) ? 1 : 0;
      min_ = std::min(min_, *number);
      max_ = std::max(max_, *number);
      sum_ += *number;
    } else if (numbers_ == 0 && dates_ + 1 == count_ && parse_date(text, "")) {
      ++dates_;
      are_ascending_ = are_ascending_ && last_date_ <= text;
      first_date_ = dates_ == 1 ? std::string(text) : std::min(first_date_, std::string(text));
      last_date_ = std::max(last_date_, std::string(text));
    }
    const auto found = counts_.find(std::string(text));
    if (found != counts_.end()) {
      ++found->second;
    } else if (counts_.size() < static_cast<size_t>(kMaxDistinct)) {
      counts_.emplace(text, 1);
    }
  }

  ColumnProfile profile(std::string name) const {
    using Type = ColumnProfile::Type;
    ColumnProfile out;
    out.name = std::move(name);
    out.missing = missing_;
    out.distinct = static_cast<int64_t>(counts_.size());
    out.frequent = most_frequent(counts_, kMostFrequent);
    out.type = count_ == 0           ? Type::kEmpty
               : integers_ == count_ ? Type::kInteger
               : numbers_ == count_  ? Type::kNumber
               : dates_ == count_    ? Type::kDate
                                     : Type::kText;
    if (out.type == Type::kInteger || out.type == Type::kNumber) {
      out.min = min_;
      out.max = max_;
      out.mean = sum_ / static_cast<double>(count_);
    } else if (out.type == Type::kDate) {
      out.first_date = first_date_;
      out.last_date = last_date_;
      out.is_ascending = are_ascending_ && first_date_ < last_date_;
    }
    return out;
  }

 private:
  int64_t missing_ = 0, count_ = 0, numbers_ = 0, integers_ = 0, dates_ = 0;
  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  double sum_ = 0;
  std::string first_date_, last_date_;
  bool are_ascending_ = true;
  std::unordered_map<std::string, int64_t> counts_;
};

CsvRecords records_of(std::string name, char separator, std::string_view text) {
  return {std::move(name), separator, [text](char* to, size_t count) mutable {
            count = text.copy(to, count);
            text.remove_prefix(count);
            return count;
          }};
}

// The number of fields of each of the first records, where it is always the same; else 0.
size_t count_fields(std::string_view text, char separator) {
  constexpr int kRecords = 20;
  size_t fields_each = 0;
  try {
    CsvRecords records = records_of("", separator, text);
    std::vector<std::string_view> fields;
    for (int i = 0; i < kRecords && records.next(fields); ++i) {
      fields_each = i == 0 ? fields.size() : fields_each;
      if (fields.size() != fields_each) {
        return 0;
      }
    }
  } catch (const ConfigError&) {
    return 0;
  }
  return fields_each;
}

// A comma where numbers have a decimal comma and none a point. "26,519" beside "531" in a column
// has a comma of thousands; "1.125" beside "77,5" in a table has a point of thousands.
char guess_decimal(std::string_view text, char separator) {
  struct Seen {
    bool has_thousands = false, has_whole = false, has_decimals = false;
  };
  std::vector<Seen> columns;
  bool has_points = false;
  if (separator == ',') {
    return '.';
  }
  try {
    CsvRecords records = records_of("", separator, text);
    std::vector<std::string_view> fields;
    for (int i = 0; i < 1000 && records.next(fields); ++i) {
      columns.resize(std::max(columns.size(), fields.size()));
      for (size_t c = 0; c < fields.size(); ++c) {
        const std::string_view field = trim(fields[c]);
        const bool has_thousands = is_with_thousands(field, ',');
        columns[c].has_thousands = columns[c].has_thousands || has_thousands;
        columns[c].has_decimals =
            columns[c].has_decimals || (is_comma_decimal(field) && !has_thousands);
        columns[c].has_whole =
            columns[c].has_whole ||
            (!field.empty() && field.find_first_not_of("0123456789") == std::string_view::npos);
        has_points = has_points || (field.find('.') != std::string_view::npos &&
                                    parse_decimal(field) && !is_with_thousands(field, '.'));
      }
    }
  } catch (const ConfigError&) {
    // the beginning ends within a record
  }
  const bool has_commas = std::any_of(columns.begin(), columns.end(), [](const Seen& column) {
    return column.has_decimals || (column.has_thousands && !column.has_whole);
  });
  return has_commas && !has_points ? ',' : '.';
}

}  // namespace

std::string_view type_name(ColumnProfile::Type type) {
  constexpr std::string_view kNames[] = {"integer", "number", "date", "text", "empty"};
  return kNames[static_cast<size_t>(type)];
}

std::optional<char> guess_separator(std::string_view beginning) {
  if (const size_t end = beginning.rfind('\n'); end != std::string_view::npos) {
    beginning = beginning.substr(0, end + 1);  // whole lines
  }
  std::optional<char> best;
  size_t most = 1;
  for (const char separator : {',', ';', '\t', '|'}) {
    const size_t fields = count_fields(beginning, separator);
    if (fields > most) {
      most = fields;
      best = separator;
    }
  }
  return best;
}

namespace {

// What the rows below a first row say of one of its fields.
struct HeaderColumn {
  std::string first;
  std::optional<double> number;  // the field itself
  bool comes_again = false;      // as it is written
  bool has_numbers_only = true, has_fractions_only = true;

  void add(std::string_view field) {
    const std::optional<double> below = parse_decimal(field);
    comes_again = comes_again || field == first;
    has_numbers_only = has_numbers_only && below;
    has_fractions_only = has_fractions_only && below && std::trunc(*below) != *below;
  }
  bool is_word() const {
    const auto letters = std::count_if(first.begin(), first.end(), [](unsigned char c) {
      return std::isalpha(c) != 0 || c >= 128;
    });
    return letters >= 2 && !CsvSettings().missing_texts.contains(first);
  }
};

// Whether numbers are names of columns: each is the one before and one more.
bool count_on(const std::vector<HeaderColumn>& columns) {
  std::optional<double> before;
  size_t count = 0;
  for (const HeaderColumn& column : columns) {
    if (column.number) {
      if (before && *column.number != *before + 1) {
        return false;
      }
      before = column.number;
      ++count;
    }
  }
  return count >= 2;
}

bool is_header(const std::vector<HeaderColumn>& columns) {
  const auto any = [&](const auto& is) { return std::any_of(columns.begin(), columns.end(), is); };
  const bool has_texts = any([](const HeaderColumn& c) { return !c.number; });
  const bool has_numbers = any([](const HeaderColumn& c) { return c.number.has_value(); });
  if (any([](const HeaderColumn& c) { return !c.number && c.comes_again; })) {
    return false;
  }
  if (has_texts) {  // "0,1,2,label", and a word over numbers: "region,pop,2020"
    return count_on(columns) || (has_numbers && any([](const HeaderColumn& c) {
                                   return !c.number && c.is_word() && c.has_numbers_only;
                                 }));
  }
  // "0,1,2", as pandas numbers columns: five of them are no sample, nor is one over fractions.
  constexpr size_t kNoSample = 5;
  return count_on(columns) && ((columns.size() >= kNoSample && columns[0].number == 0) ||
                               any([](const HeaderColumn& c) { return c.has_fractions_only; }));
}

}  // namespace

bool has_numbers_in_header(std::string_view beginning, char separator) {
  std::vector<HeaderColumn> columns;
  int64_t rows = 0;
  try {
    CsvRecords records = records_of("", separator, beginning);
    std::vector<std::string_view> fields;
    records.next(fields);
    for (const std::string_view field : fields) {
      columns.push_back({std::string(trim(field)), parse_decimal(field)});
    }
    for (; records.next(fields); ++rows) {
      for (size_t i = 0; i < std::min(columns.size(), fields.size()); ++i) {
        columns[i].add(trim(fields[i]));
      }
    }
  } catch (const ConfigError&) {
    // the beginning ends within a record; who reads the file says what else is wrong
  }
  return rows > 2 && is_header(columns);
}

TableProfile profile_table(const std::vector<std::string>& paths, const TableSyntax& format) {
  TableProfile out;
  std::set<std::string, std::less<>> missing = CsvSettings().missing_texts;
  if (format.missing_texts) {
    missing = {format.missing_texts->begin(), format.missing_texts->end()};
  }
  std::vector<Column> columns;
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    const InputFile file = open_input(path, "E300", "E300");
    const std::string beginning = unpacked_beginning(file, size_t{1} << 16, "E310");
    out.separator =
        format.separator != 0 ? format.separator : guess_separator(beginning).value_or(',');
    out.decimal = format.decimal != 0 ? format.decimal : guess_decimal(beginning, out.separator);
    GunzipBytes bytes(file, "E310");
    CsvRecords records(path, out.separator, [&](char* to, size_t count) {
      return bytes.read(reinterpret_cast<std::byte*>(to), count);
    });
    std::vector<std::string_view> fields;
    bool more = records.next(fields);
    out.has_header = more && (is_csv_header(fields, format.header, out.decimal) ||
                              (format.header == CsvHeaderMode::kAuto &&
                               has_numbers_in_header(beginning, out.separator)));
    names = csv_column_names(fields, out.has_header, path);
    columns.resize(std::max(columns.size(), names.size()));
    for (more = out.has_header ? records.next(fields) : more; more; more = records.next(fields)) {
      if (fields.size() != columns.size()) {
        throw ConfigError("E310", {},
                          fmt::format("`{}`: line {} has {} fields, expected {}", path,
                                      records.line(), fields.size(), columns.size()))
            .help("a field that holds the separator needs quotes");
      }
      ++out.rows;
      for (size_t i = 0; i < fields.size(); ++i) {
        columns[i].add(fields[i], missing, out.decimal);
      }
      if (out.first_rows.size() < kShownRows) {
        out.first_rows.emplace_back(fields.begin(), fields.end());
      }
    }
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    out.columns.push_back(columns[i].profile(names[i]));
  }
  return out;
}

TextProfile profile_text(const std::string& path) {
  const TextInput text = text_in_file(path);
  TextProfile out;
  const TextContent content = read_content({text});  // E318
  out.characters = content.size;
  out.distinct = static_cast<int64_t>(content.vocabulary.size());
  std::unordered_map<std::string, int64_t> counts;
  std::string buffer(size_t{1} << 20, '\0'), rest;
  uint64_t offset = 0;
  while (const size_t count = text.read(offset, buffer.data(), buffer.size())) {
    offset += count;
    rest.append(buffer, 0, count);
    size_t at = 0;
    for (size_t length; at < rest.size() && (length = utf8_length(rest, at)) > 0; at += length) {
      const std::string character = rest.substr(at, length);
      ++counts[character];
      out.lines += character == "\n" ? 1 : 0;
      if (out.beginning.size() < kBeginning) {
        out.beginning += character;
      }
    }
    rest.erase(0, at);
  }
  out.frequent = most_frequent(counts, counts.size());
  return out;
}

}  // namespace meshtrain
