// Files of token ids: raw, with llm.c's header of 256 int32 (magic, version, number of ids), or
// NumPy's .npy.
#pragma once

#include <cstdint>
#include <string>

#include "base/file.h"
#include "config/source_classes.h"
#include "tensor/dtype.h"

namespace meshtrain {

inline constexpr size_t kTokenHeaderBytes = 1024;

struct TokenLayout {
  DType dtype = DType::kUInt16;
  uint64_t begin = 0;  // of the first id, in bytes
  int64_t count = 0;   // ids
};

// Returns where the ids of a file are. `dtype` is that of a file without a header. A .npy file has
// one dimension of uint8, uint16, uint32, int32 or int64. Throws ConfigError E301 to E305 as
// read_npy, E303 and E304 for other arrays in a .npy file, E305 when the size is not what the
// header says, or no multiple of the type's; E327 for a header of another version or byte order.
TokenLayout token_layout(const InputFile& file, DType dtype, TokenHeader header);

// Returns the header of `count` ids; kUInt16 (magic 20240520, version 1) or kUInt32 (magic
// 20240801, version 7). `count` must be below 2^31.
std::string token_header(DType dtype, int64_t count);

}  // namespace meshtrain
