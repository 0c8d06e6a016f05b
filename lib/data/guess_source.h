// Arrays in files whose kind is recognised by content.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows.h"
#include "data/table_profile.h"

namespace meshtrain {

// The kind of data at a path.
struct Guessed {
  std::string description;  // "npz data/train.npz"
  std::vector<std::string> class_names = {};
  std::optional<TableProfile> table = {};  // these two have no arrays
  std::optional<TextProfile> text = {};
};

// Throws ConfigError E327 when a file that begins so is of a known kind that is not read: Parquet,
// Excel. Debian 12 has no package of Arrow.
void refuse_foreign_table(std::string_view beginning, const std::string& path);

// Returns whether a file that begins so is a table in gzip: .csv.gz or .tsv.gz.
bool is_packed_table(const std::string& path, std::string_view beginning);

// Calls `function` with the name and rows of each array, and whether its numbers may be labels, at
// `path`, one after the other: a .npy, .npz, .safetensors, IDX (gzip, too) or HDF5 file, an
// image, or a folder of images. Tables and texts are profiled. Images are read as Keras does by
// default, all in 256 x 256; their own sizes are the arrays `height` and `width`. Throws
// ConfigError: E300 not there, E327 of an unknown kind, and those of the readers.
Guessed read_guessed(const std::string& path,
                     const std::function<void(const std::string&, const Rows&, bool)>& function);

}  // namespace meshtrain
