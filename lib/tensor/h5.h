// HDF5 files as Keras writes weights: groups, whole datasets, and a text attribute `name` of a
// group.
//
// Format: Keras 3 saving_lib.H5IOStore. The library that parses HDF5 has had many memory errors
// with hostile files, so a child process with limits reads them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

struct H5File {
  std::vector<NamedTensor> datasets;         // "layers/dense/vars/0", in the order of the paths
  std::map<std::string, std::string> names;  // group ("layers/dense/vars") -> its attribute `name`
  // Of a whole model, save("m.h5"): attributes of the root; empty in other files.
  std::string model_config, training_config, keras_version;
};

// Reads every dataset of numbers. bfloat16, which Keras stores as two raw bytes with the attribute
// `dtype`, is read as such. Throws ConfigError (exit 6): E404 not there, E405 no HDF5 file, a
// damaged one, or one with compressed, external, virtual or unwritten datasets, E406 soft and
// external links.
H5File read_h5(const std::string& path);
// The same for a file whose bytes are in memory; `name` stands for it in messages.
H5File read_h5(std::span<const std::byte> image, const std::string& name);

// A group to write with its attribute and its datasets, which are named 0, 1, ...
struct H5Vars {
  std::string group;  // "layers/dense/vars"
  std::string name;   // attribute
  std::vector<const HostTensor*> tensors;
};

// Replaces `path` atomically. Equal arguments give equal files. Throws FileError (exit 74).
void write_h5(const std::string& path, std::span<const H5Vars> groups);
// The same as bytes.
std::vector<std::byte> h5_image(std::span<const H5Vars> groups);

}  // namespace meshtrain
