// The text of CSV files: records, their fields, numbers.
//
// Format: RFC 4180, with any separator, lines that end with LF or CRLF, and a byte order mark at
// the beginning. A field in quotes may hold separators, line ends, and "" for a quote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

// A record may not be longer, so that a file without line ends does not take all memory.
constexpr size_t kMaxCsvRecord = size_t{8} << 20;

// The records of a text that is read a block at a time.
class CsvRecords {
 public:
  // Puts up to `count` bytes at `to`; returns how many, 0 at the end of the text.
  using Read = std::function<size_t(char* to, size_t count)>;

  // `name` stands for the text in messages.
  CsvRecords(std::string name, char separator, Read read);

  // The fields of the next record, valid until the next call; false at the end. Throws ConfigError
  // E310 with the line for what is no CSV.
  bool next(std::vector<std::string_view>& fields);
  // The line, from 1, on which the last record began.
  int64_t line() const { return line_; }
  const std::string& name() const { return name_; }

 private:
  enum class Found { kRecord, kEnd, kMore };

  Found split(std::vector<std::string_view>& fields);
  // The field whose quote stands at `from`, as written; returns its end, null when more text is
  // needed.
  char* quoted(char* from, std::string_view& field, bool& has_doubled);
  // Finds the end of a field without quotes.
  char* plain(char* from) const;
  void finish_record(std::vector<std::string_view>& fields, const char* end);
  void refill();
  void skip_byte_order_mark();
  [[noreturn]] void fail(const char* at, const std::string& what) const;

  std::string name_;
  char separator_;
  Read read_;
  std::vector<char> buffer_;  // ends with a NUL at buffer_[size_]
  size_t begin_ = 0, size_ = 0;
  bool at_end_ = false;
  bool is_special_[256] = {};    // bytes that may end a field
  std::vector<size_t> doubled_;  // fields of the record in which quotes are doubled
  int64_t line_ = 0, next_line_ = 1;
};

// Whether a text is a whole number with marks of thousands: "1,234", "-12,345,678".
bool is_with_thousands(std::string_view text, char mark);

// Whether a text is a number with a decimal comma: "-12,5", "1,5e3".
bool is_comma_decimal(std::string_view text);

// The number that Python's float() reads from `text` (without its underscores), to the last bit.
std::optional<double> parse_decimal(std::string_view text);
// The same of numbers whose fraction stands behind `decimal`. Where that is a comma, points are
// those of thousands: "1.234,5" is a number, "1.5" is none.
std::optional<double> parse_decimal(std::string_view text, char decimal);

}  // namespace meshtrain
