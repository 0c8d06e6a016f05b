#include "data/csv_text.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/diagnostic.h"
#include "base/text.h"
#include "base/utf8.h"

namespace meshtrain {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kMaxFields = size_t{1} << 20;

// "-12.5": up to 15 digits and no exponent. Digits and power of ten are exact doubles then, so that
// their quotient is rounded once, as it must be (Clinger, "How to Read Floating Point Numbers
// Accurately", PLDI 1990). Nothing for other texts.
std::optional<double> parse_short_decimal(const char* at, const char* end) {
  constexpr double kPowers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
  const bool is_negative = at != end && *at == '-';
  at += is_negative ? 1 : 0;
  if (end - at > 16) {
    return std::nullopt;
  }
  int64_t digits = 0;
  int count = 0;
  const char* point = nullptr;
  for (; at != end; ++at) {
    const auto digit = static_cast<unsigned>(*at - '0');
    if (digit <= 9) {
      digits = 10 * digits + digit;
      ++count;
    } else if (*at == '.' && point == nullptr) {
      point = at;
    } else {
      return std::nullopt;
    }
  }
  if (count == 0 || count > 15) {
    return std::nullopt;
  }
  const double value =
      static_cast<double>(digits) / kPowers[point == nullptr ? 0 : end - point - 1];
  return is_negative ? -value : value;
}

}  // namespace

CsvRecords::CsvRecords(std::string name, char separator, Read read)
    : name_(std::move(name)),
      separator_(separator),
      read_(std::move(read)),
      buffer_(kBufferBytes + 1) {
  for (const char c : {separator, '\n', '\r', '"', '\0'}) {
    is_special_[static_cast<unsigned char>(c)] = true;
  }
  refill();
  skip_byte_order_mark();
}

void CsvRecords::fail(const char* at, const std::string& what) const {
  const int64_t line = next_line_ + std::count(buffer_.data() + begin_, at, '\n');
  throw ConfigError("E310", {}, fmt::format("`{}`: line {} {}", name_, line, what));
}

void CsvRecords::skip_byte_order_mark() {
  const std::string_view text(buffer_.data(), size_);
  if (text.starts_with(kByteOrderMark)) {
    begin_ = kByteOrderMark.size();
  } else if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    fail(buffer_.data(), "begins a text in UTF-16; save it as UTF-8");
  }
}

// Moves what is left to the front and reads on.
void CsvRecords::refill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, size_ - begin_);
  size_ -= begin_;
  begin_ = 0;
  if (size_ > kMaxCsvRecord) {
    fail(buffer_.data(), fmt::format("is longer than {}; is a quote or a line end missing?",
                                     format_bytes(static_cast<int64_t>(kMaxCsvRecord))));
  }
  if (size_ + kBufferBytes / 2 > buffer_.size()) {
    buffer_.resize(2 * buffer_.size());
  }
  while (size_ + 1 < buffer_.size() && !at_end_) {
    const size_t count = read_(buffer_.data() + size_, buffer_.size() - 1 - size_);
    at_end_ = count == 0;
    size_ += count;
  }
  buffer_[size_] = '\0';
}

char* CsvRecords::quoted(char* from, std::string_view& field, bool& has_doubled) {
  char* const end = buffer_.data() + size_;
  for (char* at = from + 1;; at += 2) {
    at = static_cast<char*>(std::memchr(at, '"', static_cast<size_t>(end - at)));
    if (at == nullptr && at_end_) {
      fail(from, "opens a quote that is not closed");
    }
    if (at == nullptr || (at + 1 == end && !at_end_)) {
      return nullptr;
    }
    if (at[1] != '"') {
      field = {from + 1, static_cast<size_t>(at - from - 1)};
      if (field.find('\0') != std::string_view::npos) {
        fail(from, "holds a NUL byte; is this a text file?");
      }
      return at + 1;
    }
    has_doubled = true;
  }
}

char* CsvRecords::plain(char* from) const {
  while (!is_special_[static_cast<unsigned char>(*from)]) {
    ++from;
  }
  return from;
}

CsvRecords::Found CsvRecords::split(std::vector<std::string_view>& fields) {
  char* at = buffer_.data() + begin_;
  char* const end = buffer_.data() + size_;
  fields.clear();
  doubled_.clear();
  if (at == end) {
    return at_end_ ? Found::kEnd : Found::kMore;
  }
  for (;;) {
    std::string_view field;
    if (*at == '"') {
      bool has_doubled = false;
      at = quoted(at, field, has_doubled);
      if (at == nullptr) {
        return Found::kMore;
      }
      if (has_doubled) {
        doubled_.push_back(fields.size());
      }
    } else {
      char* const from = at;
      at = plain(from);
      field = {from, static_cast<size_t>(at - from)};
    }
    fields.push_back(field);
    if (at == end || (*at == '\r' && at + 1 == end)) {
      if (!at_end_) {
        return Found::kMore;
      }
      finish_record(fields, end);
      return Found::kRecord;
    }
    if (*at == '\n' || (*at == '\r' && at[1] == '\n')) {
      finish_record(fields, at + (*at == '\n' ? 1 : 2));
      return Found::kRecord;
    }
    if (*at != separator_) {
      fail(at, *at == '\0'   ? "holds a NUL byte; is this a text file?"
               : *at == '\r' ? "holds a carriage return without a line feed"
               : at[-1] == '"'
                   ? "continues behind a closing quote; a quote within a text is doubled"
                   : "has a quote within a field; quotes enclose a whole field");
    }
    if (fields.size() == kMaxFields) {
      fail(at, fmt::format("has more than {} fields", kMaxFields));
    }
    ++at;
  }
}

void CsvRecords::finish_record(std::vector<std::string_view>& fields, const char* end) {
  const char* const begin = buffer_.data() + begin_;
  line_ = next_line_;
  next_line_ += std::count(begin, end, '\n');
  for (const size_t index : doubled_) {
    std::string_view& field = fields[index];
    char* const text = buffer_.data() + (field.data() - buffer_.data());
    size_t size = 0;
    for (size_t i = 0; i < field.size(); ++i) {
      text[size++] = field[i];
      i += field[i] == '"' ? 1 : 0;
    }
    field = field.substr(0, size);
  }
  begin_ = static_cast<size_t>(end - buffer_.data());
}

bool CsvRecords::next(std::vector<std::string_view>& fields) {
  for (int64_t empty_line = 0;;) {
    const Found found = split(fields);
    if (found == Found::kMore) {
      refill();
      continue;
    }
    if (found == Found::kEnd) {
      return false;
    }
    // A line with nothing at all on it: its field begins where the record ends.
    const bool is_empty = fields.size() == 1 && fields[0].empty() && fields[0].data()[0] != '"';
    if (is_empty && empty_line == 0) {
      empty_line = line_;
    } else if (!is_empty && empty_line != 0) {
      throw ConfigError(
          "E310", {},
          fmt::format("`{}`: line {} is empty, and more lines follow", name_, empty_line));
    }
    if (!is_empty) {
      return true;
    }
  }
}

bool is_with_thousands(std::string_view text, char mark) {
  text.remove_prefix(!text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0);
  size_t at = text.find(mark);
  if (at == std::string_view::npos || at == 0 || at > 3 || text[0] == '0') {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_mark = i >= at && (i - at) % 4 == 0;
    if (is_mark ? text[i] != mark : text[i] < '0' || text[i] > '9') {
      return false;
    }
  }
  return (text.size() - at) % 4 == 0;
}

bool is_comma_decimal(std::string_view text) {
  return text.find(',') != std::string_view::npos && parse_decimal(text, ',');
}

std::optional<double> parse_decimal(std::string_view text, char decimal) {
  if (decimal == '.' || text.find_first_of(".,") == std::string_view::npos) {
    return parse_decimal(text);
  }
  text = trim(text);
  const size_t comma = text.find(',');
  const std::string_view whole = text.substr(0, comma);
  std::string number(whole);
  if (whole.find('.') != std::string_view::npos) {
    if (!is_with_thousands(whole, '.')) {
      return std::nullopt;
    }
    std::erase(number, '.');
  }
  if (comma != std::string_view::npos) {
    const std::string_view fraction = text.substr(comma + 1);
    if (fraction.empty() || fraction.find_first_of(".,") != std::string_view::npos) {
      return std::nullopt;
    }
    number.append(".").append(fraction);
  }
  return parse_decimal(number);
}

std::optional<double> parse_decimal(std::string_view text) {
  if (const auto value = parse_short_decimal(text.data(), text.data() + text.size())) {
    return value;
  }
  text = trim(text);
  const bool has_plus = text.starts_with('+');
  const char* const begin = text.data() + (has_plus ? 1 : 0);
  const char* const end = text.data() + text.size();
  if (begin == end || (has_plus && *begin == '-') || end[-1] == ')') {  // C's nan(...)
    return std::nullopt;
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc::invalid_argument || stop != end) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {  // infinity, zero, or almost: as C's function says
    value = std::strtod(std::string(begin, end).c_str(), nullptr);
  }
  return value;
}

}  // namespace meshtrain
