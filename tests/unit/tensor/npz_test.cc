#include "tensor/npz.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include "support/malformed.h"
#include "tensor/npy.h"

namespace meshtrain {
namespace {

using test::caught;
using test::TempFolder;

// One member of an archive made here; the declared numbers may lie.
struct Member {
  std::string name;
  std::string content;
  int method = 0;  // 8: deflate
  int flags = 0;   // 1: encrypted
  int64_t declared_size = -1;
  bool wrong_checksum = false;
};

std::string number(uint64_t value, int width) {
  std::string out;
  for (int i = 0; i < width; ++i) {
    out += static_cast<char>(value >> (8 * i) & 0xff);
  }
  return out;
}

std::string deflated(const std::string& content) {
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zip(const std::vector<Member>& members, int64_t declared_members = -1) {
  std::string files;
  std::string directory;
  for (const Member& m : members) {
    const std::string stored = m.method == 8 ? deflated(m.content) : m.content;
    const uint64_t size = m.declared_size < 0 ? m.content.size() : m.declared_size;
    uint64_t sum = crc32(0, reinterpret_cast<const Bytef*>(m.content.data()),
                         static_cast<uInt>(m.content.size()));
    sum ^= m.wrong_checksum ? 1 : 0;
    const std::string common = number(m.flags, 2) + number(m.method, 2) + number(0, 2) +
                               number(33, 2) + number(sum, 4) + number(stored.size(), 4) +
                               number(size, 4) + number(m.name.size(), 2) + number(0, 2);
    directory += "PK\1\2" + number(20, 2) + number(20, 2) + common + number(0, 2) + number(0, 2) +
                 number(0, 2) + number(0, 4) + number(files.size(), 4) + m.name;
    files += "PK\3\4" + number(20, 2) + common + m.name + stored;
  }
  const uint64_t count = declared_members < 0 ? members.size() : declared_members;
  return files + directory + "PK\5\6" + number(0, 4) + number(count, 2) + number(count, 2) +
         number(directory.size(), 4) + number(files.size(), 4) + number(0, 2);
}

std::string npy(const Shape& shape) {
  return npy_header(DType::kFloat32, shape) + std::string(num_elements(shape) * 4, '\0');
}

std::vector<NamedTensor> some_tensors() {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"x", tensor_of<int>(DType::kUInt8, {2, 3}, {1, 2, 3, 4, 5, 6})});
  tensors.push_back({"d1/kernel", tensor_of<double>(DType::kFloat64, {2}, {0.1, -0.2})});
  tensors.push_back({"empty", HostTensor(DType::kFloat32, {0, 4})});
  return tensors;
}

TEST_CASE("write_npz: reads back and equal tensors give equal files") {
  const TempFolder folder;
  write_npz(folder.file("a.npz"), some_tensors());
  write_npz(folder.file("b.npz"), some_tensors());
  CHECK(folder.read("a.npz") == folder.read("b.npz"));
  CHECK(folder.num_files() == 2);
  const std::vector<NamedTensor> back = read_npz(folder.file("a.npz"));
  REQUIRE(back.size() == 3);
  CHECK(back[0].tensor.at(5) == 6);
  CHECK(back[1].name == "d1/kernel");
  CHECK(back[1].tensor.at(1) == -0.2);
  CHECK(back[2].tensor.shape() == Shape{0, 4});
}

TEST_CASE("write_npz: no tensors give an archive without members") {
  const TempFolder folder;
  write_npz(folder.file("a.npz"), {});
  CHECK(read_npz(folder.file("a.npz")).empty());
}

TEST_CASE("write_npz: a file that cannot be written exits with 74 and leaves nothing") {
  const TempFolder folder;
  const test::Caught error = caught([&] { write_npz(folder.file("no/a.npz"), some_tensors()); });
  CHECK(error.exit_code == 74);
  CHECK(error.says("No such file or directory"));
  CHECK(folder.num_files() == 0);
}

TEST_CASE("NpzReader: reads deflated members and single arrays by name") {
  const TempFolder folder;
  const std::string zeros = npy({1000, 1000});
  NpzReader reader(folder.write("a.npz", zip({{"x.npy", zeros, 8}, {"y.npy", npy({3}), 8}})));
  CHECK(reader.names() == std::vector<std::string>{"x", "y"});
  CHECK(reader.read("y").shape() == Shape{3});
  CHECK(reader.read("x").shape() == Shape{1000, 1000});
  CHECK(reader.has("x"));
  CHECK(!reader.has("z"));
  const test::Caught error = caught([&] { reader.read("z"); });
  CHECK(error.code == "E306");
  CHECK(error.says("it holds: x, y"));
}

TEST_CASE("NpzReader: a large dense member that is true is read") {
  const TempFolder folder;
  NpzReader reader(folder.write("a.npz", zip({{"x.npy", npy({2000, 3000}), 8}})));
  CHECK(reader.read("x").num_bytes() == 24000000);
}

TEST_CASE("read_npz: malformed archives are refused") {
  const std::string good = npy({3});
  const std::string archive = zip({{"x.npy", good}});
  std::string noise;  // keeps the ratio below what deflate can reach
  for (uint64_t i = 0; i < 900; ++i) {
    noise += static_cast<char>(test::splitmix_bits(1, i));
  }
  const std::vector<test::MalformedFile> table = {
      {"empty", "", "E306", "empty"},
      {"no archive", "this is no archive at all, only text", "E306", "not a zip archive"},
      {"npy", good, "E306", "not a zip archive"},
      {"bomb", zip({{"x.npy", std::string(4096, 'x'), 8, 0, 0xf0000000}}), "E306", "cannot be"},
      {"stored size lies", zip({{"x.npy", good, 0, 0, 1000}}), "E306", "cannot be"},
      {"deflated size too large", zip({{"x.npy", good, 8, 0, 200}}), "E305", "the file has 72"},
      {"deflated size too small", zip({{"x.npy", good, 8, 0, 130}}), "E305", "needs 12 bytes"},
      {"dense and false",
       zip({{"x.npy", npy_header(DType::kUInt8, {50000000}) + std::string(49999000, 'x') + noise, 8,
             0, 50000128}}),
       "E306", "early"},
      {"leads out", zip({{"../x.npy", good}}), "E306", "not accepted"},
      {"leads out inside", zip({{"a/../../x.npy", good}}), "E306", "not accepted"},
      {"absolute", zip({{"/etc/x.npy", good}}), "E306", "not accepted"},
      {"backslash", zip({{"..\\x.npy", good}}), "E306", "not accepted"},
      {"twice", zip({{"x.npy", good}, {"x.npy", good}}), "E306", "same name"},
      {"nested archive", zip({{"x.zip", archive}}), "E306", "not an array"},
      {"folder", zip({{"x.npy/", ""}}), "E306", "not an array"},
      {"encrypted", zip({{"x.npy", good, 0, 1}}), "E306", "encrypted"},
      {"bzip2", zip({{"x.npy", good, 12}}), "E306", "method 12"},
      {"checksum", zip({{"x.npy", good, 0, 0, -1, true}}), "E306", "damaged"},
      {"60000 members", zip({{"x.npy", good}}, 60000), "E306", "60000 members"},
      {"two members of one", zip({{"x.npy", good}}, 9), "E306", "room for"},
      {"member is no npy", zip({{"x.npy", "text"}}), "E301", "[x]"},
      {"member with objects",
       zip({{"x.npy", "\x93NUMPY" + std::string("\1\0\x3d\0", 4) +
                          "{'descr': '|O', 'fortran_order': False, "
                          "'shape': (1,), }      \n"}}),
       "E303", "Python objects"},
  };
  test::check_malformed(table, "bad.npz", 3, [](const std::string& path) { read_npz(path); });
}

TEST_CASE("read_npz: every truncation is found") {
  const TempFolder folder;
  write_npz(folder.file("a.npz"), some_tensors());
  test::check_every_truncation(folder.read("a.npz"), "cut.npz", 3,
                               [](const std::string& path) { read_npz(path); });
}

TEST_CASE("read_npz: flipped bits never crash") {
  const std::string whole = zip({{"x.npy", npy({3, 2})}, {"y.npy", npy({30}), 8}});
  test::check_bit_flips(whole, "a.npz", 3, 2000, [](const std::string& path) { read_npz(path); });
}

}  // namespace
}  // namespace meshtrain
