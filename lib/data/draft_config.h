// A config for data that no config describes yet: `meshtrain init --from PATH`.
#pragma once

#include <string>

namespace meshtrain {

// Returns a commented config that trains on the table, text, archive (npz, HDF5), IDX file or
// folder of images or texts at `path`: source, preprocessing, model, loss, metrics. Paths in it are
// absolute. `label` is the column or array to predict; empty: chosen by name, else the last column.
// Throws ConfigError as read_guessed(), E310 for an unknown `label`, E311 for labels that are
// missing, E327 for data that give no config.
std::string draft_config(const std::string& path, const std::string& label);

// Parts of it.
std::string draft_table_config(const std::string& path, const std::string& label);
std::string draft_npz_config(const std::string& path, const std::string& label);
std::string draft_hdf5_config(const std::string& path, const std::string& label);
// A folder for each class, of images or texts, or one of images with one of masks beside it.
std::string draft_folder_config(const std::string& path);
std::string draft_idx_config(const std::string& path);  // MNIST's images; labels are beside them

// "name: houses" and what follows the model in every draft.
std::string draft_head(const std::string& path, const std::string& what);
std::string draft_fit(int64_t samples, int epochs, bool validates = true);
// The line of data.split; empty for so few samples that none would be left to validate. Classes
// are stratified where the largest has a sample to validate.
std::string draft_split(int64_t samples, int64_t largest_class = 0);

}  // namespace meshtrain
