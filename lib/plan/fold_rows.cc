#include "plan/fold_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/parse_number.h"
#include "base/text.h"

namespace meshtrain {
namespace {

// A path around the number that its first segment ends in: "layer_" 12 "/kernel".
struct BlockPath {
  std::string before, after;
  int64_t number = 0;
};

std::optional<BlockPath> block_path(const std::string& path) {
  const size_t end = path.find('/');
  const size_t begin =
      path.find_last_not_of("0123456789", end == std::string::npos ? end : end - 1);
  if (end == std::string::npos || begin == std::string::npos || begin + 1 == end ||
      path[begin] != '_') {
    return std::nullopt;
  }
  const auto number = parse_number<int64_t>(path.substr(begin + 1, end - begin - 1));
  return number ? std::optional<BlockPath>({path.substr(0, begin + 1), path.substr(end), *number})
                : std::nullopt;
}

}  // namespace

std::vector<size_t> first_equal(const std::vector<std::string>& keys) {
  std::map<std::string, std::vector<size_t>> groups;
  for (size_t i = 0; i < keys.size(); ++i) {
    groups[keys[i]].push_back(i);
  }
  std::vector<size_t> out;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::vector<size_t>& group = groups[keys[i]];
    out.push_back(group.size() < kFoldedRows ? i : group.front());
  }
  return out;
}

std::vector<size_t> times_of(const std::vector<size_t>& first) {
  std::vector<size_t> times(first.size(), 0);
  for (const size_t i : first) {
    ++times[i];
  }
  return times;
}

TextRows fold_blocks(TextRows rows) {
  std::vector<std::string> keys;
  std::vector<std::optional<BlockPath>> paths;
  for (size_t i = 0; i < rows.size(); ++i) {
    paths.push_back(i == 0 ? std::nullopt : block_path(rows[i][0]));
    std::vector<std::string> cells = rows[i];
    cells[0] = paths[i] ? paths[i]->before + "*" + paths[i]->after : fmt::format("{}", i);
    keys.push_back(join(cells, "\n"));
  }
  const std::vector<size_t> first = first_equal(keys), times = times_of(first);
  TextRows out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (times[i] == 0) {
      continue;
    }
    const auto count = static_cast<int64_t>(times[i]);
    if (count > 1) {
      int64_t last = paths[i]->number;
      for (size_t j = i + 1; j < rows.size(); ++j) {
        last = first[j] == i ? std::max(last, paths[j]->number) : last;
      }
      // A number that is left out is said: there are as many rows as numbers.
      const bool is_whole = last - paths[i]->number + 1 == count;
      rows[i][0] = is_whole ? fmt::format("{}{{{}..{}}}{}", paths[i]->before, paths[i]->number,
                                          last, paths[i]->after)
                            : fmt::format("{}{{{}..{}, {} of them}}{}", paths[i]->before,
                                          paths[i]->number, last, count, paths[i]->after);
    }
    out.push_back(rows[i]);
  }
  return out;
}

}  // namespace meshtrain
