// A table with lines around its cells, as Keras 3 prints model summaries
// (keras/src/utils/summary_utils.py, through rich): heavy lines around the header. Columns grow
// where a text needs more than its width.
#pragma once

#include <string>
#include <vector>

namespace meshtrain {

class Table {
 public:
  using Lines = std::vector<std::string>;  // of one cell
  struct Column {
    std::string header;
    bool right = false;  // aligned
    size_t width = 0;    // at least, between the blanks
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Lines> row);  // one cell per column
  std::string text() const;

 private:
  std::string rule(const char* left, const char* line, const char* middle, const char* right) const;
  std::string row_text(const std::vector<Lines>& row, const char* bar) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Lines>> rows_;
};

}  // namespace meshtrain
