// Tables of malformed files: each is written, read and must be refused with its code.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support/memory_meter.h"
#include "support/sampled.h"
#include "support/splitmix.h"
#include "support/temp_folder.h"

namespace meshtrain::test {

struct MalformedFile {
  std::string what;
  std::string content;
  std::string code;
  std::string says;  // part of the message
};

using ReadFile = std::function<void(const std::string& path)>;

// Each file must be refused with its code and the exit code, naming the file, and take no more
// memory than twice its size and 16 MiB.
inline void check_malformed(const std::vector<MalformedFile>& table, const std::string& file_name,
                            int exit_code, const ReadFile& read) {
  const TempFolder folder;
  for (const MalformedFile& file : table) {
    CAPTURE(file.what);
    const std::string path = folder.write(file_name, file.content);
    const MemoryMeter memory;
    const Caught error = caught([&] { read(path); });
    CHECK(memory.peak() <= 2 * file.content.size() + (size_t{16} << 20));
    CAPTURE(error.text);
    CHECK(error.code == file.code);
    CHECK(error.exit_code == exit_code);
    CHECK(error.says(file.says));
    CHECK(error.says(file_name));
  }
}

// Every file that is cut short, and every file with bytes added, must be refused.
inline void check_every_truncation(const std::string& whole, const std::string& file_name,
                                   int exit_code, const ReadFile& read) {
  const TempFolder folder;
  REQUIRE(caught([&] { read(folder.write(file_name, whole)); }).text == "");
  for (size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    const std::string path = folder.write(file_name, whole.substr(0, length));
    CHECK(caught([&] { read(path); }).exit_code == exit_code);
  }
}

// Files with one to four random bits flipped are read or refused; nothing else may happen. A
// quarter of `count` files, another quarter with the next commit.
inline void check_bit_flips(const std::string& whole, const std::string& file_name, int exit_code,
                            size_t count, const ReadFile& read) {
  const TempFolder folder;
  for (const size_t i : sampled(count, 4)) {
    uint64_t counter = 0;
    const auto random = [&] { return splitmix_bits(20240607 + i, counter++); };
    std::string damaged = whole;
    const uint64_t flips = 1 + random() % 4;
    for (uint64_t j = 0; j < flips; ++j) {
      const uint64_t bit = random() % (8 * whole.size());
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    }
    const Caught error = caught([&] { read(folder.write(file_name, damaged)); });
    CAPTURE(i);
    CAPTURE(error.text);
    CHECK(error.code != "?");
    CHECK((error.code.empty() || error.exit_code == exit_code));
  }
}

}  // namespace meshtrain::test
