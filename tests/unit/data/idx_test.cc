#include "data/idx.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include "support/malformed.h"

namespace meshtrain {
namespace {

using test::TempFolder;

std::string idx(int type, const std::vector<uint32_t>& sizes, std::string_view data) {
  std::string out = {0, 0, static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out += static_cast<char>(size >> shift & 0xff);
    }
  }
  return out + std::string(data);
}

std::string gzip(const std::string& content) {
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST_CASE("read_idx: plain and gzip files of every type") {
  const TempFolder folder;
  const HostTensor bytes = read_idx(folder.write("a", idx(8, {2, 3}, "\1\2\3\4\5\6")));
  CHECK(bytes.dtype() == DType::kUInt8);
  CHECK(bytes.shape() == Shape{2, 3});
  CHECK(bytes.at(5) == 6);
  CHECK(read_idx(folder.write("b", gzip(idx(8, {2, 3}, "\1\2\3\4\5\6")))).at(5) == 6);
  CHECK(read_idx(folder.write("c", idx(9, {1}, "\xff"))).at(0) == -1);
  CHECK(read_idx(folder.write("d", idx(0x0B, {1}, {"\1\2", 2}))).at(0) == 258);
  CHECK(read_idx(folder.write("e", idx(0x0C, {1}, {"\0\1\0\0", 4}))).at(0) == 65536);
  CHECK(read_idx(folder.write("f", idx(0x0D, {1}, {"\x3f\xc0\0\0", 4}))).at(0) == 1.5);
  CHECK(read_idx(folder.write("g", gzip(idx(0x0E, {1}, {"\x3f\xf8\0\0\0\0\0\0", 8})))).at(0) ==
        1.5);
}

TEST_CASE("read_idx: gzip files in several members and large true ones") {
  const TempFolder folder;
  const std::string whole = idx(8, {4}, "abcd");
  const std::string parts = gzip(whole.substr(0, 5)) + gzip(whole.substr(5));
  CHECK(read_idx(folder.write("a", parts)).at(3) == 'd');
  const std::string zeros = gzip(idx(8, {1000, 30000}, std::string(30000000, '\0')));
  CHECK(read_idx(folder.write("b", zeros)).size() == 30000000);
}

TEST_CASE("read_idx: malformed files are refused") {
  const std::string good = idx(8, {2, 2}, "abcd");
  std::string wrong_sum = gzip(good);
  wrong_sum[wrong_sum.size() - 6] ^= 1;
  std::string noise;  // keeps the ratio below what deflate can reach
  for (uint64_t i = 0; i < 3000; ++i) {
    noise += static_cast<char>(test::splitmix_bits(1, i));
  }
  const std::vector<test::MalformedFile> table = {
      {"empty", "", "E307", "empty"},
      {"three bytes", std::string(3, '\0'), "E307", "not an IDX file"},
      {"little-endian magic", std::string("\3\10\0\0", 4) + "abcd", "E307", "03 08 00 00"},
      {"npy", "\x93NUMPY", "E307", "93 4e 55 4d"},
      {"unknown type", idx(7, {1}, "a"), "E307", "not an IDX file"},
      {"no dimensions", idx(8, {}, "a"), "E307", "not an IDX file"},
      {"nine dimensions", idx(8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "a"), "E307", "not an IDX file"},
      {"sizes cut", idx(8, {2, 2}, "").substr(0, 10), "E307", "within its 2 sizes"},
      {"samples of nothing", idx(8, {0xfffffff6, 0, 0}, ""), "E307", "have no elements"},
      {"2^31 samples", idx(8, {0x80000000, 28, 28}, "a"), "E307", "1,683,627,180,032"},
      {"overflow", idx(8, {0xffffffff, 0xffffffff, 0xffffffff}, "a"), "E307", "any memory"},
      {"overflow beside 0", idx(8, {0xffffffff, 0xffffffff, 0xffffffff, 0}, ""), "E307",
       "any memory"},
      {"short", good.substr(0, good.size() - 1), "E307", "needs 4 bytes of data, the file has 3"},
      {"long", good + "x", "E307", "something follows"},
      {"gzip cut", gzip(good).substr(0, gzip(good).size() - 3), "E307", "end early"},
      {"gzip of a short file", gzip(good.substr(0, good.size() - 1)), "E307", "truncated"},
      {"gzip of a long file", gzip(good + "x"), "E307", "something follows"},
      {"bytes behind gzip", gzip(good) + "garbage", "E307", "damaged"},
      {"gzip checksum", wrong_sum, "E307", "damaged"},
      {"gzip method", "\x1f\x8b\x07 and more text", "E307", "damaged"},
      {"gzip claims 2^31 samples", gzip(idx(8, {0x80000000, 28, 28}, "a")), "E307", "cannot be"},
      {"bomb without its claim", gzip(idx(8, {2, 2}, std::string(30000000, '\0'))), "E307",
       "something follows"},
      {"dense and false", gzip(idx(8, {30000000}, std::string(29000000, '\0') + noise)), "E307",
       "truncated"},
  };
  test::check_malformed(table, "bad.gz", 3, [](const std::string& path) { read_idx(path); });
}

TEST_CASE("read_idx: every truncation is found") {
  const std::string whole = idx(0x0D, {2, 3}, "abcdefghijklmnopqrstuvwx");
  const auto read = [](const std::string& path) { read_idx(path); };
  test::check_every_truncation(whole, "a.idx", 3, read);
  test::check_every_truncation(gzip(whole), "a.gz", 3, read);
}

TEST_CASE("read_idx: flipped bits never crash") {
  const std::string whole = idx(0x0B, {3, 2}, "abcdefghijkl");
  const auto read = [](const std::string& path) { read_idx(path); };
  test::check_bit_flips(whole, "a.idx", 3, 2000, read);
  test::check_bit_flips(gzip(whole), "a.gz", 3, 2000, read);
}

}  // namespace
}  // namespace meshtrain
