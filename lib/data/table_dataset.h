// The arrays of a table (csv_table.h) in a dataset.
#pragma once

#include <cstdint>
#include <vector>

#include "config/source_classes.h"
#include "data/csv_table.h"
#include "data/dataset.h"

namespace meshtrain {

// Rows of a source of `count` rows that means and vocabularies are learned from: those of `slice`
// that train.
std::vector<int64_t> learned_rows(const SourceOptions& source, int64_t count,
                                  const ReadLimits& limits);

// Takes an array out of the table, or the contents of the files that it names.
RowsPtr take_rows(CsvTable& table, NamedTensor& array);
// Adds all its inputs.
void add_inputs(CsvTable& table, Dataset& dataset);

}  // namespace meshtrain
