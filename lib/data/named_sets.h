// The data sets of keras.datasets that are available by name: their files, URLs and folders.
// `meshtrain data fetch` downloads them; sources of the same name read them.
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

// The folder of `data fetch`: $MESHTRAIN_CACHE/datasets, else
// $XDG_CACHE_HOME/meshtrain/datasets, else ~/.cache/meshtrain/datasets.
std::string datasets_folder();
// The folders that sources search, in this order: `base_dir` (data.dir, or the config's folder),
// $MESHTRAIN_DATA, datasets_folder(), Keras' own cache ($KERAS_HOME/datasets or ~/.keras/datasets).
std::vector<std::string> dataset_folders(const std::string& base_dir);

// Instructions for a manual download: each file with its URL, size, SHA-256 and folder.
std::vector<std::string> manual_steps(const NamedSet& set, const std::string& folder);

}  // namespace meshtrain
