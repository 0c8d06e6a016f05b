// Files of up to 10 MB made to take more memory or time than a file may.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "target.h"

namespace meshtrain::fuzz {
namespace {

constexpr size_t kLarge = 10'000'000;

std::string repeat(std::string_view text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

// As many of `text` as make a large file.
std::string fill(std::string_view text) {
  return repeat(text, kLarge / text.size());
}

std::string number(uint64_t value, size_t width) {  // little-endian
  std::string out(reinterpret_cast<const char*>(&value), std::min(width, sizeof(value)));
  out.resize(width, '\0');
  return out;
}

std::string big_endian(uint32_t value) {
  const uint32_t swapped = __builtin_bswap32(value);
  return {reinterpret_cast<const char*>(&swapped), 4};
}

// `window` as zlib's deflateInit2 has it: -15 plain, 31 gzip.
std::string deflated(const std::string& content, int window) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 1, Z_DEFLATED, window, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// `count` deflated members of zeros, each declared to hold `size` bytes and holding `real`.
std::string zip_of_zeros(size_t count, size_t size, size_t real) {
  const std::string zeros(real, '\0');
  const std::string stored = deflated(zeros, -15);
  const uint64_t sum =
      crc32(0, reinterpret_cast<const Bytef*>(zeros.data()), static_cast<uInt>(zeros.size()));
  std::string files, directory;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("{}.npy", i);
    const std::string common = number(0, 2) + number(8, 2) + number(0, 2) + number(33, 2) +
                               number(sum, 4) + number(stored.size(), 4) + number(size, 4) +
                               number(name.size(), 2) + number(0, 2);
    directory += "PK\1\2" + number(20, 2) + number(20, 2) + common + number(0, 10) +
                 number(files.size(), 4) + name;
    files += "PK\3\4" + number(20, 2) + common + name + stored;
  }
  return files + directory + "PK\5\6" + number(0, 4) + number(count, 2) + number(count, 2) +
         number(directory.size(), 4) + number(files.size(), 4) + number(0, 2);
}

std::string npy(const std::string& dict) {
  return "\x93NUMPY\x02" + std::string(1, '\0') + number(dict.size(), 4) + dict;
}

std::string safetensors(const std::string& header) {
  return number(header.size(), 8) + header;
}

std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const uint64_t sum =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + body +
         big_endian(static_cast<uint32_t>(sum));
}

std::string png(uint32_t width, uint32_t height, const std::string& chunks) {
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR", big_endian(width) + big_endian(height) +
                               std::string("\x08\x02\x00\x00\x00", 5)) +
         chunks + png_chunk("IEND", "");
}

// A manifest that is right but for `more`, keys of the outermost object.
std::string manifest(const std::string& more) {
  return "{\n\"epoch\": 0" + more + ",\n\"self_xxh3_128\": \"" + std::string(32, '0') + "\"\n}\n";
}

// Shards that all begin at the same place along every dimension but the last.
std::string manifest_of_shards(size_t tensors, size_t shards) {
  std::string list;
  for (size_t t = 0; t < tensors; ++t) {
    std::string each;
    for (size_t p = 0; p < shards; ++p) {
      each += fmt::format(
          R"({}{{"file":"model/a.safetensors","key":"{}","offset":[0,0],"shape":[1,1],"bytes":[0,1],"xxh3_64":["0000000000000000"]}})",
          p > 0 ? "," : "", t, p);
    }
    list += fmt::format(
        R"({}{{"path":"{}","kind":"weight","dtype":"uint8","trainable":true,"global_shape":[1,{}],"layout":"","pieces":[{}]}})",
        t > 0 ? "," : "", t, shards, each);
  }
  return manifest(",\n\"format\": {\"major\":1,\"minor\":0},\n\"tensors\": [" + list + "]");
}

struct Bomb {
  std::string target, what;
  std::function<std::string()> make;
};

std::vector<Bomb> bombs() {
  return {
      {"config", "aliases of aliases",
       [] {
         std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
         for (int i = 1; i < 30; ++i) {
           text +=
               fmt::format("a{0}: &a{0} [{1}]\n", i, repeat(fmt::format("*a{}, ", i - 1), 9) + "x");
         }
         return text;
       }},
      {"config", "deep lists", [] { return repeat("[", 1 << 20); }},
      {"config", "deep lists with names", [] { return repeat("[a, ", 1 << 18); }},
      {"config", "a list alone", [] { return "[" + repeat("1,", 1 << 19) + "1]"; }},
      {"config", "deep maps", [] { return repeat("{a: ", 1 << 18); }},
      {"config", "a long list", [] { return "a: [" + repeat("1,", 1 << 19) + "1]"; }},
      {"config", "a long map",
       [] {
         std::string text;
         for (int i = 0; i < 100000; ++i) {
           text += fmt::format("k{}:\n", i);
         }
         return text;
       }},
      {"config", "a long key", [] { return repeat("a", 1 << 20) + ": 1"; }},
      {"config", "a huge power",
       [] { return "vars: {a: =9**9**9, b: =2**(2**62)}\nfit: {epochs: =a}"; }},
      {"config", "nested comprehensions",
       [] {
         return "vars: {a: '=[x for x in range(10**6) for y in range(10**6)]'}\nfit: {epochs: =a}";
       }},
      {"config", "a text that doubles",
       [] {
         std::string text = "vars:\n  a0: xxxxxxxxxxxxxxxx\n";
         for (int i = 1; i < 60; ++i) {
           text += fmt::format("  a{}: =a{} + a{}\n", i, i - 1, i - 1);
         }
         return text + "name: =a59\n";
       }},
      {"config", "more than a megabyte", [] { return fill("a: 1\n"); }},
      {"config", "deep expression", [] { return "name: =" + repeat("(", 100000); }},
      {"layout", "backtracking", [] { return "(a*)*(a*)*(a*)*b\n" + repeat("a", 100000); }},
      {"layout", "deep groups", [] { return repeat("(", 100000) + "\na"; }},
      {"layout", "a huge repetition", [] { return std::string("((a{1000}){1000}){1000}\naaa"); }},
      {"npy", "a header of spaces", [] { return npy(repeat(" ", kLarge)); }},
      {"npy", "a shape without end",
       [] { return npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + fill("1,")); }},
      {"npy", "a huge shape",
       [] {
         return npy("{'descr': '<f8', 'fortran_order': True, 'shape': (1000000, 1000000), }\n");
       }},
      {"npy", "half of the data",
       [] {
         return npy("{'descr': '>f8', 'fortran_order': True, 'shape': (1500, 1500), }\n") +
                std::string(kLarge, 'x');
       }},
      {"npz", "a member just below what is trusted",
       [] { return zip_of_zeros(1, (1 << 24) - 1, (1 << 24) - 1); }},
      {"npz", "a member that ends early", [] { return zip_of_zeros(1, 200'000'000, 1'000'000); }},
      {"npz", "a member without end", [] { return zip_of_zeros(1, 1000, 50'000'000); }},
      {"npz", "many members", [] { return zip_of_zeros(10000, 1000, 1000); }},
      {"npz", "large members", [] { return zip_of_zeros(20, 100'000'000, 100'000'000); }},
      {"safetensors", "a deep header", [] { return safetensors(repeat("[", kLarge)); }},
      {"safetensors", "a header of zeros",
       [] { return safetensors("{\"a\":{\"shape\":[" + fill("0,") + "0]}}"); }},
      {"safetensors", "many tensors and one that lies",
       [] {
         std::string header = "{";
         for (int i = 0; i < 150000; ++i) {
           header += fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
         }
         return safetensors(header + R"("x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})");
       }},
      {"safetensors", "much metadata",
       [] {
         std::string header = "{\"__metadata__\":{";
         for (int i = 0; i < 600000; ++i) {
           header += fmt::format("\"{}\":\"\",", i);
         }
         return safetensors(header + "\"a\":1}}");
       }},
      {"idx", "gzip of zeros", [] { return deflated(std::string(800'000'000, '\0'), 31); }},
      {"idx", "gzip that claims to be short and is not",
       [] {
         return deflated(std::string("\0\0\x08\1\0\0\0\1", 8) + std::string(500'000'000, '\1'), 31);
       }},
      {"idx", "gzip that says much and ends",
       [] {
         return deflated(std::string("\0\0\x08\1\x7f\xff\xff\xff", 8) + std::string(1000, '\1'),
                         31);
       }},
      {"idx", "sizes beyond the file",
       [] {
         return std::string("\0\0\x0e\3\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16) +
                std::string(kLarge, '\0');
       }},
      {"csv", "one field", [] { return fill("x"); }},
      {"csv", "one quoted field", [] { return "\"" + fill("x\n"); }},
      {"csv", "many columns", [] { return fill("1,") + "1\n1\n"; }},
      {"csv", "short rows and one that is longer", [] { return fill("1,1\n") + "1,1,1\n"; }},
      {"csv", "categories",
       [] {
         std::string text = "kind,y\n";
         for (int i = 0; i < 1'000'000; ++i) {
           text += fmt::format("k{},1\n", i);
         }
         return text + "k,1,1\n";
       }},
      {"csv", "rows without anything", [] { return fill("\n"); }},
      {"image", "a PNG that says it is huge", [] { return png(60000, 60000, ""); }},
      {"image", "a PNG with much text",
       [] {
         return png(9, 9, repeat(png_chunk("tEXt", "k" + std::string(1, '\0') + "x"), 500000));
       }},
      {"image", "a PNG with packed text",
       [] {
         return png(9, 9,
                    png_chunk("zTXt", std::string("k\0\0", 3) +
                                          deflated(std::string(300'000'000, 'x'), 15)));
       }},
      {"image", "a PNG with a huge profile",
       [] {
         return png(9, 9,
                    png_chunk("iCCP", std::string("k\0\0", 3) +
                                          deflated(std::string(300'000'000, 'x'), 15)));
       }},
      {"image", "a PNG of zeros that ends early",
       [] {
         return png(8000, 8000, png_chunk("IDAT", deflated(std::string(150'000'000, '\0'), 15)));
       }},
      {"manifest", "a list of zeros", [] { return manifest(",\n\"x\": [" + fill("0,") + "0]"); }},
      {"manifest", "a tensor of zeros",
       [] {
         return manifest(",\n\"format\": {\"major\":1,\"minor\":0},\n\"tensors\": [{\"x\":[" +
                         fill("0,") + "0]}]");
       }},
      {"manifest", "empty tensors",
       [] {
         return manifest(",\n\"format\": {\"major\":1,\"minor\":0},\n\"tensors\": [" + fill("{},") +
                         "{}]");
       }},
      {"manifest", "shards upon shards", [] { return manifest_of_shards(5, 16384); }},
      {"state", "a list of zeros", [] { return "{\"callbacks\":[" + fill("0,") + "0]}"; }},
      {"state", "many keys",
       [] {
         std::string text = "{";
         for (int i = 0; i < 900000; ++i) {
           text += fmt::format("\"{}\":0,", i);
         }
         return text + "\"x\":0}";
       }},
      {"keras", "a list of zeros",
       [] { return R"({"class_name":"Sequential","config":{"layers":[)" + fill("0,") + "0]}}"; }},
      {"keras", "deep lists", [] { return repeat("[", kLarge); }},
  };
}

TEST_CASE("files made to take memory or time are refused within their bounds") {
  for (const Bomb& bomb : bombs()) {
    CAPTURE(bomb.target);
    CAPTURE(bomb.what);
    const std::string text = bomb.make();
    const auto bytes = std::as_bytes(std::span(text));
    const Target* target = find_target(bomb.target);
    REQUIRE(target != nullptr);
    CHECK(complaint(*target, bytes) == "");
    CHECK_THROWS(target->read(bytes));
  }
}

}  // namespace
}  // namespace meshtrain::fuzz
