#include "data/table_dataset.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "data/packed_text.h"
#include "data/splits.h"

namespace meshtrain {

std::vector<int64_t> learned_rows(const SourceOptions& source, int64_t count,
                                  const ReadLimits& limits) {
  const auto [begin, end] = source.slice.value
                                ? parse_slice(*source.slice.value, count, source.slice.loc)
                                : std::pair<int64_t, int64_t>(0, count);
  if (limits.trained_rows != nullptr) {
    std::vector<int64_t> rows = *limits.trained_rows;
    std::for_each(rows.begin(), rows.end(), [&, begin = begin](int64_t& row) { row += begin; });
    return rows;
  }
  const int64_t trained = num_trained(end - begin, limits.held_out);
  std::vector<int64_t> rows(static_cast<size_t>(trained > 0 ? trained : end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

RowsPtr take_rows(CsvTable& table, NamedTensor& array) {
  const auto found = table.files.find(array.name);
  return found == table.files.end() ? make_rows(std::move(array.tensor)) : found->second.rows;
}

void add_inputs(CsvTable& table, Dataset& dataset) {
  for (NamedTensor& input : table.inputs) {
    if (const auto found = table.files.find(input.name); found != table.files.end()) {
      dataset.files = found->second.paths;
    }
    dataset.inputs.push_back({input.name, take_rows(table, input), table.columns[input.name]});
  }
  if (table.id_counts.size() == 1) {
    const auto& [name, counts] = *table.id_counts.begin();
    add_padding_inputs(counts, std::ssize(table.columns[name]), dataset);
  }
}

}  // namespace meshtrain
