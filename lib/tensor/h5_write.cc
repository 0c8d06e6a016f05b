#include <hdf5.h>
#include <stdlib.h>

#include <algorithm>
#include <string_view>

#include "base/file.h"
#include "tensor/h5.h"
#include "tensor/h5_handle.h"

namespace meshtrain {
namespace {

template <class T>
T checked(T result, const char* what) {
  if (result < 0) {
    throw InternalError(std::string("HDF5: ") + what);
  }
  return result;
}

// sign 1, exponent 5, mantissa 10
hid_t half_type() {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return type;
}

hid_t bool_type() {
  const hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
  for (const int8_t value : {int8_t{0}, int8_t{1}}) {
    H5Tenum_insert(type, value == 0 ? "FALSE" : "TRUE", &value);
  }
  return type;
}

hid_t native_type(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return H5T_NATIVE_UINT8;
    case DType::kInt8:
      return H5T_NATIVE_INT8;
    case DType::kInt16:
      return H5T_NATIVE_INT16;
    case DType::kUInt16:
      return H5T_NATIVE_UINT16;
    case DType::kInt32:
      return H5T_NATIVE_INT32;
    case DType::kUInt32:
      return H5T_NATIVE_UINT32;
    case DType::kInt64:
      return H5T_NATIVE_INT64;
    case DType::kUInt64:
      return H5T_NATIVE_UINT64;
    case DType::kFloat32:
      return H5T_NATIVE_FLOAT;
    default:
      return H5T_NATIVE_DOUBLE;
  }
}

void write_text_attribute(hid_t object, const char* name, const std::string& text) {
  const H5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const H5Handle type(h5_text_type(), H5Tclose);
  const H5Handle attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose);
  const char* value = text.c_str();
  checked(H5Awrite(attribute, type, &value), "attribute");
}

// Without times, so that equal content is equal bytes.
H5Handle creation_properties(hid_t kind) {
  const hid_t list = checked(H5Pcreate(kind), "properties");
  checked(H5Pset_obj_track_times(list, false), "times");
  return {list, H5Pclose};
}

void write_tensor(hid_t group, const std::string& name, const HostTensor& tensor) {
  const std::vector<hsize_t> sizes(tensor.shape().begin(), tensor.shape().end());
  const H5Handle space(
      sizes.empty() ? H5Screate(H5S_SCALAR)
                    : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
      H5Sclose);
  const H5Handle type(h5_type(tensor.dtype()), H5Tclose);
  const H5Handle properties = creation_properties(H5P_DATASET_CREATE);
  const H5Handle dataset(
      checked(H5Dcreate2(group, name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT),
              "dataset"),
      H5Dclose);
  if (tensor.size() > 0) {
    checked(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.bytes()), "write");
  }
  if (tensor.dtype() == DType::kBFloat16) {
    write_text_attribute(dataset, "dtype", "bfloat16");
  }
}

void write_group(hid_t file, const H5Vars& vars) {
  const H5Handle links(checked(H5Pcreate(H5P_LINK_CREATE), "properties"), H5Pclose);
  checked(H5Pset_create_intermediate_group(links, 1), "groups");
  const H5Handle properties = creation_properties(H5P_GROUP_CREATE);
  const H5Handle group(
      checked(H5Gcreate2(file, vars.group.c_str(), links, properties, H5P_DEFAULT), "group"),
      H5Gclose);
  write_text_attribute(group, "name", vars.name);
  for (size_t i = 0; i < vars.tensors.size(); ++i) {
    write_tensor(group, std::to_string(i), *vars.tensors[i]);
  }
}

}  // namespace

void prepare_h5() {
  const char* const locking = getenv("HDF5_USE_FILE_LOCKING");
  if (locking == nullptr || std::string_view(locking) != "FALSE") {
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);  // the program does it before it has threads
  }
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

hid_t h5_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return bool_type();
    case DType::kFloat16:
      return half_type();
    case DType::kBFloat16:
      return H5Tcreate(H5T_OPAQUE, 2);
    default:
      return H5Tcopy(native_type(dtype));
  }
}

hid_t h5_text_type() {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  return type;
}

std::vector<std::byte> h5_image(std::span<const H5Vars> groups) {
  prepare_h5();
  constexpr size_t kGrowth = size_t{1} << 20;
  const H5Handle access(checked(H5Pcreate(H5P_FILE_ACCESS), "properties"), H5Pclose);
  checked(H5Pset_fapl_core(access, kGrowth, false), "memory");
  const H5Handle file(checked(H5Fcreate("weights.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access), "file"),
                      H5Fclose);
  for (const H5Vars& vars : groups) {
    write_group(file, vars);
  }
  checked(H5Fflush(file, H5F_SCOPE_GLOBAL), "flush");
  std::vector<std::byte> image(
      static_cast<size_t>(checked(H5Fget_file_image(file, nullptr, 0), "size")));
  checked(H5Fget_file_image(file, image.data(), image.size()), "image");
  return image;
}

void write_h5(const std::string& path, std::span<const H5Vars> groups) {
  write_file_atomic(path, std::span<const std::byte>(h5_image(groups)));
}

}  // namespace meshtrain
