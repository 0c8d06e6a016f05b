#include "tensor/npy_header.h"

#include <charconv>

#include "base/printable.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxNpyRank = 32;  // NumPy's own limit until version 2

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool seen[3] = {};
    expect('{');
    while (!take('}')) {
      const std::string key = string_literal();
      expect(':');
      const int field = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : -1;
      if (field < 0) {
        fail("unknown key `" + printable(key) + "`");
      }
      if (seen[field]) {
        fail("key `" + key + "` twice");
      }
      seen[field] = true;
      if (field == 0) {
        parse_descr(header);
      } else if (field == 1) {
        header.fortran_order = boolean();
      } else {
        header.shape = shape();
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    for (int i = 0; i < 3; ++i) {
      if (!seen[i]) {
        constexpr const char* kKeys[] = {"descr", "fortran_order", "shape"};
        fail(std::string("no key `") + kKeys[i] + "`");
      }
    }
    skip_space();
    if (pos_ != text_.size()) {
      fail("text after the dict");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    read_error("E302", name_, "the header is damaged at its byte {}: {}", pos_, what);
  }

  void skip_space() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\n')) {
      ++pos_;
    }
  }
  char peek() {
    skip_space();
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) {
      return false;
    }
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) {
      fail(std::string("expected `") + c + "`");
    }
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(pos_, word.size()) != word) {
      return false;
    }
    pos_ += word.size();
    return true;
  }

  std::string string_literal() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') {
      fail("expected a text in quotes");
    }
    const size_t begin = pos_ + 1;
    const size_t end = text_.find(quote, begin);
    const std::string_view body =
        end == std::string_view::npos ? "\\" : text_.substr(begin, end - begin);
    if (body.find_first_of("\\\n") != std::string_view::npos) {
      fail("a text without its end");
    }
    pos_ = end + 1;
    return std::string(body);
  }

  // A list of fields is not looked into: its type is refused in any case.
  void parse_descr(NpyHeader& header) {
    if (peek() == '[' || peek() == '(') {
      read_error("E303", name_,
                 "element type `{}` is a structured type with fields; save its fields as arrays of "
                 "their own",
                 printable(text_.substr(pos_)));
    }
    header.descr = string_literal();
  }

  bool boolean() {
    if (take_word("True")) {
      return true;
    }
    if (!take_word("False")) {
      fail("`fortran_order` must be True or False");
    }
    return false;
  }

  // (), (3,), (3, 4) and (3, 4,), as Python writes tuples; Python 2 wrote long numbers as 3L.
  Shape shape() {
    if (!take('(')) {
      read_error("E304", name_, "the shape `{}` is not a tuple", printable(text_.substr(pos_)));
    }
    Shape shape;
    bool comma = true;
    while (!take(')')) {
      if (!comma) {
        read_error("E304", name_, "a comma is missing in the shape at byte {} of the header", pos_);
      }
      shape.push_back(size());
      if (shape.size() > kMaxNpyRank) {
        read_error("E304", name_, "more than {} dimensions", kMaxNpyRank);
      }
      comma = take(',');
    }
    if (shape.size() == 1 && !comma) {
      read_error("E304", name_, "the shape ({}) is a number, not a tuple", shape[0]);
    }
    return shape;
  }

  int64_t size() {
    peek();
    int64_t value = 0;
    const char* begin = text_.data() + pos_;
    const char* end = text_.data() + text_.size();
    const auto [rest, error] = std::from_chars(begin, end, value);
    if (error == std::errc::result_out_of_range) {
      read_error("E304", name_, "a size in the shape is larger than 2^63-1");
    }
    if (error != std::errc() || *begin == '-') {
      read_error("E304", name_, "`{}` in the shape is not a size", printable({begin, end}));
    }
    pos_ += static_cast<size_t>(rest - begin);
    if (pos_ < text_.size() && text_[pos_] == 'L') {
      ++pos_;
    }
    return value;
  }

  std::string_view text_;
  const std::string& name_;
  size_t pos_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& name) {
  return HeaderParser(text, name).parse();
}

}  // namespace meshtrain
