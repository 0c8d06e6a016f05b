// Where things stand in a YAML text, and what is wrong there in words a writer of YAML knows. The
// parser knows lines and columns (from 0) of beginnings only; extents and causes are found here.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace meshtrain {

class YamlPlaces {
 public:
  // `text` is the parsed text; it must outlive this. It stands at `first_line`:`first_column` of
  // `file` (1:1 for a whole file).
  YamlPlaces(std::shared_ptr<const SourceFile> file, std::string_view text, int first_line,
             int first_column);

  // Places from the parser's line and column; the length reaches to the end of what begins there,
  // at most to the end of the line.
  SourceLoc scalar(int line, int column, bool quoted) const;
  SourceLoc collection(int line, int column) const;  // a whole `[...]`, or the first key
  SourceLoc alias(int line, int column) const;       // to the next blank or bracket

  std::string_view text_at(const SourceLoc& loc) const;
  bool quote_is_closed(const SourceLoc& loc) const;
  // `---` stands here, or `...` ended what came before.
  bool starts_document(const SourceLoc& loc) const;

  // E104 for the first tab in an indentation.
  bool check_indentation(Diagnostics& diagnostics) const;
  // E106 for brackets nested beyond all sense, of which the parser would remember each until the
  // first one is closed.
  bool check_brackets(Diagnostics& diagnostics) const;
  // The parser's complaint, translated: E104, E106 or E108.
  void report_syntax_error(int line, int column, std::string_view message,
                           Diagnostics& diagnostics) const;

 private:
  struct Bracket {
    char kind;
    size_t offset;
  };

  std::string_view line_text(int line) const;
  size_t column_after_anchor(int line, int column) const;
  size_t offset_of(const SourceLoc& loc) const;
  SourceLoc place(size_t offset, int length) const;
  size_t end_of_quote(size_t begin) const;  // npos when it is not closed
  std::vector<Bracket> open_brackets(size_t end) const;

  // Parts of report_syntax_error(); `loc` is the parser's place.
  void report_unknown_alias(const SourceLoc& loc, Diagnostics& diagnostics) const;
  void report_wrong_end(const SourceLoc& loc, Diagnostics& diagnostics) const;  // a bracket
  // An open quote, or with `wants_close` an open bracket; false when there is none.
  bool report_unclosed(const SourceLoc& loc, bool wants_close, Diagnostics& diagnostics) const;
  void report_translated(const SourceLoc& loc, std::string_view message,
                         Diagnostics& diagnostics) const;
  void help_with_glued(size_t offset, Diagnostic& problem) const;

  std::shared_ptr<const SourceFile> file_;
  std::string_view text_;
  int first_line_, first_column_;
  std::vector<size_t> line_starts_;
  // The brackets open at `cache_end_`: places are asked for in the order of the text, so that the
  // whole text is looked at once.
  mutable std::vector<Bracket> cache_;
  mutable size_t cache_end_ = 0;
  // Begin and end of the last quoted text over several lines: where a missing quote shows only
  // later.
  mutable std::pair<size_t, size_t> long_quote_ = {0, 0};
};

}  // namespace meshtrain
