// What a data source learns from the training data: ids of texts, columns, class names, means. All
// other data of the run are read with these values. A run stores them (train/learned_file.h),
// because the training data may have changed or be gone when the run is evaluated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/object.h"
#include "data/characters.h"
#include "data/csv_table.h"

namespace meshtrain {

struct LearnedData {
  std::string source;                    // class of the training source: "csv"
  CsvLearned csv;                        // of csv
  Vocabulary characters;                 // of text; empty where ids are bytes or tokens
  std::vector<std::string> class_names;  // of the integer labels, where the source knows them
  std::string tokenizer;                 // of text with tokens: the text of its tokenizer.json
};
using LearnedPtr = std::shared_ptr<const LearnedData>;

// True for sources that learn from their data with these arguments (ClassSpec::learns).
bool learns_from_data(const ConfigObject& source);

// Returns `learned`, or null when it comes from a source of another class.
const LearnedData* learned_of(const LearnedPtr& learned, const ConfigObject& source);

}  // namespace meshtrain
