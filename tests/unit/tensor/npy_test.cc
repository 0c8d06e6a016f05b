#include "tensor/npy.h"

#include <doctest/doctest.h>

#include <cstring>

#include "support/malformed.h"

namespace meshtrain {
namespace {

using test::caught;
using test::TempFolder;

constexpr DType kAllTypes[] = {DType::kBool,   DType::kUInt8,   DType::kInt8,    DType::kInt16,
                               DType::kUInt16, DType::kInt32,   DType::kUInt32,  DType::kInt64,
                               DType::kUInt64, DType::kFloat16, DType::kFloat32, DType::kFloat64};

// The bytes of a .npy file with this header text.
std::string npy(std::string header, std::string_view data, int major = 1) {
  header += '\n';
  std::string out("\x93NUMPY", 6);
  out += static_cast<char>(major);
  out += '\0';
  const size_t width = major == 1 ? 2 : 4;
  for (size_t i = 0; i < width; ++i) {
    out += static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  return out + header + std::string(data);
}
std::string dict(std::string_view descr, std::string_view shape, bool fortran = false) {
  return fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}", descr,
                     fortran ? "True" : "False", shape);
}

HostTensor parse(const std::string& content) {
  MemoryReader bytes(std::as_bytes(std::span(content)));
  return read_npy(bytes, "memory.npy");
}

HostTensor counting(DType dtype, const Shape& shape) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, dtype == DType::kBool ? i % 2 : static_cast<double>(i % 100));
  }
  return tensor;
}

void check_equal(const HostTensor& a, const HostTensor& b) {
  CHECK(a.dtype() == b.dtype());
  CHECK(a.shape() == b.shape());
  REQUIRE(a.num_bytes() == b.num_bytes());
  CHECK((a.num_bytes() == 0 || std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0));
}

TEST_CASE("write_npy: every type and shape reads back as it was") {
  const TempFolder folder;
  for (const DType dtype : kAllTypes) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{0, 3}, Shape{2, 3, 4}, Shape{1, 1, 1, 7}}) {
      const HostTensor tensor = counting(dtype, shape);
      write_npy(folder.file("a.npy"), tensor);
      check_equal(read_npy(folder.file("a.npy")), tensor);
    }
  }
  CHECK(folder.num_files() == 1);
}

TEST_CASE("write_npy: bfloat16 is widened to float32") {
  const TempFolder folder;
  write_npy(folder.file("a.npy"), tensor_of<double>(DType::kBFloat16, {2}, {1.5, -2}));
  const HostTensor back = read_npy(folder.file("a.npy"));
  CHECK(back.dtype() == DType::kFloat32);
  CHECK(back.at(0) == 1.5);
}

TEST_CASE("npy_header: data begin at a multiple of 64 and the text is as NumPy writes it") {
  for (const Shape& shape : {Shape{}, Shape{3}, Shape{60000, 28, 28, 1}}) {
    CHECK(npy_header(DType::kFloat32, shape).size() % 64 == 0);
  }
  CHECK(npy_header(DType::kUInt8, {3})
            .substr(10)
            .starts_with("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }"));
}

TEST_CASE("read_npy: versions 1 to 3 and other spellings of the dict") {
  const std::string data("\1\0\0\0\2\0\0\0", 8);
  for (int major = 1; major <= 3; ++major) {
    CHECK(parse(npy(dict("'<i4'", "(2,)"), data, major)).at(1) == 2);
  }
  CHECK(parse(npy("{'shape': (2,), 'fortran_order': False, 'descr': '<i4'}", data)).at(1) == 2);
  CHECK(parse(npy("{\"descr\":\"=i4\",\"fortran_order\":False,\"shape\":(1,2)}  ", data)).shape() ==
        Shape{1, 2});
  CHECK(parse(npy(dict("'<i4'", "(1, 2,)"), data)).shape() == Shape{1, 2});
  CHECK(parse(npy(dict("'<i4'", "(2L,)"), data)).shape() == Shape{2});
  CHECK(parse(npy(dict("'<i8'", "()"), data)).shape() == Shape{});
}

TEST_CASE("read_npy: Fortran order becomes row-major") {
  for (const Shape& shape : {Shape{2, 3}, Shape{2, 3, 4}, Shape{1, 5}, Shape{4}}) {
    for (const DType dtype : {DType::kUInt8, DType::kInt16, DType::kFloat32, DType::kFloat64}) {
      const HostTensor rows = counting(dtype, shape);
      // Column-major: the first index runs fastest.
      std::string data;
      for (int64_t i = 0; i < rows.size(); ++i) {
        int64_t rest = i;
        int64_t offset = 0;
        const std::vector<int64_t> strides = row_major_strides(shape);
        for (size_t d = 0; d < shape.size(); ++d) {
          offset += rest % shape[d] * strides[d];
          rest /= shape[d];
        }
        const size_t width = dtype_size(dtype);
        data.append(reinterpret_cast<const char*>(rows.bytes()) + offset * width, width);
      }
      const std::string type = npy_header(dtype, shape).substr(20, 5);
      check_equal(parse(npy(dict(type, shape_string(shape), true), data)), rows);
    }
  }
}

TEST_CASE("read_npy: big-endian numbers are converted") {
  CHECK(parse(npy(dict("'>i2'", "(2,)"), {"\1\2\0\3", 4})).at(0) == 258);
  CHECK(parse(npy(dict("'>f4'", "(1,)"), {"\x3f\xc0\0\0", 4})).at(0) == 1.5);
  CHECK(parse(npy(dict("'>f8'", "()"), {"\x3f\xf8\0\0\0\0\0\0", 8})).at(0) == 1.5);
  CHECK(parse(npy(dict("'>f2'", "(1,)"), {"\x3e\0", 2})).at(0) == 1.5);
  CHECK(parse(npy(dict("'>u4'", "(1, 2)", true), {"\0\0\1\0\0\0\0\1", 8})).at(0) == 256);
}

TEST_CASE("read_npy: bool elements are 0 or 1 whatever the file says") {
  const HostTensor tensor = parse(npy(dict("'|b1'", "(3,)"), {"\0\1\x77", 3}));
  CHECK(tensor.data<uint8_t>()[2] == 1);
}

TEST_CASE("read_npy: malformed files are refused") {
  const std::string four("\0\0\0\0", 4);
  const std::string good = npy(dict("'<f4'", "(1,)"), four);
  const std::vector<test::MalformedFile> table = {
      {"empty", "", "E301", "empty"},
      {"another format", "PK\3\4 something else", "E301", "50 4b 03 04"},
      {"version 9", std::string("\x93NUMPY\x09\0\x10\0", 10) + good, "E301", "version 9.0"},
      {"version 0", std::string("\x93NUMPY\0\0\x10\0", 10) + good, "E301", "version 0.0"},
      {"only magic", "\x93NUMPY", "E302", "truncated"},
      {"header of 4 GiB in 12 bytes", std::string("\x93NUMPY\2\0\xf0\xff\xff\xff", 12), "E302",
       "4294967280"},
      {"header longer than the file", std::string("\x93NUMPY\1\0\xff\xff{'", 12), "E302", "65535"},
      {"header too long", npy(dict("'<f4'", "(1,)") + std::string(70000, ' '), four, 2), "E302",
       "at most"},
      {"no dict", npy("[1, 2]", four), "E302", "expected `{`"},
      {"a call", npy("__import__('os').system('x')", four), "E302", "expected `{`"},
      {"unknown key", npy("{'descr': '<f4', 'order': False, 'shape': (1,)}", four), "E302",
       "unknown key `order`"},
      {"missing key", npy("{'descr': '<f4', 'shape': (1,)}", four), "E302", "no key"},
      {"key twice", npy("{'descr': '<f4', 'descr': '<f8', 'shape': (1,)}", four), "E302", "twice"},
      {"text after it", npy(dict("'<f4'", "(1,)") + "{}", four), "E302", "after the dict"},
      {"open text", npy("{'descr", four), "E302", "without its end"},
      {"order a number", npy("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", four), "E302",
       "True or False"},
      {"empty descr", npy(dict("''", "(1,)"), four), "E303", "element type ``"},
      {"descr of libnpy", npy(dict("'<ixy'", "(1,)"), four), "E303", "<ixy"},
      {"objects", npy(dict("'|O'", "(1,)"), four), "E303", "Python objects"},
      {"fields", npy(dict("[('a', '<f4')]", "(1,)"), four), "E303", "structured"},
      {"text", npy(dict("'<U5'", "(1,)"), four), "E303", "holds text"},
      {"bytes", npy(dict("'|S4'", "(1,)"), four), "E303", "holds text"},
      {"complex", npy(dict("'<c8'", "(1,)"), four), "E303", "complex"},
      {"dates", npy(dict("'<M8[s]'", "(1,)"), four), "E303", "dates"},
      {"half of a type", npy(dict("'<f3'", "(1,)"), four), "E303", "<f3"},
      {"long double", npy(dict("'<f16'", "(1,)"), four), "E303", "<f16"},
      {"overflow", npy(dict("'<f4'", "(4294967296, 4294967296, 4)"), four), "E304", "elements"},
      {"overflow beside 0", npy(dict("'<f4'", "(4294967296, 4294967296, 4, 0)"), ""), "E304",
       "elements"},
      {"larger than int64", npy(dict("'<f4'", "(99999999999999999999,)"), four), "E304", "2^63-1"},
      {"negative", npy(dict("'<f4'", "(-1,)"), four), "E304", "not a size"},
      {"fraction", npy(dict("'<f4'", "(1.5,)"), four), "E304", "comma"},
      {"a name", npy(dict("'<f4'", "(x,)"), four), "E304", "not a size"},
      {"a number", npy(dict("'<f4'", "(1)"), four), "E304", "not a tuple"},
      {"a list", npy(dict("'<f4'", "[1]"), four), "E304", "not a tuple"},
      {"no comma", npy(dict("'<f4'", "(1 1)"), four), "E304", "comma"},
      {"33 dimensions",
       npy(dict("'<f4'",
                "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                "1,1,1,1,1,1,1)"),
           four),
       "E304", "more than 32"},
      {"too short", npy(dict("'<f4'", "(60000, 784)"), four), "E305", "188,160,000"},
      {"claims 4 EiB", npy(dict("'<f4'", "(1048576, 1048576, 1048576)"), four), "E305",
       "truncated"},
      {"too long", good + "x", "E305", "more than one array"},
      {"bytes behind an empty array", npy(dict("'<f4'", "(0,)"), four), "E305", "needs 0 bytes"},
  };
  test::check_malformed(table, "bad.npy", 3, [](const std::string& path) { read_npy(path); });
}

TEST_CASE("read_npy: a missing file names its neighbours") {
  const TempFolder folder;
  folder.write("train.npy", "");
  const test::Caught error = caught([&] { read_npy(folder.file("trian.npy")); });
  CHECK(error.code == "E300");
  CHECK(error.exit_code == 3);
  CHECK(error.says("trian.npy"));
  CHECK(error.says("nearest files in that folder: train.npy"));
  CHECK(caught([&] { read_npy(folder.path()); }).code == "E300");
}

TEST_CASE("read_npy: every truncation is found") {
  const std::string whole = npy(dict("'<i2'", "(2, 3)"), "abcdefghijkl");
  test::check_every_truncation(whole, "a.npy", 3, [](const std::string& path) { read_npy(path); });
}

TEST_CASE("read_npy: flipped bits never crash") {
  const std::string whole = npy(dict("'<i2'", "(2, 3)"), "abcdefghijkl");
  test::check_bit_flips(whole, "a.npy", 3, 2000, [](const std::string& path) { read_npy(path); });
}

}  // namespace
}  // namespace meshtrain
