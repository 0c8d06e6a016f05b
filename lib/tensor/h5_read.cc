#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "base/isolate.h"
#include "base/printable.h"
#include "base/text.h"
#include "tensor/h5.h"
#include "tensor/h5_handle.h"
#include "tensor/read_error.h"

// The child walks the file and sends each thing it finds: a kind, and what belongs to it.
//   D  name, dtype, rank, sizes, elements      N  group, name      E  code, message      Z  the end
//   M  model_config      T  training_config      V  keras_version
// The parent believes none of it unchecked: a hostile file may have taken over the child.

namespace meshtrain {

namespace {

// h5py's bool: an enumeration of a byte, with FALSE and TRUE.
bool is_h5_bool(hid_t type) {
  int8_t no = -1, yes = -1;
  return H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 &&
         H5Tenum_valueof(type, "FALSE", &no) >= 0 && H5Tenum_valueof(type, "TRUE", &yes) >= 0 &&
         no == 0 && yes == 1;
}

}  // namespace

std::optional<DType> h5_dtype(hid_t type, hid_t dataset) {
  const size_t size = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_INTEGER: {
      const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
      if (H5Tget_precision(type) != 8 * size) {
        return std::nullopt;
      }
      switch (size) {
        case 1:
          return is_signed ? DType::kInt8 : DType::kUInt8;
        case 2:
          return is_signed ? DType::kInt16 : DType::kUInt16;
        case 4:
          return is_signed ? DType::kInt32 : DType::kUInt32;
        case 8:
          return is_signed ? DType::kInt64 : DType::kUInt64;
        default:
          return std::nullopt;
      }
    }
    case H5T_FLOAT: {
      if (size == 2) {
        const H5Handle half(h5_type(DType::kFloat16), H5Tclose);
        const H5Handle swapped(H5Tcopy(half), H5Tclose);
        H5Tset_order(swapped, H5T_ORDER_BE);
        return H5Tequal(type, half) > 0 || H5Tequal(type, swapped) > 0
                   ? std::optional(DType::kFloat16)
                   : std::nullopt;
      }
      const bool single = H5Tequal(type, H5T_IEEE_F32LE) > 0 || H5Tequal(type, H5T_IEEE_F32BE) > 0;
      const bool twice = H5Tequal(type, H5T_IEEE_F64LE) > 0 || H5Tequal(type, H5T_IEEE_F64BE) > 0;
      return single ? std::optional(DType::kFloat32)
                    : (twice ? std::optional(DType::kFloat64) : std::nullopt);
    }
    case H5T_ENUM: {
      if (is_h5_bool(type)) {
        return DType::kBool;
      }
      const H5Handle numbers(H5Tget_super(type), H5Tclose);
      return h5_dtype(numbers, dataset);
    }
    case H5T_OPAQUE:
      return size == 2 && H5Aexists(dataset, "dtype") > 0 ? std::optional(DType::kBFloat16)
                                                          : std::nullopt;
    default:
      return std::nullopt;
  }
}

namespace {

constexpr int kMaxDepth = 64;
constexpr uint64_t kMaxObjects = 200000;
constexpr uint32_t kMaxText = 4096;
constexpr uint64_t kMaxConfig = uint64_t{64} << 20;
constexpr int kMaxH5Rank = 32;

struct Refused {
  const char* code;
  std::string message;
};

class Walker {
 public:
  Walker(const IsolatedProcess::Send& send, uint64_t file_bytes)
      : send_(send), bytes_left_(file_bytes) {}

  void walk(hid_t file) {
    const H5Handle root(H5Gopen2(file, "/", H5P_DEFAULT), H5Gclose);
    if (!root.ok()) {
      throw Refused{"E405", "the root group is damaged"};
    }
    send_root(root, 'M', "model_config");
    send_root(root, 'T', "training_config");
    send_root(root, 'V', "keras_version");
    group(root, "", 0);
    put('Z');
  }

  void refuse(const Refused& refused) {
    put('E');
    text(refused.code);
    text(refused.message);
  }

 private:
  void put(char kind) { raw(&kind, 1); }
  void raw(const void* bytes, size_t count) {
    if (!send_(bytes, count)) {
      throw InternalError("nobody reads");
    }
  }
  void number(uint64_t value) { raw(&value, sizeof(value)); }
  void text(const std::string& value, uint64_t limit = kMaxText) {
    number(std::min<uint64_t>(value.size(), limit));
    raw(value.data(), std::min<uint64_t>(value.size(), limit));
  }

  void group(hid_t id, const std::string& path, int depth) {
    if (depth > kMaxDepth) {
      throw Refused{"E405", fmt::format("groups are nested deeper than {}", kMaxDepth)};
    }
    send_name(id, path);
    H5G_info_t info;
    if (H5Gget_info(id, &info) < 0) {
      throw Refused{"E405", fmt::format("group `{}` is damaged", path)};
    }
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      if (++objects_ > kMaxObjects) {
        throw Refused{"E405", fmt::format("more than {} objects", kMaxObjects)};
      }
      link(id, path, i, depth);
    }
  }

  void link(hid_t id, const std::string& path, hsize_t index, int depth) {
    char name[kMaxText] = {};
    H5L_info_t info;
    const ssize_t length = H5Lget_name_by_idx(id, ".", H5_INDEX_NAME, H5_ITER_INC, index, name,
                                              sizeof(name), H5P_DEFAULT);
    if (length <= 0 || static_cast<size_t>(length) >= sizeof(name) ||
        H5Lget_info(id, name, &info, H5P_DEFAULT) < 0) {
      throw Refused{"E405", fmt::format("a link in group `{}` is damaged", path)};
    }
    const std::string child = path.empty() ? name : path + "/" + name;
    if (info.type != H5L_TYPE_HARD) {
      throw Refused{"E406",
                    fmt::format("`{}` is a soft or external link, which is refused", child)};
    }
    const H5Handle object(H5Oopen(id, name, H5P_DEFAULT), H5Oclose);
    if (!object.ok()) {
      throw Refused{"E405", fmt::format("object `{}` is damaged", child)};
    }
    if (H5Iget_type(object) == H5I_GROUP) {
      group(object, child, depth + 1);
    } else if (H5Iget_type(object) == H5I_DATASET) {
      dataset(object, child);
    }
  }

  // An attribute, where there is one of text: h5py writes it of any length, Keras 2 of a fixed one.
  static std::optional<std::string> text_attribute(hid_t id, const char* name, uint64_t limit) {
    if (H5Aexists(id, name) <= 0) {
      return std::nullopt;
    }
    const H5Handle attribute(H5Aopen(id, name, H5P_DEFAULT), H5Aclose);
    const H5Handle space(H5Aget_space(attribute), H5Sclose);
    const H5Handle type(H5Aget_type(attribute), H5Tclose);
    if (!type.ok() || !space.ok() || H5Sget_simple_extent_npoints(space) != 1 ||
        H5Tget_class(type) != H5T_STRING) {
      return std::nullopt;
    }
    if (H5Tis_variable_str(type) > 0) {
      char* value = nullptr;
      // Keras 2 marks its texts as ASCII, and the library converts no character sets.
      const H5Handle memory(H5Tcopy(type), H5Tclose);
      return H5Aread(attribute, memory, &value) >= 0 && value != nullptr
                 ? std::optional(std::string(value, strnlen(value, limit)))
                 : std::nullopt;
    }
    const size_t size = H5Tget_size(type);
    if (size > limit) {
      return std::nullopt;
    }
    std::string value(size, '\0');
    if (H5Aread(attribute, type, value.data()) < 0) {
      return std::nullopt;
    }
    value.resize(strnlen(value.data(), size));
    return value;
  }

  void send_name(hid_t id, const std::string& path) {
    if (const auto name = text_attribute(id, "name", kMaxText)) {
      put('N');
      text(path);
      text(*name);
    }
  }

  void send_root(hid_t root, char kind, const char* name) {
    if (const auto value = text_attribute(root, name, kMaxConfig)) {
      put(kind);
      text(*value, kMaxConfig);
    }
  }

  void dataset(hid_t id, const std::string& path) {
    const H5Handle space(H5Dget_space(id), H5Sclose);
    const H5Handle type(H5Dget_type(id), H5Tclose);
    const H5Handle properties(H5Dget_create_plist(id), H5Pclose);
    if (!space.ok() || !type.ok() || !properties.ok()) {
      throw Refused{"E405", fmt::format("dataset `{}` is damaged", path)};
    }
    if (H5Pget_layout(properties) == H5D_VIRTUAL || H5Pget_external_count(properties) != 0) {
      throw Refused{"E406",
                    fmt::format("dataset `{}` lies in other files, which is refused", path)};
    }
    if (H5Pget_nfilters(properties) != 0) {
      throw Refused{"E405",
                    fmt::format("dataset `{}` is compressed; Keras stores weights plain", path)};
    }
    const std::optional<DType> dtype = h5_dtype(type, id);
    const int rank = H5Sget_simple_extent_ndims(space);
    if (!dtype || rank < 0 || rank > kMaxH5Rank || H5Sget_simple_extent_type(space) == H5S_NULL) {
      throw Refused{"E405", fmt::format("dataset `{}` holds no array of numbers", path)};
    }
    hsize_t sizes[kMaxH5Rank] = {};
    H5Sget_simple_extent_dims(space, sizes, nullptr);
    send_elements(id, path, *dtype, {sizes, static_cast<size_t>(rank)});
  }

  void send_elements(hid_t id, const std::string& path, DType dtype,
                     std::span<const hsize_t> sizes) {
    uint64_t bytes = dtype_size(dtype);
    for (const hsize_t size : sizes) {
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
        bytes = UINT64_MAX;
        break;
      }
    }
    bytes = std::count(sizes.begin(), sizes.end(), 0) > 0 ? 0 : bytes;
    if (bytes > bytes_left_ || (bytes > 0 && H5Dget_storage_size(id) < bytes)) {
      throw Refused{"E405",
                    fmt::format("dataset `{}` declares more elements than the file holds", path)};
    }
    bytes_left_ -= bytes;
    std::vector<std::byte> elements(bytes);
    const H5Handle memory(h5_type(dtype), H5Tclose);
    const H5Handle stored(H5Dget_type(id), H5Tclose);
    const bool as_stored = dtype == DType::kBool || dtype == DType::kBFloat16;
    if (bytes > 0 && H5Dread(id, as_stored ? stored : memory, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                             elements.data()) < 0) {
      throw Refused{"E405", fmt::format("the elements of dataset `{}` cannot be read", path)};
    }
    put('D');
    text(path);
    number(static_cast<uint64_t>(dtype));
    number(sizes.size());
    raw(sizes.data(), sizes.size_bytes());
    raw(elements.data(), elements.size());
  }

  const IsolatedProcess::Send& send_;
  uint64_t bytes_left_;
  uint64_t objects_ = 0;
};

struct Source {
  std::string path;  // of the file, or what stands for it in messages
  std::span<const std::byte> image;
  bool in_memory = false;
  uint64_t bytes = 0;
};

void walk_file(const Source& source, const IsolatedProcess::Send& send) {
  prepare_h5();
  Walker walker(send, source.bytes);
  const H5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  if (source.in_memory) {
    H5Pset_fapl_core(access, 1 << 16, false);
    H5Pset_file_image(access, const_cast<std::byte*>(source.image.data()), source.image.size());
  }
  try {
    const H5Handle file(
        H5Fopen(source.in_memory ? "image.h5" : source.path.c_str(), H5F_ACC_RDONLY, access),
        H5Fclose);
    if (!file.ok()) {
      throw Refused{"E405", "the HDF5 file is damaged or truncated"};
    }
    walker.walk(file);
  } catch (const Refused& refused) {
    walker.refuse(refused);
  }
}

// The parent's side.
class Receiver {
 public:
  Receiver(IsolatedProcess& process, const Source& source) : process_(process), source_(source) {}

  H5File receive() {
    H5File out;
    uint64_t bytes_left = source_.bytes;
    for (char kind = 0;;) {
      need(&kind, 1);
      if (kind == 'Z') {
        const std::string reason = process_.finish();
        if (!reason.empty()) {
          damaged(reason);
        }
        return out;
      }
      if (kind == 'N') {
        const std::string group = text();
        out.names[group] = text();
      } else if (kind == 'M') {
        out.model_config = text(kMaxConfig);
      } else if (kind == 'T') {
        out.training_config = text(kMaxConfig);
      } else if (kind == 'V') {
        out.keras_version = text(kMaxConfig);
      } else if (kind == 'D') {
        out.datasets.push_back(dataset(bytes_left));
      } else if (kind == 'E') {
        const std::string code = text();
        const std::string message = without_controls(text());
        read_error(code == "E406" ? "E406" : "E405", source_.path, "{}", message);
      } else {
        damaged("the reader lost its way");
      }
    }
  }

 private:
  [[noreturn]] void damaged(const std::string& why) {
    read_error("E405", source_.path, "the HDF5 file is damaged: {}", why);
  }
  void need(void* to, size_t count) {
    if (!process_.receive(to, count)) {
      const std::string reason = process_.finish();
      damaged(reason.empty() ? "the reader stopped early" : reason);
    }
  }
  uint64_t number(uint64_t limit) {
    uint64_t value = 0;
    need(&value, sizeof(value));
    if (value > limit) {
      damaged("the reader lost its way");
    }
    return value;
  }
  std::string text(uint64_t limit = kMaxText) {
    std::string out(number(limit), '\0');
    need(out.data(), out.size());
    return out;
  }
  NamedTensor dataset(uint64_t& bytes_left) {
    NamedTensor out;
    out.name = text();
    const auto dtype = static_cast<DType>(number(static_cast<uint64_t>(DType::kFloat64)));
    Shape shape(number(kMaxH5Rank));
    uint64_t bytes = dtype_size(dtype);
    bool is_empty = false;
    for (int64_t& size : shape) {
      size = static_cast<int64_t>(number(INT64_MAX));
      is_empty = is_empty || size == 0;
    }
    for (const int64_t size : shape) {
      if (!is_empty && __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
        damaged("the reader lost its way");
      }
    }
    bytes = is_empty ? 0 : bytes;
    if (bytes > bytes_left) {
      damaged("the reader lost its way");
    }
    bytes_left -= bytes;
    out.tensor = HostTensor(dtype, std::move(shape));
    need(out.tensor.bytes(), bytes);
    return out;
  }

  IsolatedProcess& process_;
  const Source& source_;
};

H5File read_source_file(const Source& source, std::span<const std::byte> begin) {
  constexpr unsigned char kSignature[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  if (begin.size() < sizeof(kSignature) ||
      std::memcmp(begin.data(), kSignature, sizeof(kSignature)) != 0) {
    read_error(
        "E405", source.path, "not an HDF5 file (first bytes {})",
        begin.empty() ? "missing" : hex_bytes(begin.first(std::min<size_t>(8, begin.size()))));
  }
  IsolateLimits limits;
  limits.memory_bytes += 4 * source.bytes;
  limits.cpu_seconds = 5 + static_cast<int>(source.bytes >> 27);  // 128 MiB a second
  IsolatedProcess process(limits,
                          [&](const IsolatedProcess::Send& send) { walk_file(source, send); });
  return Receiver(process, source).receive();
}

}  // namespace

H5File read_h5(const std::string& path) {
  const InputFile file = open_input(path, "E404", "E404");
  std::byte begin[8];
  const size_t count = std::min<uint64_t>(sizeof(begin), file.size());
  file.read_at(0, begin, count);
  return read_source_file({path, {}, false, file.size()}, {begin, count});
}

H5File read_h5(std::span<const std::byte> image, const std::string& name) {
  return read_source_file({name, image, true, image.size()}, image);
}

}  // namespace meshtrain
