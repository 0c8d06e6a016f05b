// The spec of a source's data, without opening a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace meshtrain {

// Returns the dataset of a synthetic source (random, digits) with the types and shapes of its
// arrays and `samples` samples. Returns nothing for a source of files, which would have to be
// opened.
std::optional<Dataset> dataset_spec(const ConfigObject& source, const DataConfig& data,
                                    int64_t samples = 0);

// Returns how many samples of a synthetic source show its classes at next to no cost: 0 where
// there are no classes, or samples are large.
int64_t samples_with_classes(const ConfigObject& source);

// Returns whether the files of a source have so few bytes that they can be read at once, some 0.1
// s. Folders do not.
bool is_small_source(const ConfigObject& source, const DataConfig& data);

// Checks that the files and folders of a source exist. Throws ConfigError E300 as load_dataset.
void check_source_files(const ConfigObject& source, const DataConfig& data);

// Returns the files of a source; of an image_folder its folder and those of its classes. Files that
// are not there are left out.
std::vector<std::string> source_paths(const ConfigObject& source, const DataConfig& data);

}  // namespace meshtrain
