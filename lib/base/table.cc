#include "base/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/columns.h"

namespace meshtrain {

void Table::add(std::vector<Lines> row) {
  for (size_t c = 0; c < row.size(); ++c) {
    for (const std::string& line : row[c]) {
      columns_[c].width = std::max(columns_[c].width, visible_width(line));
    }
  }
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<Lines> header;
  for (const Column& column : columns_) {
    header.push_back({column.header});
  }
  std::string out = rule("┏", "━", "┳", "┓") + row_text(header, "┃") + rule("┡", "━", "╇", "┩");
  for (size_t r = 0; r < rows_.size(); ++r) {
    out += (r > 0 ? rule("├", "─", "┼", "┤") : "") + row_text(rows_[r], "│");
  }
  return out + rule("└", "─", "┴", "┘");
}

std::string Table::rule(const char* left, const char* line, const char* middle,
                        const char* right) const {
  std::string out(left);
  for (size_t c = 0; c < columns_.size(); ++c) {
    for (size_t i = 0; i < columns_[c].width + 2; ++i) {
      out += line;
    }
    out += c + 1 < columns_.size() ? middle : right;
  }
  return out + "\n";
}

std::string Table::row_text(const std::vector<Lines>& row, const char* bar) const {
  size_t height = 1;
  for (const Lines& cell : row) {
    height = std::max(height, cell.size());
  }
  std::string out;
  for (size_t line = 0; line < height; ++line) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string text = line < row[c].size() ? row[c][line] : "";
      const std::string blank(columns_[c].width - visible_width(text), ' ');
      out += fmt::format("{} {}{} ", bar, columns_[c].right ? blank : text,
                         columns_[c].right ? text : blank);
    }
    out += fmt::format("{}\n", bar);
  }
  return out;
}

}  // namespace meshtrain
