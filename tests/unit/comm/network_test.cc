// Which network, and the settings of Open MPI.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "comm/mpi/load.h"
#include "comm/socket.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

TEST_CASE("an interface that is not there is refused with those that are") {
  const std::vector<std::string> known = network_interfaces();
  REQUIRE(!known.empty());
  CHECK(std::is_sorted(known.begin(), known.end()));
  ::unsetenv("MESHTRAIN_NET_INTERFACE");
  CHECK(chosen_interface().empty());
  ::setenv("MESHTRAIN_NET_INTERFACE", known[0].c_str(), 1);
  CHECK(chosen_interface() == known[0]);
  ::setenv("MESHTRAIN_NET_INTERFACE", "eth7\x1b", 1);
  const Caught error = caught([] { chosen_interface(); });
  ::unsetenv("MESHTRAIN_NET_INTERFACE");
  CHECK(error.code == "E613");
  CHECK(error.exit_code == 8);
  CHECK(error.says("`eth7?`"));
  CHECK(error.says("there are: " + known[0]));
}

TEST_CASE("Open MPI gives way where processes share cores and keeps to one interface") {
  const auto settings = [](int local_size, int cores, const std::string& interface) {
    const auto list = mpi_settings(local_size, cores, interface);
    return std::map<std::string, std::string>(list.begin(), list.end());
  };
  const auto few = settings(2, 2, "");
  CHECK(few.at("OMPI_MCA_coll") == "^han,adapt");
  CHECK(few.at("PMIX_MCA_gds") == "hash");
  CHECK(few.at("OMPI_MCA_oob_tcp_keepalive_time") == "10");
  CHECK(few.count("OMPI_MCA_mpi_yield_when_idle") == 0);
  CHECK(few.count("OMPI_MCA_btl_tcp_if_include") == 0);
  const auto many = settings(3, 2, "eth0");
  CHECK(many.at("OMPI_MCA_mpi_yield_when_idle") == "1");
  CHECK(many.at("OMPI_MCA_btl_tcp_if_include") == "eth0");
  CHECK(many.at("OMPI_MCA_oob_tcp_if_include") == "eth0");
  CHECK(many.at("NCCL_SOCKET_IFNAME") == "=eth0");
}

}  // namespace
}  // namespace meshtrain::test
