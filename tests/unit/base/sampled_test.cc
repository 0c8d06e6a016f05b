#include "support/sampled.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "support/temp_folder.h"
#include "support/test_cache.h"

namespace meshtrain::test {
namespace {

// A variable that has a value, or none, as long as this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name))
      before_ = before;
    was_set_ = std::getenv(name) != nullptr;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Variable() { was_set_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string before_;
  bool was_set_ = false;
};

using Numbers = std::vector<size_t>;

struct NoVariables {
  Variable all{"MESHTRAIN_TEST_LONG", nullptr}, offset{"MESHTRAIN_TEST_OFFSET", nullptr},
      part{"MESHTRAIN_TEST_PART", nullptr}, cases{"MESHTRAIN_RANDOM_CASES", nullptr};
};

TEST_CASE("as many commits as the stride run every case once") {
  const NoVariables none;
  CHECK(sampled(10, 4) == Numbers{0, 4, 8});
  for (const size_t n : {1, 3, 10, 40}) {
    std::multiset<size_t> seen;
    for (const char* commit : {"1207", "1208", "1209", "1210"}) {
      const Variable offset("MESHTRAIN_TEST_OFFSET", commit);
      const Numbers sample = sampled(n, 4);
      CHECK(!sample.empty());
      seen.insert(sample.begin(), sample.end());
    }
    CHECK(std::set<size_t>(seen.begin(), seen.end()).size() == n);
    CHECK((n < 4 || seen.size() == n));
  }
}

TEST_CASE("everything runs where it is asked for") {
  const NoVariables none;
  const Variable all("MESHTRAIN_TEST_LONG", "1"), offset("MESHTRAIN_TEST_OFFSET", "7");
  CHECK(sampled(3, 10) == Numbers{0, 1, 2});
  CHECK(sampled_seeds(3, 10) == Numbers{0, 1, 2});
}

TEST_CASE("a part replaces the sample and a number of random cases the seeds") {
  const NoVariables none;
  const Variable part("MESHTRAIN_TEST_PART", "1/3");
  CHECK(sampled(7, 5) == Numbers{1, 4});
  const Variable cases("MESHTRAIN_RANDOM_CASES", "2");
  CHECK(sampled_seeds(500, 4) == Numbers{0, 1});
}

TEST_CASE("variables that are not what they should be are refused") {
  const NoVariables none;
  for (const char* text : {"x", "-1", "3f", "1 "}) {
    const Variable offset("MESHTRAIN_TEST_OFFSET", text);
    CHECK_THROWS_AS(sampled(9, 3), std::runtime_error);
  }
  for (const char* text : {"", "3/3", "1"}) {
    const Variable part("MESHTRAIN_TEST_PART", text);
    CHECK_THROWS_AS(sampled(9, 3), std::runtime_error);
  }
}

TEST_CASE("compiled code is kept only where nobody else has access") {
  namespace fs = std::filesystem;
  const TempFolder folder;
  const Variable cache("XDG_CACHE_HOME", folder.path().c_str());
  const fs::path base = fs::path(folder.path()) / "meshtrain-tests";
  CHECK(test_cache_folder("objects") == base / "objects");
  CHECK(is_private_folder(base / "objects"));
  // Where others may write, the next place is taken.
  const Variable home("HOME", folder.file("home").c_str());
  fs::permissions(base, fs::perms::all);
  CHECK(test_cache_folder("objects") ==
        fs::path(folder.file("home")) / ".cache/meshtrain-tests/objects");
  fs::rename(base, folder.file("other"));
  fs::permissions(folder.file("other"), fs::perms::owner_all);
  fs::create_symlink(folder.file("other"), base);
  CHECK(!is_private_folder(base));
  fs::remove(base);
  folder.write("meshtrain-tests", "");
  CHECK(!is_private_folder(base));
}

}  // namespace
}  // namespace meshtrain::test
