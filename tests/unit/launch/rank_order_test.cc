#include <doctest/doctest.h>

#include "comm/hosts.h"

namespace meshtrain {
namespace {

using Hosts = std::vector<std::string>;

TEST_CASE("ranks in a row on each host are as they should be") {
  CHECK(scattered_hosts({"a\n1"}).empty());
  CHECK(scattered_hosts({"a\n1", "a\n1", "b\n2", "b\n2"}).empty());
  CHECK(scattered_hosts({"b\n2", "a\n1", "a\n1", "a\n1", "c\n3"}).empty());
}

TEST_CASE("hosts whose ranks are scattered are named with them") {
  CHECK(scattered_hosts({"a\n1", "b\n2", "a\n1", "b\n2"}) == "a has ranks 0, 2, b has ranks 1, 3");
  CHECK(scattered_hosts({"a\n1", "a\n1", "a\n1", "b\n2", "a\n1"}) ==
        "a has ranks 0-2, 4, b has rank 3");
  // Two hosts of one name.
  CHECK(scattered_hosts({"a\n1", "a\n2", "a\n1"}) == "a has ranks 0, 2, a has rank 1");
}

TEST_CASE("of many hosts with scattered ranks a few are named") {
  Hosts hosts;
  for (int rank = 0; rank < 64; ++rank)
    hosts.push_back("h" + std::to_string(rank % 8) + "\n");
  const std::string text = scattered_hosts(hosts);
  CHECK(text.find("h3 has ranks 3, 11,") != std::string::npos);
  CHECK(text.find("h4") == std::string::npos);
  CHECK(text.ends_with(", and so on"));
}

}  // namespace
}  // namespace meshtrain
