// The JSON header of a safetensors file, checked rule by rule.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/safetensors.h"

namespace meshtrain {

// Entries in the order of the data, `begin` counted from the first byte of the data, which has
// `data_size` bytes. Throws ConfigError E405 or E406; `path` is for messages.
std::vector<SafetensorsReader::Entry> parse_safetensors_header(std::string_view text,
                                                               uint64_t data_size,
                                                               const std::string& path,
                                                               StringMap* metadata);

// "F32"
std::string_view safetensors_dtype(DType dtype);

}  // namespace meshtrain
