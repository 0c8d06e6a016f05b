// Rows that stay in files: that they are those of the arrays, and what they say when they cannot.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>

#include "data/dataset.h"
#include "data/file_rows.h"
#include "data/idx.h"
#include "data/numpy_rows.h"
#include "rows_testing.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

using namespace test;

TEST_CASE("rows of .npy files of every type stay in the file and are those of the array") {
  const TempFolder folder;
  for (const DType dtype : {DType::kUInt8, DType::kInt16, DType::kFloat32, DType::kFloat64,
                            DType::kBool, DType::kFloat16}) {
    CAPTURE(dtype_name(dtype));
    const HostTensor tensor = pattern(dtype, {10, 3, 2});
    write_npy(folder.file("a.npy"), tensor);
    const RowsPtr rows = npy_rows(folder.file("a.npy"), {});
    CHECK(rows->cost() == Cost::kFile);
    CHECK(rows->tensor() == nullptr);
    check_same(*rows, tensor);
  }
}

TEST_CASE("rows of .npy files with big-endian or column-major elements are converted") {
  const TempFolder folder;
  const auto write = [&](const char* order, const char* shape, std::string_view data) {
    std::string header =
        fmt::format("{{'descr': '>i2', 'fortran_order': {}, 'shape': {}, }}", order, shape);
    header.append(117 - header.size(), ' ');
    return folder.write("a.npy",
                        std::string("\x93NUMPY\1\0\x76\0", 10) + header + "\n" + std::string(data));
  };
  const std::string data("\0\1\0\2\0\3\1\0", 8);
  const RowsPtr big = npy_rows(write("False", "(4,)", data), {});
  CHECK(big->cost() == Cost::kFile);
  CHECK(big->read_range(2, 4).at(1) == 256);
  const RowsPtr columns = npy_rows(write("True", "(2, 2)", data), {});
  CHECK(columns->tensor() != nullptr);
  CHECK(columns->read_range(1, 2).at(0) == 2);
  CHECK(columns->read_range(1, 2).at(1) == 256);
}

// What numpy.savez_compressed writes, of one array.
void write_deflated(const std::string& path, const std::string& name, const HostTensor& tensor,
                    bool is_cut = false) {
  const std::string header = npy_header(tensor.dtype(), tensor.shape());
  std::string whole = header;
  whole.append(reinterpret_cast<const char*>(tensor.bytes()), tensor.num_bytes());
  std::string deflated(compressBound(whole.size()), '\0');
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(whole.data());
  stream.avail_in = static_cast<uInt>(whole.size());
  stream.next_out = reinterpret_cast<Bytef*>(deflated.data());
  stream.avail_out = static_cast<uInt>(deflated.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  deflated.resize(stream.total_out);
  deflateEnd(&stream);
  const auto crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(whole.data()), static_cast<uInt>(whole.size())));
  const auto number = [](uint64_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) {
      out += static_cast<char>(value >> 8 * i & 0xff);
    }
    return out;
  };
  const std::string member = name + ".npy";
  const std::string common = number(20, 2) + number(0, 2) + number(8, 2) + number(0, 4) +
                             number(is_cut ? crc + 1 : crc, 4) + number(deflated.size(), 4) +
                             number(whole.size(), 4) + number(member.size(), 2) + number(0, 2);
  const std::string local = "PK\3\4" + common + member + deflated;
  const std::string entry = "PK\1\2" + number(20, 2) + common + std::string(14, '\0') + member;
  std::ofstream(path, std::ios::binary)
      << local << entry << "PK\5\6" << number(0, 4) << number(1, 2) << number(1, 2)
      << number(entry.size(), 4) << number(local.size(), 4) << number(0, 2);
}

TEST_CASE("rows of .npz archives: stored members stay there and deflated ones are streamed") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors;
  tensors.push_back({"first", pattern(DType::kInt32, {3})});
  tensors.push_back({"x", pattern(DType::kFloat32, {10, 7})});
  tensors.push_back({"y", pattern(DType::kUInt8, {10})});
  write_npz(folder.file("stored.npz"), tensors);
  const NpzFile stored(folder.file("stored.npz"), {});
  CHECK(stored.has("y"));
  CHECK(!stored.has("z"));
  CHECK(stored.rows("x")->cost() == Cost::kFile);
  check_same(*stored.rows("x"), tensors[1].tensor);
  check_same(*stored.rows("y"), tensors[2].tensor);
  write_deflated(folder.file("deflated.npz"), "x", tensors[1].tensor);
  const NpzFile deflated(folder.file("deflated.npz"), {});
  CHECK(deflated.rows("x")->cost() == Cost::kInOrder);
  check_same(*deflated.rows("x"), tensors[1].tensor);
}

TEST_CASE("the checksum of an archive's member is compared when all of it was read") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", pattern(DType::kFloat32, {10, 7})});
  write_npz(folder.file("a.npz"), tensors);
  std::string bytes = folder.read("a.npz");
  bytes[200] = static_cast<char>(bytes[200] ^ 1);  // within the elements
  folder.write("a.npz", bytes);
  const RowsPtr stored = NpzFile(folder.file("a.npz"), {}).rows("x");
  read(*stored, {1, 2});
  CHECK(caught([&] { stored->read_range(0, 10); }).code == "E306");
  CHECK(caught([&] {
          const RowsPtr parts = NpzFile(folder.file("a.npz"), {}).rows("x");
          read(*parts, {0, 1, 2, 3});
          read(*parts, {7, 2});  // of another order: no part of the checksum
          read(*parts, {4, 5, 6, 7, 8, 9});
        }).code == "E306");
  std::vector<NamedTensor> many;  // more rows than are read at once
  many.push_back({"x", pattern(DType::kUInt8, {70000, 2})});
  write_npz(folder.file("many.npz"), many);
  CHECK_NOTHROW(NpzFile(folder.file("many.npz"), {}).rows("x")->read_range(0, 70000));
  std::string large = folder.read("many.npz");
  large[100000] = static_cast<char>(large[100000] ^ 1);
  folder.write("many.npz", large);
  CHECK(caught([&] {
          NpzFile(folder.file("many.npz"), {}).rows("x")->read_range(0, 70000);
        }).code == "E306");
  write_deflated(folder.file("b.npz"), "x", tensors[0].tensor, true);
  const RowsPtr deflated = NpzFile(folder.file("b.npz"), {}).rows("x");
  read(*deflated, {1, 2});
  CHECK(caught([&] { deflated->read_range(0, 10); }).code == "E306");
  CHECK(caught([&] { deflated->for_each_block([](int64_t, const HostTensor&) {}); }).code ==
        "E306");
}

std::string idx_bytes(std::string_view data) {
  return std::string("\0\0\x0b\2\0\0\0\x0a\0\0\0\1", 12) + std::string(data);
}

TEST_CASE("rows of IDX files: plain ones stay there and compressed ones are streamed") {
  const TempFolder folder;
  std::string data;
  HostTensor tensor(DType::kInt16, {10, 1});
  for (int i = 0; i < 10; ++i) {
    data += {static_cast<char>(i), static_cast<char>(7 * i)};
    tensor.set(i, 256 * i + 7 * i);
  }
  const RowsPtr plain = idx_rows(folder.write("plain", idx_bytes(data)), {});
  CHECK(plain->cost() == Cost::kFile);
  check_same(*plain, tensor);
  gzFile file = gzopen(folder.file("packed").c_str(), "wb");
  gzwrite(file, idx_bytes(data).data(), 32);
  gzclose(file);
  const RowsPtr packed = idx_rows(folder.file("packed"), {});
  CHECK(packed->cost() == Cost::kInOrder);
  check_same(*packed, tensor);
}

TEST_CASE("files that change while they are in use are refused") {
  const TempFolder folder;
  const std::string path = folder.file("x.npy");
  const HostTensor tensor = pattern(DType::kFloat32, {10, 100});
  write_npy(path, tensor);
  const auto changed = [&](const std::function<void()>& change) {
    write_npy(path, tensor);
    const RowsPtr rows = npy_rows(path, place(3));
    read(*rows, {0, 9});
    change();
    return caught([&] { read(*rows, {9}); });
  };
  const Caught shrunk = changed([&] { std::filesystem::resize_file(path, 200); });
  CHECK(shrunk.code == "E321");
  CHECK(shrunk.exit_code == 3);
  CHECK(shrunk.says("it had 4,128 bytes, now 200"));
  CHECK(shrunk.says("test.yaml:3:3"));
  const Caught grown = changed([&] { std::ofstream(path, std::ios::app) << "more"; });
  CHECK(grown.code == "E321");
  CHECK(grown.says("now 4,132"));
  const Caught touched = changed([&] {
    std::filesystem::last_write_time(
        path, std::filesystem::last_write_time(path) + std::chrono::seconds(5));
  });
  CHECK(touched.code == "E321");
  CHECK(touched.says("+5.000 s"));
  // A file replaced under its name is another one: this one is read on.
  CHECK(changed([&] { write_npy(path, pattern(DType::kFloat32, {10, 100})); }).code.empty());
  CHECK(changed([&] { std::filesystem::remove(path); }).code.empty());
}

DataConfig data_in(const TempFolder& folder) {
  DataConfig data;
  data.base_dir = folder.path();
  return data;
}

ConfigObject npz_source(ConfigValue path) {
  return object("npz", {{"path", std::move(path)},
                        {"x", default_value("x")},
                        {"y", default_value("y")},
                        {"sample_weight", null_value()},
                        {"slice", null_value()}});
}

void write_part(const TempFolder& folder, const char* name, const Shape& shape, DType dtype) {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", pattern(dtype, shape)});
  tensors.push_back({"y", pattern(DType::kUInt8, {shape[0]})});
  write_npz(folder.file(name), tensors);
}

TEST_CASE("several files by pattern or as a list are one array") {
  const TempFolder folder;
  write_part(folder, "train_10.npz", {4, 2}, DType::kFloat32);
  write_part(folder, "train_2.npz", {3, 2}, DType::kFloat32);
  write_part(folder, "other.npz", {5, 2}, DType::kFloat32);
  const Dataset matched = load_dataset(npz_source(value("train_*.npz")), data_in(folder));
  CHECK(matched.num_samples == 7);
  CHECK(matched.description == "npz train_*.npz (7 samples)");
  CHECK(matched.inputs[0].rows->tensor()->at(8) == pattern(DType::kFloat32, {1}).at(0));
  const auto list = [](const char* a, const char* b) {
    return npz_source(value(ConfigValue::List{value(a), value(b)}));
  };
  const Dataset listed = load_dataset(list("train_2.npz", "o*.npz"), data_in(folder));
  CHECK(listed.num_samples == 8);
  CHECK(listed.description == "npz train_2.npz (and 1 more) (8 samples)");
  const Caught none =
      caught([&] { load_dataset(npz_source(value("val_*.npz")), data_in(folder)); });
  CHECK(none.code == "E300");
  CHECK(none.exit_code == 3);
  CHECK(none.says("no file matches `val_*.npz`"));
  CHECK(none.says("nearest files in that folder"));
  CHECK(none.says("test.yaml:2:3"));
}

TEST_CASE("more files than a program may have open at first") {
  const TempFolder folder;
  for (int i = 0; i < 600; ++i) {
    write_part(folder, fmt::format("part_{:03}.npz", i).c_str(), {1, 2}, DType::kFloat32);
  }
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few = {256, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  DataConfig data = data_in(folder);
  data.cache.value = "none";
  CHECK(load_dataset(npz_source(value("part_*.npz")), data).num_samples == 600);
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("several files must agree, and the one that does not is named") {
  const TempFolder folder;
  write_part(folder, "a.npz", {4, 2}, DType::kFloat32);
  write_part(folder, "b.npz", {3, 3}, DType::kFloat32);
  Caught error = caught([&] { load_dataset(npz_source(value("?.npz")), data_in(folder)); });
  CHECK(error.code == "E304");
  CHECK(error.says("b.npz`: samples of shape (3,); those of"));
  write_part(folder, "b.npz", {3, 2}, DType::kFloat64);
  error = caught([&] { load_dataset(npz_source(value("?.npz")), data_in(folder)); });
  CHECK(error.code == "E303");
  CHECK(error.says("b.npz`: float64; "));
  write_npy(folder.file("c[1].npy"), pattern(DType::kFloat32, {2}));
  const Dataset own =
      load_dataset(object("npy", {{"x", value("c[1].npy")}, {"y", null_value()}}), data_in(folder));
  CHECK(own.num_samples == 2);  // a file of that very name comes before the pattern
}

Dataset digits(const char* split, int samples = 100) {
  return load_dataset(
      object("digits", {{"split", value(split)}, {"samples", value(samples)}, {"seed", value(0)}}),
      DataConfig{});
}

TEST_CASE("split strings take parts of splits") {
  const Dataset train = digits("train"), test = digits("test");
  const auto check = [&](const char* split, const Dataset& whole, int64_t begin, int64_t end) {
    CAPTURE(split);
    const Dataset part = digits(split);
    REQUIRE(part.num_samples == end - begin);
    const HostTensor own = part.inputs[0].rows->read_range(0, end - begin);
    const HostTensor expected = whole.inputs[0].rows->read_range(begin, end);
    CHECK(std::memcmp(own.bytes(), expected.bytes(), own.num_bytes()) == 0);
  };
  check("train[:90%]", train, 0, 90);
  check("train[90%:]", train, 90, 100);
  check("train[10%:20%]", train, 10, 20);
  check("train[-5%:]", train, 95, 100);
  check("train[7:13]", train, 7, 13);
  check("train[-10:-3]", train, 90, 97);
  check(" train [ 5 : ] ", train, 5, 100);
  check("test[:]", test, 0, 100);
  CHECK(digits("train[:33%]", 10).num_samples == 3);  // rounded down: nothing is in two parts
  CHECK(digits("train[33%:]", 10).num_samples == 7);
  const Dataset joined = digits("train[:10%]+test[50%:60%]+train[99:]");
  CHECK(joined.num_samples == 21);
  CHECK(read(*joined.inputs[0].rows, {0, 10, 19, 20}) == [&] {
    std::vector<std::byte> all = read(*train.inputs[0].rows, {0});
    for (const std::byte b : read(*test.inputs[0].rows, {50, 59})) {
      all.push_back(b);
    }
    for (const std::byte b : read(*train.inputs[0].rows, {99})) {
      all.push_back(b);
    }
    return all;
  }());
  CHECK(joined.description == "digits (train[:10%]+test[50%:60%]+train[99:], 21 samples)");
  CHECK(caught([] { digits("train[50%:50%]"); }).code == "E316");
}

}  // namespace
}  // namespace meshtrain
