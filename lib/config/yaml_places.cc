#include "config/yaml_places.h"

#include <algorithm>

#include "base/text.h"
#include "config/yaml.h"

namespace meshtrain {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Whether a quote or bracket at `offset` begins something, rather than being part of plain text.
bool begins_token(std::string_view text, size_t offset) {
  constexpr std::string_view kOpeners = "[{,\n";
  size_t i = offset;
  while (i > 0 && (text[i - 1] == ' ' || text[i - 1] == '\t')) {
    --i;
  }
  if (i == 0 || kOpeners.find(text[i - 1]) != kNone) {
    return true;
  }
  if (i == offset) {  // glued to what is before it
    return false;
  }
  const size_t word = text.find_last_of(" \n[{,", i - 1);
  const char first = text[word == kNone ? 0 : word + 1];
  return text[i - 1] == ':' || first == '&' || (word == i - 2 && (first == '-' || first == '?')) ||
         (word == kNone && i == 1 && (first == '-' || first == '?'));
}

}  // namespace

YamlPlaces::YamlPlaces(std::shared_ptr<const SourceFile> file, std::string_view text,
                       int first_line, int first_column)
    : file_(std::move(file)),
      text_(text),
      first_line_(first_line),
      first_column_(first_column),
      line_starts_{0} {
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') {
      line_starts_.push_back(i + 1);
    }
  }
}

std::string_view YamlPlaces::line_text(int line) const {
  const size_t begin = line_starts_[line];
  size_t end =
      line + 1 < static_cast<int>(line_starts_.size()) ? line_starts_[line + 1] - 1 : text_.size();
  end -= end > begin && text_[end - 1] == '\r' ? 1 : 0;
  return text_.substr(begin, end - begin);
}

size_t YamlPlaces::offset_of(const SourceLoc& loc) const {
  const int line = std::clamp(loc.line - first_line_, 0, static_cast<int>(line_starts_.size()) - 1);
  const int column = loc.column - (line == 0 ? first_column_ : 1);
  return std::min(line_starts_[line] + static_cast<size_t>(std::max(0, column)), text_.size());
}

SourceLoc YamlPlaces::place(size_t offset, int length) const {
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  const int line = static_cast<int>(after - line_starts_.begin()) - 1;
  const int column = static_cast<int>(offset - line_starts_[line]);
  return {file_, line + first_line_, column + (line == 0 ? first_column_ : 1), std::max(1, length)};
}

std::string_view YamlPlaces::text_at(const SourceLoc& loc) const {
  return text_.substr(offset_of(loc), static_cast<size_t>(loc.length));
}

size_t YamlPlaces::end_of_quote(size_t begin) const {
  const char quote = text_[begin];
  for (size_t i = begin + 1; i < text_.size(); ++i) {
    if (quote == '"' && text_[i] == '\\') {
      ++i;
    } else if (text_[i] == quote) {
      if (quote == '\'' && i + 1 < text_.size() && text_[i + 1] == quote) {
        ++i;
      } else {
        return i;
      }
    }
  }
  return kNone;
}

bool YamlPlaces::quote_is_closed(const SourceLoc& loc) const {
  const size_t begin = offset_of(loc);
  const bool is_quote = begin < text_.size() && (text_[begin] == '"' || text_[begin] == '\'');
  return !is_quote || end_of_quote(begin) != kNone;  // a block scalar has no quotes
}

size_t YamlPlaces::column_after_anchor(int line, int column) const {
  const std::string_view all = line_text(line);
  size_t begin = std::min(static_cast<size_t>(std::max(0, column)), all.size());
  if (begin < all.size() && all[begin] == '&') {
    const size_t value = all.find_first_not_of(' ', std::min(all.find(' ', begin), all.size()));
    begin = value == kNone ? begin : value;
  }
  return begin;
}

SourceLoc YamlPlaces::scalar(int line, int column, bool quoted) const {
  line = std::clamp(line, 0, static_cast<int>(line_starts_.size()) - 1);
  const std::string_view all = line_text(line);
  const size_t begin = column_after_anchor(line, column);
  const size_t offset = line_starts_[line] + begin;
  if (quoted && begin < all.size() && (all[begin] == '"' || all[begin] == '\'')) {
    const size_t end = end_of_quote(offset);
    const size_t line_end = line_starts_[line] + all.size();
    if (end != kNone && end > line_end) {
      long_quote_ = {offset, end};
    }
    return place(offset,
                 static_cast<int>(std::min(end == kNone ? end : end + 1, line_end) - offset));
  }
  // Plain text ends at `: `, at a comment, and inside brackets at `,` or a bracket.
  const bool in_flow = !open_brackets(offset).empty();
  size_t end = begin;
  while (end < all.size()) {
    const char c = all[end];
    const bool blank_follows = end + 1 == all.size() || all[end + 1] == ' ';
    if ((c == ':' && (blank_follows || (in_flow && (all[end + 1] == ',' || all[end + 1] == ']' ||
                                                    all[end + 1] == '}')))) ||
        (c == '#' && end > begin && all[end - 1] == ' ') ||
        (in_flow && (c == ',' || c == ']' || c == '}' || c == '[' || c == '{'))) {
      break;
    }
    ++end;
  }
  while (end > begin && all[end - 1] == ' ') {
    --end;
  }
  return place(offset, static_cast<int>(end - begin));
}

SourceLoc YamlPlaces::collection(int line, int column) const {
  line = std::clamp(line, 0, static_cast<int>(line_starts_.size()) - 1);
  const std::string_view all = line_text(line);
  const size_t begin = column_after_anchor(line, column);
  if (begin >= all.size() || (all[begin] != '[' && all[begin] != '{')) {
    const bool quoted = begin < all.size() && (all[begin] == '"' || all[begin] == '\'');
    return scalar(line, column, quoted);
  }
  int depth = 0;
  for (size_t i = begin; i < all.size(); ++i) {
    depth += all[i] == '[' || all[i] == '{' ? 1 : 0;
    depth -= all[i] == ']' || all[i] == '}' ? 1 : 0;
    if (depth == 0) {
      return place(line_starts_[line] + begin, static_cast<int>(i - begin) + 1);
    }
  }
  return place(line_starts_[line] + begin, 1);
}

SourceLoc YamlPlaces::alias(int line, int column) const {
  line = std::clamp(line, 0, static_cast<int>(line_starts_.size()) - 1);
  const std::string_view all = line_text(line);
  const size_t begin = std::min(static_cast<size_t>(std::max(0, column)), all.size());
  const size_t end = std::min(all.find_first_of(" \t,]}[{", begin), all.size());
  return place(line_starts_[line] + begin, static_cast<int>(end - begin));
}

bool YamlPlaces::starts_document(const SourceLoc& loc) const {
  if (starts_with(text_at({file_, loc.line, loc.column, 3}), "---")) {
    return true;
  }
  for (int line = loc.line - first_line_ - 1; line >= 0; --line) {
    if (starts_with(line_text(line), "...")) {
      return true;
    }
    if (!trim(line_text(line)).empty()) {
      return false;
    }
  }
  return false;
}

bool YamlPlaces::check_indentation(Diagnostics& diagnostics) const {
  for (int line = 0; line < static_cast<int>(line_starts_.size()); ++line) {
    const std::string_view all = line_text(line);
    const size_t first = all.find_first_not_of(" \t");
    const size_t tab = all.find('\t');
    if (first == kNone || all[first] == '#' || tab == kNone || tab > first) {
      continue;
    }
    diagnostics.error("E104", place(line_starts_[line] + tab, 1), "tab used for indentation")
        .with_label("use spaces");
    return false;
  }
  return true;
}

bool YamlPlaces::check_brackets(Diagnostics& diagnostics) const {
  constexpr size_t kHopeless = 1000;  // far more than what plain text can be mistaken for
  constexpr size_t kStep = 4096;
  for (size_t end = kStep; end < text_.size(); end += kStep) {
    const std::vector<Bracket> open = open_brackets(end);
    if (open.size() > kHopeless) {
      const SourceLoc loc = place(open[kMaxYamlDepth].offset, 1);
      diagnostics.error(
          "E106", loc,
          fmt::format("nested deeper than {} at {}:{}", kMaxYamlDepth, loc.line, loc.column));
      return false;
    }
  }
  return true;
}

std::vector<YamlPlaces::Bracket> YamlPlaces::open_brackets(size_t end) const {
  if (cache_end_ > end) {
    cache_end_ = 0;
    cache_.clear();
  }
  size_t i = cache_end_;
  std::vector<Bracket> open = std::move(cache_);
  for (; i < end; ++i) {
    const char c = text_[i];
    if ((c == '"' || c == '\'') && begins_token(text_, i)) {
      const size_t close = end_of_quote(i);
      if (close == kNone) {
        open.push_back({c, i});
        i = end;
        break;
      }
      i = close;
    } else if (c == '#' && (i == 0 || text_[i - 1] == ' ' || text_[i - 1] == '\n')) {
      i = std::min(text_.find('\n', i), text_.size());
    } else if ((c == '[' || c == '{') && (!open.empty() || begins_token(text_, i))) {
      open.push_back({c, i});
    } else if ((c == ']' || c == '}') && !open.empty()) {
      open.pop_back();
    }
  }
  cache_ = open;
  cache_end_ = std::max(i, end);
  return open;
}

}  // namespace meshtrain
