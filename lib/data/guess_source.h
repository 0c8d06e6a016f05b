// Arrays in files whose kind is recognised by content.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/rows.h"

namespace meshtrain {

// The kind of data at a path.
struct Guessed {
  std::string description;  // "npz data/train.npz"
  std::vector<std::string> class_names;
};

// Calls `function` with the name and rows of each array, and whether its numbers may be labels, at
// `path`, one after the other: a .npy, .npz, .safetensors, IDX (gzip, too), HDF5 or CSV file, an
// image, or a folder of images. Images are read as Keras does by default, all in 256 x 256; their
// own sizes are the arrays `height` and `width`. Throws ConfigError: E300 not there, E327 of an
// unknown kind, and those of the readers.
Guessed read_guessed(const std::string& path,
                     const std::function<void(const std::string&, const Rows&, bool)>& function);

}  // namespace meshtrain
