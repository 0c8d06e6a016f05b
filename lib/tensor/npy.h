// NumPy's .npy files: one array each.
//
// Format: numpy.lib.format, versions 1.0 to 3.0. The header is a Python dict literal; it is read by
// a strict parser of exactly that dict, never evaluated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tensor/host_tensor.h"
#include "tensor/read_error.h"

namespace meshtrain {

// Reads an array of bool, integers or floats; Fortran order and big-endian bytes are converted.
// Throws ConfigError (exit 3): E300 not there, E301 no .npy file, E302 header length or text, E303
// element type, E304 shape, E305 fewer or more bytes than the shape needs.
HostTensor read_npy(const std::string& path);
// The same from bytes; `name` stands for the path in messages.
HostTensor read_npy(ByteReader& bytes, const std::string& name);

// An array's bytes as they are stored, after its header.
struct NpyLayout {
  DType dtype = DType::kFloat32;
  Shape shape;
  bool big_endian = false;
  bool fortran_order = false;  // never for one dimension, where it says nothing
  uint64_t num_bytes = 0;

  // Converts stored elements to elements in memory, in the same order.
  void convert(std::byte* data, size_t num_bytes) const;
};
// Reads the header and compares the size of the data with the shape; leaves `bytes` at the data.
NpyLayout read_npy_layout(ByteReader& bytes, const std::string& name);

// The header, padded so that the data begin at a multiple of 64. bfloat16 has no NumPy type: its
// header is float32's.
std::string npy_header(DType dtype, const Shape& shape);

// Replaces `path` atomically; bfloat16 is widened to float32. Throws FileError (exit 74).
void write_npy(const std::string& path, const HostTensor& tensor);

}  // namespace meshtrain
