// What can be known of a source's data before a file is opened.
#pragma once

#include <optional>

#include "data/dataset.h"

namespace meshtrain {

// As load_dataset, without a sample, of a source that is made, not read (random, digits): the types
// and shapes of its arrays. Nothing for a source of files, which would have to be opened.
std::optional<Dataset> dataset_spec(const ConfigObject& source, const DataConfig& data);

// That the files and folders are there which a source names. Throws ConfigError E300 as
// load_dataset.
void check_source_files(const ConfigObject& source, const DataConfig& data);

}  // namespace meshtrain
