#include "tensor/h5_server.h"

#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/suggest.h"
#include "base/text.h"
#include "tensor/h5_handle.h"

namespace meshtrain {
namespace {

constexpr int kMaxNesting = 64;
constexpr unsigned kMaxSeconds = 60;  // for one request
constexpr uint64_t kMaxChunk = uint64_t{1} << 30;
constexpr uint64_t kMaxDeflateRatio = 1032;  // of deflate
constexpr size_t kChunkCache = size_t{64} << 20;

struct Refusal {
  std::string message;
};

struct Opened {
  H5Handle dataset;
  H5Handle memory;  // type of the elements as they are sent
  std::vector<hsize_t> sizes;
  uint64_t row_bytes;
};

class Server {
 public:
  Server(const IsolatedProcess::Send& send, const IsolatedProcess::Receive& receive)
      : send_(send), receive_(receive) {}

  void serve(const std::string& path) {
    std::unique_ptr<H5Handle> file;
    alarm(kMaxSeconds);
    answer([&] {
      file =
          std::make_unique<H5Handle>(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
      if (!file->ok()) {
        throw Refusal{"the HDF5 file is damaged or truncated"};
      }
      const H5Handle root(H5Gopen2(*file, "/", H5P_DEFAULT), H5Gclose);
      list(root, "", 0);
      put('N');
      number(names_.size());
      std::for_each(names_.begin(), names_.end(), [&](const std::string& name) { text(name); });
    });
    alarm(0);
    for (char kind = 0; receive_(&kind, 1);) {
      if (kind == 'O') {
        const std::string name = asked_text();
        alarm(kMaxSeconds);
        answer([&] { open(*file, name); });
      } else {
        const uint64_t id = asked_number();
        std::vector<int64_t> order(asked_number());
        receive_(order.data(), order.size() * sizeof(int64_t));
        answer([&] { read(*opened_.at(id), order); });
      }
      alarm(0);
    }
  }

 private:
  template <class F>
  void answer(F&& function) {
    try {
      function();
    } catch (const Refusal& refused) {
      put('E');
      text(refused.message);
    }
  }

  void raw(const void* bytes, size_t count) {
    if (!send_(bytes, count)) {
      throw InternalError("nobody reads");
    }
  }
  void put(char kind) { raw(&kind, 1); }
  void number(uint64_t value) { raw(&value, sizeof(value)); }
  void text(const std::string& value) {
    number(std::min<size_t>(value.size(), kMaxH5Text));
    raw(value.data(), std::min<size_t>(value.size(), kMaxH5Text));
  }
  uint64_t asked_number() {
    uint64_t value = 0;
    receive_(&value, sizeof(value));
    return value;
  }
  std::string asked_text() {
    std::string value(asked_number(), '\0');
    receive_(value.data(), value.size());
    return value;
  }

  // Datasets that can be reached without soft and external links.
  void list(hid_t group, const std::string& path, int depth) {
    H5G_info_t info;
    if (depth > kMaxNesting || H5Gget_info(group, &info) < 0) {
      throw Refusal{fmt::format("group `{}` is damaged, or nested too deep", path)};
    }
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      char name[kMaxH5Text] = {};
      H5L_info_t link;
      if (++objects_ > kMaxH5Objects ||
          H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof(name),
                             H5P_DEFAULT) <= 0 ||
          H5Lget_info(group, name, &link, H5P_DEFAULT) < 0) {
        throw Refusal{fmt::format("a link in group `{}` is damaged, or there are too many", path)};
      }
      if (link.type != H5L_TYPE_HARD) {
        continue;
      }
      const H5Handle object(H5Oopen(group, name, H5P_DEFAULT), H5Oclose);
      const std::string child = path.empty() ? name : path + "/" + name;
      if (object.ok() && H5Iget_type(object) == H5I_GROUP) {
        list(object, child, depth + 1);
      } else if (object.ok() && H5Iget_type(object) == H5I_DATASET) {
        names_.push_back(child);
      }
    }
  }

  // Every part of the path must be there, and no link elsewhere.
  void check_links(hid_t file, const std::string& name) const {
    std::string path;
    for (const std::string& part : split(name, '/')) {
      path += path.empty() ? part : "/" + part;
      H5L_info_t link;
      if (H5Lget_info(file, path.c_str(), &link, H5P_DEFAULT) < 0) {
        throw Refusal{fmt::format("there is no dataset `{}`; datasets: {}", name,
                                  names_.empty() ? "none" : known_names(name, names_))};
      }
      if (link.type != H5L_TYPE_HARD) {
        throw Refusal{fmt::format("`{}` is {} link, which is refused", path,
                                  link.type == H5L_TYPE_SOFT ? "a soft" : "an external")};
      }
    }
  }

  static void check_filters(hid_t properties, const std::string& name) {
    const int count = H5Pget_nfilters(properties);
    for (int i = 0; i < count; ++i) {
      char filter[64] = {};
      unsigned flags = 0, configuration = 0;
      size_t values = 0;
      const H5Z_filter_t id = H5Pget_filter2(properties, static_cast<unsigned>(i), &flags, &values,
                                             nullptr, sizeof(filter), filter, &configuration);
      if (id != H5Z_FILTER_DEFLATE && id != H5Z_FILTER_SHUFFLE && id != H5Z_FILTER_FLETCHER32) {
        throw Refusal{
            fmt::format("dataset `{}` uses the filter {} ({}); gzip, shuffle and fletcher32 "
                        "can be read",
                        name, static_cast<int>(id), filter)};
      }
    }
  }

  // The stored bytes must be able to hold the elements, all of which must have been written.
  static void check_storage(hid_t dataset, hid_t properties, const std::string& name,
                            std::span<const hsize_t> sizes, uint64_t element) {
    uint64_t bytes = element, chunks = 1;
    hsize_t chunk[kMaxH5Rank] = {};
    const bool is_chunked = H5Pget_layout(properties) == H5D_CHUNKED;
    const auto rank = static_cast<int>(sizes.size());
    if (is_chunked && H5Pget_chunk(properties, rank, chunk) != rank) {
      throw Refusal{fmt::format("dataset `{}` is damaged", name)};
    }
    uint64_t chunk_bytes = element;
    bool fits = true;
    for (size_t i = 0; i < sizes.size(); ++i) {
      fits = fits && sizes[i] > 0 && !__builtin_mul_overflow(bytes, sizes[i], &bytes);
      if (fits && is_chunked) {
        fits = chunk[i] > 0 && !__builtin_mul_overflow(chunk_bytes, chunk[i], &chunk_bytes) &&
               !__builtin_mul_overflow(chunks, (sizes[i] - 1) / chunk[i] + 1, &chunks) &&
               chunk_bytes <= kMaxChunk;
      }
    }
    if (std::find(sizes.begin(), sizes.end(), hsize_t{0}) != sizes.end()) {
      return;  // no elements at all
    }
    const uint64_t stored = H5Dget_storage_size(dataset);
    const uint64_t ratio = is_chunked ? kMaxDeflateRatio : 1;
    if (!fits || bytes > static_cast<uint64_t>(INT64_MAX) || bytes / ratio > stored) {
      throw Refusal{fmt::format("dataset `{}` declares more elements than its {} can hold", name,
                                format_bytes(static_cast<int64_t>(stored)))};
    }
    hsize_t written = 0;
    const H5Handle space(H5Dget_space(dataset), H5Sclose);
    if (is_chunked && (H5Dget_num_chunks(dataset, space, &written) < 0 || written != chunks)) {
      throw Refusal{fmt::format("of dataset `{}` only {} of {} chunks were ever written", name,
                                written, chunks)};
    }
  }

  void open(hid_t file, const std::string& name) {
    check_links(file, name);
    const H5Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    H5Pset_chunk_cache(access, 12421, kChunkCache, 0.75);  // slots: a prime far above the chunks
    const H5Handle dataset(H5Dopen2(file, name.c_str(), access), H5Dclose);
    const H5Handle space(H5Dget_space(dataset), H5Sclose);
    const H5Handle type(H5Dget_type(dataset), H5Tclose);
    const H5Handle properties(H5Dget_create_plist(dataset), H5Pclose);
    if (!dataset.ok() || !space.ok() || !type.ok() || !properties.ok()) {
      throw Refusal{fmt::format("`{}` is no dataset, or a damaged one", name)};
    }
    if (H5Pget_layout(properties) == H5D_VIRTUAL || H5Pget_external_count(properties) != 0) {
      throw Refusal{fmt::format("dataset `{}` lies in other files, which is refused", name)};
    }
    check_filters(properties, name);
    const std::optional<DType> dtype = h5_dtype(type, dataset);
    const int rank = H5Sget_simple_extent_ndims(space);
    const bool is_scalar = H5Sget_simple_extent_type(space) == H5S_SCALAR;
    if (!dtype || rank < (is_scalar ? 0 : 1) || rank > static_cast<int>(kMaxH5Rank) ||
        (!is_scalar && H5Sget_simple_extent_type(space) != H5S_SIMPLE)) {
      throw Refusal{fmt::format("dataset `{}` holds no array of numbers", name)};
    }
    std::vector<hsize_t> sizes(is_scalar ? 1 : static_cast<size_t>(rank), 1);
    if (!is_scalar) {
      H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
    }
    check_storage(dataset, properties, name, sizes, dtype_size(*dtype));
    const bool as_stored = *dtype == DType::kBool || *dtype == DType::kBFloat16;
    put('D');
    number(static_cast<uint64_t>(*dtype));
    number(H5Pget_layout(properties) == H5D_CHUNKED ? 1 : 0);
    number(sizes.size());
    raw(sizes.data(), sizes.size() * sizeof(hsize_t));
    uint64_t row_bytes = dtype_size(*dtype);
    for (size_t i = 1; i < sizes.size(); ++i) {
      row_bytes *= sizes[i];
    }
    H5Iinc_ref(dataset);
    opened_.push_back(
        std::unique_ptr<Opened>(new Opened{{dataset, H5Dclose},
                                           {as_stored ? H5Tcopy(type) : h5_type(*dtype), H5Tclose},
                                           std::move(sizes),
                                           row_bytes}));
  }

  void read(const Opened& opened, std::span<const int64_t> order) {
    std::vector<std::byte> bytes;
    while (!order.empty()) {
      alarm(kMaxSeconds);
      const size_t count = h5_run(order, opened.row_bytes);
      bytes.resize(count * opened.row_bytes);
      read_run(opened, static_cast<hsize_t>(order[0]), count, bytes.data());
      put('K');
      raw(bytes.data(), bytes.size());
      order = order.subspan(count);
    }
  }

  static void read_run(const Opened& opened, hsize_t begin, hsize_t count, void* to) {
    std::vector<hsize_t> start(opened.sizes.size()), sizes = opened.sizes;
    start[0] = begin;
    sizes[0] = count;
    const H5Handle from(H5Dget_space(opened.dataset), H5Sclose);
    const H5Handle into(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                        H5Sclose);
    const bool is_scalar = H5Sget_simple_extent_type(from) == H5S_SCALAR;
    if ((!is_scalar && H5Sselect_hyperslab(from, H5S_SELECT_SET, start.data(), nullptr,
                                           sizes.data(), nullptr) < 0) ||
        H5Dread(opened.dataset, opened.memory, into, from, H5P_DEFAULT, to) < 0) {
      throw Refusal{fmt::format("rows {} to {} are damaged", begin, begin + count - 1)};
    }
  }

  const IsolatedProcess::Send& send_;
  const IsolatedProcess::Receive& receive_;
  uint64_t objects_ = 0;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Opened>> opened_;
};

}  // namespace

size_t h5_run(std::span<const int64_t> order, uint64_t row_bytes) {
  const uint64_t most = std::max<uint64_t>(1, kH5RunBytes / std::max<uint64_t>(1, row_bytes));
  size_t count = 1;
  while (count < order.size() && count < most &&
         order[count] == order[0] + static_cast<int64_t>(count)) {
    ++count;
  }
  return count;
}

void serve_h5(const std::string& path, const IsolatedProcess::Send& send,
              const IsolatedProcess::Receive& receive) {
  prepare_h5();
  Server(send, receive).serve(path);
}

}  // namespace meshtrain
