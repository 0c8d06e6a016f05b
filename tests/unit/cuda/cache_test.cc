#include "backend/cuda/cache.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

std::string only_file(const TempFolder& folder) {
  REQUIRE(folder.num_files() == 1);
  return std::filesystem::directory_iterator(folder.path())->path().filename().string();
}

TEST_CASE("what is stored is found under its kind and key") {
  const TempFolder folder;
  const cuda::Cache cache(folder.path() + "/deep/er");
  const std::string data("\0binary\xff", 8);
  CHECK(!cache.find("cubin", "key"));
  cache.store("cubin", "key", data);
  CHECK(cache.find("cubin", "key") == data);
  CHECK(!cache.find("cubin", "another key"));
  CHECK(!cache.find("matmul", "key"));
  cache.store("cubin", "key", "new");
  CHECK(cache.find("cubin", "key") == "new");
  cache.store("cubin", "nothing", "");
  CHECK(cache.find("cubin", "nothing") == "");
}

TEST_CASE("a damaged entry is not found and can be stored again") {
  const TempFolder folder;
  const cuda::Cache cache(folder.path());
  cache.store("cubin", "key", "the data of the entry");
  const std::string name = only_file(folder);
  const std::string whole = folder.read(name);
  for (size_t length = 0; length < whole.size(); ++length) {
    folder.write(name, whole.substr(0, length));
    CHECK(!cache.find("cubin", "key"));
  }
  for (size_t place = 0; place < whole.size(); ++place) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 1);
    folder.write(name, changed);
    CHECK(!cache.find("cubin", "key"));
  }
  cache.store("cubin", "key", "the data of the entry");
  CHECK(cache.find("cubin", "key") == "the data of the entry");
}

TEST_CASE("a folder that cannot be written is no cache and no error") {
  const TempFolder folder;
  folder.write("file", "");
  const cuda::Cache below_a_file(folder.file("file") + "/cache");
  below_a_file.store("cubin", "key", "data");
  CHECK(!below_a_file.find("cubin", "key"));
  const cuda::Cache nowhere("");
  CHECK(!nowhere.keeps());
  nowhere.store("cubin", "key", "data");
  CHECK(!nowhere.find("cubin", "key"));
}

TEST_CASE("nothing but the entry is left in the folder") {
  const TempFolder folder;
  const cuda::Cache cache(folder.path());
  cache.store("cubin", "key", "first");
  cache.store("cubin", "key", "second");
  CHECK(only_file(folder).substr(0, 6) == "cubin-");
}

}  // namespace
}  // namespace meshtrain::test
