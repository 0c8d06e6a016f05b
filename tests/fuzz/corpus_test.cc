// Every input kept in corpus/: seeds, and whatever was once read wrongly.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "target.h"

namespace meshtrain::fuzz {
namespace {

namespace fs = std::filesystem;

TEST_CASE("every input of the corpus is read or refused within its bounds") {
  for (const Target& target : kTargets) {
    CAPTURE(target.name);
    std::vector<std::string> files;
    for (const auto& entry :
         fs::directory_iterator(fs::path(MESHTRAIN_FUZZ_CORPUS) / std::string(target.name))) {
      files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    CHECK(!files.empty());
    for (const std::string& file : files) {
      CAPTURE(file);
      const std::string text = read_file(file, uint64_t{64} << 20);
      CHECK(complaint(target, std::as_bytes(std::span(text))) == "");
    }
  }
}

}  // namespace
}  // namespace meshtrain::fuzz
