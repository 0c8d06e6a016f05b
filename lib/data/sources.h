// The data sources: each reads or makes the arrays that its config names.
#pragma once

#include <string>

#include "data/dataset.h"

namespace meshtrain {

// All samples of a source, of one of its splits or of parts of them (config/split.h), before slice,
// transforms and checks across arrays; every array has at least one dimension. Problems of all its
// files are thrown together, each with its place in the config. `known` as for load_dataset().
Dataset read_source(const ConfigObject& source, const std::string& base_dir,
                    const LearnedPtr& known = nullptr);

// One function for each class of the catalogue. Sources that learn take what is `known` of the
// training data; when it is null, they put what they learn into the dataset.
Dataset read_npz_source(const ConfigObject& source, const std::string& base_dir);
Dataset read_npy_source(const ConfigObject& source, const std::string& base_dir);
Dataset read_idx_source(const ConfigObject& source, const std::string& base_dir);
Dataset read_csv_source(const ConfigObject& source, const std::string& base_dir,
                        const LearnedData* known);
Dataset read_hdf5_source(const ConfigObject& source, const std::string& base_dir);
Dataset read_text_source(const ConfigObject& source, const std::string& base_dir,
                         const LearnedData* known);
Dataset read_tokens_source(const ConfigObject& source, const std::string& base_dir);
Dataset make_random_source(const ConfigObject& source, const std::string& base_dir);
Dataset make_digits_source(const ConfigObject& source, const std::string& base_dir);
Dataset read_image_folder_source(const ConfigObject& source, const std::string& base_dir,
                                 const LearnedData* known);
Dataset read_named_set_source(const ConfigObject& source, const std::string& base_dir);

}  // namespace meshtrain
