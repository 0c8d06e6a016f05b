// Shared by reading and writing of HDF5: handles that close themselves, and element types.
#pragma once

#include <hdf5.h>

#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace meshtrain {

// An identifier of the library and its closing function; negative when the call failed.
class H5Handle {
 public:
  H5Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~H5Handle() {
    if (id_ >= 0) {
      close_(id_);
    }
  }
  H5Handle(const H5Handle&) = delete;
  H5Handle& operator=(const H5Handle&) = delete;

  operator hid_t() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// No text on stderr, no plug-ins, no file locks (which some network file systems lack).
void prepare_h5();

// Returns a new identifier of the type of `dtype` in memory. bool is an enumeration and bfloat16
// two opaque bytes, as h5py stores them.
hid_t h5_type(DType dtype);

// Returns the type of the elements in a file, in any byte order; nothing when they are no numbers.
// `dataset` has the attribute of bfloat16.
std::optional<DType> h5_dtype(hid_t type, hid_t dataset);

// An enumeration, a text of any length, ...
hid_t h5_text_type();

}  // namespace meshtrain
