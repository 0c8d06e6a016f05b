#include "comm/hosts.h"

#include <doctest/doctest.h>

#include "base/file.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

std::string text_of(const std::vector<Host>& hosts) {
  std::string out;
  for (const Host& host : hosts) {
    out += fmt::format("{}={} ", host.name, host.slots);
  }
  return out;
}

TEST_CASE("hosts have a name and a number of processes") {
  CHECK(text_of(parse_hosts("a:4,b:4")) == "a=4 b=4 ");
  CHECK(text_of(parse_hosts("node-1.cluster, 10.0.0.2:2")) == "node-1.cluster=1 10.0.0.2=2 ");
  CHECK(text_of(parse_hosts("[fe80::1]:3,[::1]")) == "fe80::1=3 ::1=1 ");
}

TEST_CASE("a list of hosts that means nothing is refused with what is wrong") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "a host without a name"},
      {"a:4,", "a host without a name"},
      {",a", "a host without a name"},
      {":4", "a host without a name"},
      {"a:0", "`0` in `a:0` is no number of processes"},
      {"a:-1", "`-1` in `a:-1` is no number of processes"},
      {"a:", "`` in `a:` is no number of processes"},
      {"a:4x", "`4x` in `a:4x` is no number of processes"},
      {"a:99999999999999999999", "is no number of processes"},
      {"a:70000", "is no number of processes from 1 to 65536"},
      {"fe80::1", "is no number of processes"},
      {"[fe80::1", "is no address in brackets"},
      {"[fe80::1]4", "is no address in brackets"},
      {"-oProxyCommand=x", "is no name of a host"},
      {"a b:4", "is no name of a host"},
      {"$(reboot)", "is no name of a host"},
      {"a;b", "is no name of a host"},
      {"a:4,b:2,a:4", "host `a` is there twice; give it more processes instead: a:8"}};
  for (const auto& [text, message] : cases) {
    CAPTURE(text);
    const test::Caught caught = test::caught([&] { parse_hosts(text); });
    CHECK(caught.code == "E140");
    CHECK(caught.exit_code == 2);
    CHECK_MESSAGE(caught.says(message), caught.text);
    CHECK(caught.says("--hosts"));
  }
}

TEST_CASE("hosts together take no more processes than there can be") {
  std::string text = "h0:65536";
  for (int host = 1; host < 16; ++host) {
    text += fmt::format(",h{}:65536", host);
  }
  CHECK(total_slots(parse_hosts(text)) == 1 << 20);
  const test::Caught caught = test::caught([&] { parse_hosts(text + ",more"); });
  CHECK(caught.exit_code == 2);
  CHECK_MESSAGE(caught.says("with host `more` there are more than 1048576 processes"), caught.text);
}

TEST_CASE("a file of hosts is read line by line") {
  const test::TempFolder folder;
  const std::string path =
      folder.write("hosts",
                   "# the cluster\n\nnode1 slots=4\nnode2:2   # the small one\r\n  node3\n"
                   "node4 slots=8 max_slots=8\n");
  CHECK(text_of(read_host_file(path)) == "node1=4 node2=2 node3=1 node4=8 ");
}

TEST_CASE("a wrong line of a file of hosts is shown") {
  const test::TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"node1 slots=four\n", "hosts:1:1"},
      {"node1\nnode2 slot=4\n", "`slot=4` after host `node2`"},
      {"node1\n\nnode1 slots=2\n", "host `node1` is there twice"},
      {"node1 max_slots=x\n", "`x` in `max_slots=x`"},
      {"no/de\n", "`no/de` is no name of a host"},
      {"# nothing\n\n", "no host in it"}};
  for (const auto& [text, message] : cases) {
    CAPTURE(text);
    const std::string path = folder.write("hosts", text);
    const test::Caught caught = test::caught([&] { read_host_file(path); });
    CHECK(caught.code == "E140");
    CHECK(caught.exit_code == 2);
    CHECK_MESSAGE(caught.says(message), caught.text);
  }
  CHECK_THROWS_AS(read_host_file(folder.file("none")), FileError);
}

TEST_CASE("fewer processes than slots fill the first hosts") {
  const std::vector<Host> hosts = parse_hosts("a:4,b:4,c:4");
  CHECK(text_of(take_slots(hosts, 12)) == "a=4 b=4 c=4 ");
  CHECK(text_of(take_slots(hosts, 5)) == "a=4 b=1 ");
  CHECK(text_of(take_slots(hosts, 4)) == "a=4 ");
  const test::Caught caught = test::caught([&] { take_slots(hosts, 13); });
  CHECK(caught.exit_code == 2);
  CHECK_MESSAGE(caught.says("--processes 13, but the hosts take 12 processes; give them more: a:5"),
                caught.text);
}

TEST_CASE("this host is known by its names") {
  char name[256] = {};
  REQUIRE(gethostname(name, sizeof(name) - 1) == 0);
  CHECK(is_this_host(name));
  CHECK(is_this_host("localhost"));
  CHECK_FALSE(is_this_host("some-other-host-than-this"));
}

}  // namespace
}  // namespace meshtrain
