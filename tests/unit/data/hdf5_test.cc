#include <doctest/doctest.h>
#include <hdf5.h>
#include <signal.h>

#include <filesystem>
#include <thread>

#include "base/file.h"
#include "data/guess_source.h"
#include "data/sources.h"
#include "source_config.h"
#include "support/malformed.h"
#include "tensor/h5_datasets.h"
#include "tensor/h5_handle.h"

namespace meshtrain {
namespace {

using namespace test;

// How a dataset of a test lies in its file.
struct Layout {
  hid_t stored = H5T_IEEE_F32LE;
  std::vector<hsize_t> chunk = {};
  bool is_packed = false;
  bool is_written = true;
};

// Writes numbers 0, 1, 2, ... of the shape.
void add_dataset(hid_t file, const char* name, std::vector<hsize_t> sizes, const Layout& layout) {
  const H5Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links, 1);
  const H5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (!layout.chunk.empty()) {
    H5Pset_chunk(properties, static_cast<int>(layout.chunk.size()), layout.chunk.data());
  }
  if (layout.is_packed) {
    H5Pset_shuffle(properties);
    H5Pset_deflate(properties, 6);
    H5Pset_fletcher32(properties);
  }
  const H5Handle space(
      sizes.empty() ? H5Screate(H5S_SCALAR)
                    : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
      H5Sclose);
  const H5Handle dataset(
      H5Dcreate2(file, name, layout.stored, space, links, properties, H5P_DEFAULT), H5Dclose);
  REQUIRE(dataset.ok());
  if (!layout.is_written) {
    return;
  }
  hsize_t count = 1;
  for (const hsize_t size : sizes) {
    count *= size;
  }
  std::vector<double> values(count);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(i);
  }
  REQUIRE(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
}

using Fill = std::function<void(hid_t file)>;
std::string write_file(const TempFolder& folder, const char* name, const Fill& fill) {
  prepare_h5();
  const std::string path = folder.file(name);
  const H5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  REQUIRE(file.ok());
  fill(file);
  return path;
}

std::vector<double> read_rows(const Rows& rows, const std::vector<int64_t>& order) {
  Shape shape = rows.shape();
  shape[0] = static_cast<int64_t>(order.size());
  HostTensor tensor(rows.dtype(), shape);
  rows.read(order, tensor.bytes());
  std::vector<double> out;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    out.push_back(tensor.at(i));
  }
  return out;
}
using Values = std::vector<double>;

ConfigObject hdf5_source(const char* path, const char* x = "x") {
  return object("hdf5", {{"path", value(path)},
                         {"x", value(x)},
                         {"y", default_value("y")},
                         {"sample_weight", null_value()},
                         {"slice", null_value()}});
}

TEST_CASE("hdf5: rows of every type and layout in any order") {
  const TempFolder folder;
  const H5Handle half(h5_type(DType::kFloat16), H5Tclose);
  const H5Handle swapped(H5Tcopy(half), H5Tclose);
  H5Tset_order(swapped, H5T_ORDER_BE);
  const std::tuple<const char*, hid_t, DType> types[] = {
      {"u8", H5T_STD_U8LE, DType::kUInt8},      {"i8", H5T_STD_I8BE, DType::kInt8},
      {"u16", H5T_STD_U16BE, DType::kUInt16},   {"i16", H5T_STD_I16LE, DType::kInt16},
      {"i32", H5T_STD_I32BE, DType::kInt32},    {"u32", H5T_STD_U32LE, DType::kUInt32},
      {"i64", H5T_STD_I64BE, DType::kInt64},    {"u64", H5T_STD_U64BE, DType::kUInt64},
      {"f16", half, DType::kFloat16},           {"f16be", swapped, DType::kFloat16},
      {"f32", H5T_IEEE_F32BE, DType::kFloat32}, {"f64", H5T_IEEE_F64BE, DType::kFloat64},
  };
  const std::string path = write_file(folder, "a.h5", [&](hid_t file) {
    for (const auto& [name, stored, dtype] : types) {
      add_dataset(file, (std::string("plain/") + name).c_str(), {5, 2}, {.stored = stored});
      add_dataset(file, (std::string("packed/") + name).c_str(), {5, 2},
                  {.stored = stored, .chunk = {2, 2}, .is_packed = true});
    }
  });
  for (const auto& [name, stored, dtype] : types) {
    for (const char* group : {"plain/", "packed/"}) {
      const std::string dataset = std::string(group) + name;
      CAPTURE(dataset);
      const Dataset read = read_source(hdf5_source(path.c_str(), dataset.c_str()), "");
      const Rows& rows = *read.inputs[0].rows;
      CHECK(read.targets.empty());
      CHECK(rows.dtype() == dtype);
      CHECK(rows.shape() == Shape{5, 2});
      CHECK(read_rows(rows, {4, 1, 2, 1}) == Values{8, 9, 2, 3, 4, 5, 2, 3});
      CHECK(read_rows(rows, {0, 1, 2, 3, 4}) == Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
      CHECK(read_rows(rows, {}) == Values{});
      const std::string from_root = "/" + dataset;
      CHECK(read_source(hdf5_source(path.c_str(), from_root.c_str()), "").inputs.size() == 1);
    }
  }
}

TEST_CASE("hdf5: enumerations are their numbers, but for h5py's bool") {
  const TempFolder folder;
  const auto enumeration = [](hid_t base, std::vector<std::pair<const char*, int64_t>> members) {
    const hid_t type = H5Tenum_create(base);
    for (const auto& [name, number] : members) {
      int64_t value = number;  // little-endian: its first bytes are those of narrower types
      H5Tenum_insert(type, name, &value);
    }
    return type;
  };
  const H5Handle signs(enumeration(H5T_STD_I8LE, {{"minus", -1}, {"zero", 0}, {"plus", 1}}),
                       H5Tclose);
  const H5Handle codes(enumeration(H5T_STD_I16LE, {{"low", -300}, {"high", 300}}), H5Tclose);
  const H5Handle truth(enumeration(H5T_STD_I8LE, {{"FALSE", 0}, {"TRUE", 1}}), H5Tclose);
  const std::string path = write_file(folder, "a.h5", [&](hid_t file) {
    const auto add = [&](const char* name, hid_t type, const void* elements) {
      const hsize_t sizes[] = {3};
      const H5Handle space(H5Screate_simple(1, sizes, nullptr), H5Sclose);
      const H5Handle dataset(
          H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
      REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements) >= 0);
    };
    const int8_t three[] = {1, -1, 0}, flags[] = {1, 0, 1};
    const int16_t two[] = {300, -300, 300};
    add("signs", signs, three);
    add("codes", codes, two);
    add("truth", truth, flags);
  });
  const std::tuple<const char*, DType, Values> wanted[] = {
      {"signs", DType::kInt8, {1, -1, 0}},
      {"codes", DType::kInt16, {300, -300, 300}},
      {"truth", DType::kBool, {1, 0, 1}}};
  for (const auto& [name, dtype, numbers] : wanted) {
    CAPTURE(name);
    const Dataset read = read_source(hdf5_source(path.c_str(), name), "");
    CHECK(read.inputs[0].rows->dtype() == dtype);
    CHECK(read_rows(*read.inputs[0].rows, {0, 1, 2}) == numbers);
  }
}

TEST_CASE("hdf5: inputs and labels and weights of several files") {
  const TempFolder folder;
  for (const char* name : {"a0.h5", "a1.h5"}) {
    write_file(folder, name, [](hid_t file) {
      add_dataset(file, "x", {2, 3}, {});
      add_dataset(file, "y", {2}, {.stored = H5T_STD_I64LE});
      add_dataset(file, "w", {2}, {.stored = H5T_IEEE_F64LE});
    });
  }
  ConfigObject source = hdf5_source("a*.h5");
  source.args["sample_weight"] = value("w");
  DataConfig data;
  data.base_dir = folder.path();
  const Dataset dataset = load_dataset(source, data);
  CHECK(dataset.num_samples == 4);
  CHECK(dataset.description == "hdf5 a*.h5 (4 samples)");
  CHECK(read_rows(*dataset.inputs[0].rows, {3, 0}) == Values{3, 4, 5, 0, 1, 2});
  CHECK(read_rows(*dataset.targets[0].rows, {0, 1, 2, 3}) == Values{0, 1, 0, 1});
  REQUIRE(dataset.sample_weight != nullptr);
  CHECK(dataset.sample_weight->dtype() == DType::kFloat32);
}

TEST_CASE("hdf5: compressed datasets and single numbers of a file can be looked into") {
  const TempFolder folder;
  const std::string path = write_file(folder, "a.h5", [&](hid_t file) {
    add_dataset(file, "x", {5, 2}, {.chunk = {2, 2}, .is_packed = true});
    add_dataset(file, "vars/step", {}, {.stored = H5T_STD_I64LE});
  });
  std::string found;
  const Guessed guessed = read_guessed(path, [&](const std::string& name, const Rows& rows, bool) {
    found += fmt::format("{} {} {}\n", name, dtype_name(rows.dtype()), shape_string(rows.shape()));
    CHECK(read_rows(rows, {0})[0] == 0);
  });
  CHECK(guessed.description == "HDF5 " + path);
  CHECK(found == "vars/step int64 (1,)\nx float32 (5, 2)\n");
}

TEST_CASE("hdf5: rows that are larger than a run and many threads") {
  const TempFolder folder;
  const std::string path = write_file(folder, "a.h5", [](hid_t file) {
    add_dataset(file, "x", {300, 10000}, {.stored = H5T_STD_I32LE, .chunk = {7, 1000}});
  });
  const Dataset dataset = read_source(hdf5_source(path.c_str()), "");
  const Rows& rows = *dataset.inputs[0].rows;
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<int64_t> order;
      for (int64_t i = 0; i < 300; ++i) {
        order.push_back((i * 7 + t) % 300);
      }
      const Values values = read_rows(rows, t == 0 ? std::vector<int64_t>{299, 0} : order);
      for (size_t i = 0; i < values.size(); ++i) {
        const int64_t row = t == 0 ? (i < 10000 ? 299 : 0) : order[i / 10000];
        good[t] += values[i] == static_cast<double>(row * 10000 + static_cast<int64_t>(i % 10000));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(good == std::vector<int>{20000, 3000000, 3000000, 3000000});
}

TEST_CASE("hdf5: files larger than what is read of them take little memory") {
  const TempFolder folder;
  const std::string path = write_file(folder, "a.h5", [](hid_t file) {
    add_dataset(file, "x", {20000, 1000}, {});
  });
  const MemoryMeter memory;
  const Dataset dataset = read_source(hdf5_source(path.c_str()), "");
  int64_t sum = 0;
  for (int64_t begin = 0; begin < 20000; begin += 100) {
    sum += static_cast<int64_t>(dataset.inputs[0].rows->read_range(begin, begin + 100).at(1) == 0);
  }
  CHECK(sum == 0);
  CHECK(memory.peak() < (size_t{16} << 20));
}

TEST_CASE("hdf5: links and other files and filters and unwritten parts are refused") {
  const TempFolder folder;
  write_file(folder, "other.h5", [](hid_t file) { add_dataset(file, "x", {3}, {}); });
  const std::string raw = folder.write("raw.bin", std::string(12, '\0'));
  const std::string other = folder.file("other.h5");
  const std::tuple<const char*, Fill, const char*> table[] = {
      {"soft link",
       [](hid_t file) {
         add_dataset(file, "real", {3}, {});
         H5Lcreate_soft("/real", file, "x", H5P_DEFAULT, H5P_DEFAULT);
       },
       "`x` is a soft link, which is refused"},
      {"external link",
       [&](hid_t file) {
         H5Lcreate_external(other.c_str(), "x", file, "x", H5P_DEFAULT, H5P_DEFAULT);
       },
       "`x` is an external link, which is refused"},
      {"external storage",
       [&](hid_t file) {
         const hsize_t size = 3;
         const H5Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
         const H5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
         H5Pset_external(properties, raw.c_str(), 0, 12);
         H5Dclose(
             H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
       },
       "`x` lies in other files, which is refused"},
      {"virtual dataset",
       [&](hid_t file) {
         const hsize_t size = 3;
         const H5Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
         const H5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
         H5Pset_virtual(properties, space, other.c_str(), "x", space);
         H5Dclose(
             H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
       },
       "`x` lies in other files, which is refused"},
      {"user filter",
       [](hid_t file) {
         const hsize_t size = 3;
         const H5Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
         const H5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
         H5Pset_chunk(properties, 1, &size);
         H5Pset_filter(properties, 32000, H5Z_FLAG_OPTIONAL, 0, nullptr);
         H5Dclose(
             H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
       },
       "uses the filter 32000"},
      {"never written", [](hid_t file) { add_dataset(file, "x", {3}, {.is_written = false}); },
       "declares more elements than its 0 B can hold"},
      {"bomb of fill values",
       [](hid_t file) {
         add_dataset(file, "x", {hsize_t{1} << 40, 1000},
                     {.chunk = {1, 1000}, .is_packed = true, .is_written = false});
       },
       "declares more elements than"},
      {"sizes that overflow",
       [](hid_t file) {
         add_dataset(file, "x", {hsize_t{1} << 40, hsize_t{1} << 40},
                     {.chunk = {1, 1}, .is_written = false});
       },
       "declares more elements than"},
      {"only some chunks",
       [](hid_t file) {
         const hsize_t sizes[] = {1000}, chunk = 10, begin = 0;
         const H5Handle space(H5Screate_simple(1, sizes, nullptr), H5Sclose);
         const H5Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
         H5Pset_chunk(properties, 1, &chunk);
         H5Pset_deflate(properties, 1);
         const H5Handle dataset(
             H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT),
             H5Dclose);
         H5Sselect_hyperslab(space, H5S_SELECT_SET, &begin, nullptr, &chunk, nullptr);
         const H5Handle part(H5Screate_simple(1, &chunk, nullptr), H5Sclose);
         const float values[10] = {};
         H5Dwrite(dataset, H5T_NATIVE_FLOAT, part, space, H5P_DEFAULT, values);
       },
       "only 1 of 100 chunks were ever written"},
      {"group", [](hid_t file) { add_dataset(file, "x/inner", {3}, {}); }, "`x` is no dataset"},
      {"text",
       [](hid_t file) {
         const H5Handle type(h5_text_type(), H5Tclose);
         const H5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
         H5Dclose(H5Dcreate2(file, "x", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
       },
       "holds no array of numbers"},
      {"no such name", [](hid_t file) { add_dataset(file, "images", {3}, {}); },
       "there is no dataset `x`; datasets: images"},
  };
  for (const auto& [what, fill, says] : table) {
    CAPTURE(what);
    const std::string path = write_file(folder, "bad.h5", fill);
    const Caught error = caught([&] { read_source(hdf5_source("bad.h5"), folder.path()); });
    CAPTURE(error.text);
    CHECK(error.code == "E320");
    CHECK(error.exit_code == 3);
    CHECK(error.says(says));
    CHECK(error.says("bad.h5"));
    CHECK(error.says("test.yaml:2:3"));
  }
}

TEST_CASE("hdf5: damaged and truncated files") {
  const TempFolder folder;
  const std::string path = write_file(folder, "a.h5", [](hid_t file) {
    add_dataset(file, "x", {50, 4}, {.chunk = {5, 4}, .is_packed = true});
  });
  const std::string whole = read_file(path, 1 << 20);
  const auto read = [](const std::string& name) {
    const Dataset dataset = read_source(hdf5_source(name.c_str()), "");
    dataset.inputs[0].rows->read_range(0, dataset.inputs[0].rows->size());
  };
  read(path);
  for (const auto& [content, says] : {std::pair<std::string, const char*>{"", "not an HDF5 file"},
                                      {"\x93NUMPY\x01", "not an HDF5 file"},
                                      {whole.substr(0, whole.size() / 2), "damaged"},
                                      {whole.substr(0, 100), "damaged"}}) {
    const Caught error = caught([&] { read(folder.write("bad.h5", content)); });
    CHECK(error.code == "E320");
    CHECK(error.says(says));
  }
  std::string flipped = whole;  // a bit of the last chunk, whose checksum finds it
  flipped[flipped.size() - 30] ^= 1;
  const Caught error = caught([&] { read(folder.write("bad.h5", flipped)); });
  CHECK(error.code == "E320");
  CHECK(error.says("rows"));
  check_bit_flips(whole, "flip.h5", 3, 60, read);
}

TEST_CASE("hdf5: a file that changes during a run is found") {
  const TempFolder folder;
  const std::string path =
      write_file(folder, "a.h5", [](hid_t file) { add_dataset(file, "x", {5}, {}); });
  const Dataset dataset = read_source(hdf5_source(path.c_str()), "");
  CHECK(read_rows(*dataset.inputs[0].rows, {4}) == Values{4});
  std::filesystem::last_write_time(path, std::filesystem::file_time_type{});
  const Caught error = caught([&] { read_rows(*dataset.inputs[0].rows, {4}); });
  CHECK(error.code == "E321");
  CHECK(error.exit_code == 3);
}

}  // namespace
}  // namespace meshtrain
