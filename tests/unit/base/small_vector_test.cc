#include "base/small_vector.h"

#include <doctest/doctest.h>

#include <string>

#include "base/hash.h"
#include "base/hash_index.h"

namespace meshtrain {
namespace {

using Numbers = SmallVector<int, 2>;
using Texts = SmallVector<std::string, 2>;

const std::string kLong(40, 'x');  // has memory of its own

TEST_CASE("a small vector grows from itself to the heap and keeps its elements") {
  Texts list;
  for (int i = 0; i < 9; ++i) {
    list.push_back(kLong + std::to_string(i));
  }
  REQUIRE(list.size() == 9);
  for (int i = 0; i < 9; ++i) {
    CHECK(list[i] == kLong + std::to_string(i));
  }
  list.push_back(list.front());  // a reference into the list that grows
  CHECK(list.back() == kLong + "0");
  list.resize(1);
  CHECK(list == Texts{kLong + "0"});
  list.clear();
  CHECK(list.empty());
}

TEST_CASE("copies and moves of a small vector are those of a vector") {
  for (const size_t size : {0u, 1u, 2u, 3u, 7u}) {
    Texts list;
    for (size_t i = 0; i < size; ++i) {
      list.push_back(kLong + std::to_string(i));
    }
    const Texts copy = list;
    CHECK(copy == list);
    Texts moved = std::move(list);
    CHECK(moved == copy);
    Texts other{"a", "b", "c", "d"};
    other = copy;
    CHECK(other == copy);
    other = std::move(moved);
    CHECK(other == copy);
    Texts& same = other;
    other = same;
    CHECK(other == copy);
    const std::vector<std::string> plain = copy;
    CHECK(plain == std::vector<std::string>(copy.begin(), copy.end()));
    CHECK(Texts(plain) == copy);
  }
}

TEST_CASE("small vectors insert and erase and compare as vectors do") {
  Numbers list{1, 2, 5};
  const Numbers middle{3, 4};
  list.insert(list.begin() + 2, middle.begin(), middle.end());
  CHECK(list == Numbers{1, 2, 3, 4, 5});
  list.insert(list.begin(), 0);
  CHECK(list.front() == 0);
  list.erase(list.begin() + 1, list.begin() + 3);
  CHECK(list == Numbers{0, 3, 4, 5});
  list.erase(list.begin());
  CHECK(erase_if(list, [](int i) { return i % 2 == 1; }) == 2);
  CHECK(list == Numbers{4});
  list.assign(3, list[0]);
  CHECK(list == Numbers{4, 4, 4});
  CHECK((Numbers{1, 2} < Numbers{1, 3}));
  CHECK((Numbers{1} < Numbers{1, 0}));
  CHECK(Numbers(2) == Numbers{0, 0});
}

TEST_CASE("a hash index finds what was added among equal hashes and after growing") {
  std::vector<int> things;
  HashIndex index;
  for (int i = 0; i < 1000; ++i) {
    things.push_back(i);
    index.add(hash_mix(0, static_cast<uint64_t>(i % 100)), i);  // ten of each hash
  }
  for (int i = 0; i < 1000; ++i) {
    CHECK(index.find(hash_mix(0, static_cast<uint64_t>(i % 100)),
                     [&](int id) { return things[id] == i; }) == i);
  }
  CHECK(index.find(hash_mix(0, 5), [](int) { return false; }) == HashIndex::kAbsent);
  CHECK(index.find(hash_mix(1, 5), [](int) { return true; }) == HashIndex::kAbsent);
}

}  // namespace
}  // namespace meshtrain
