// The data sets of keras.datasets that have a name here: which files they are, where those come
// from and where they lie. `meshtrain data fetch` downloads them, sources of the same name read
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

struct SetFile {
  const char* path;  // in the folder of data sets: "fashion-mnist/train-images-idx3-ubyte.gz"
  const char* url;
  uint64_t num_bytes;
  const char* sha256;
};

struct NamedSet {
  const char* name;
  std::span<const SetFile> files;
};

std::span<const NamedSet> named_sets();
const NamedSet* find_named_set(std::string_view name);  // null when there is none

// Where `data fetch` puts files: $MESHTRAIN_CACHE/datasets, else
// $XDG_CACHE_HOME/meshtrain/datasets, else ~/.cache/meshtrain/datasets.
std::string datasets_folder();
// Where sources look, in this order: `base_dir` (data.dir, or the config's folder),
// $MESHTRAIN_DATA, datasets_folder(), Keras' own cache ($KERAS_HOME/datasets or ~/.keras/datasets).
std::vector<std::string> dataset_folders(const std::string& base_dir);

// For people without a network: each file with its URL, size and SHA-256, and where to put it.
std::vector<std::string> manual_steps(const NamedSet& set, const std::string& folder);

}  // namespace meshtrain
