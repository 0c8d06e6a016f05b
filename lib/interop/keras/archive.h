// The parts of a .keras archive.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "tensor/h5.h"

namespace meshtrain {

struct KerasArchive {
  std::string config;   // config.json
  std::string version;  // of Keras, from metadata.json; empty when it says none
  H5File weights;       // model.weights.h5
};

// Throws ConfigError (exit 6): E404 not there, E405 and E406 damaged or without one of its parts.
KerasArchive read_keras_archive(const std::string& path);

// Replaces `path` whole or not at all. Throws FileError (exit 74).
void write_keras_archive(const std::string& path, const std::string& config,
                         const std::string& metadata, std::span<const std::byte> weights);

}  // namespace meshtrain
