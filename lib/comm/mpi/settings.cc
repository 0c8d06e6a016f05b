#include "comm/mpi/settings.h"

namespace meshtrain {

std::vector<std::pair<std::string, std::string>> mpi_settings(int local_size, int cores,
                                                              const std::string& interface) {
  std::vector<std::pair<std::string, std::string>> settings = {
      {"OMPI_MCA_coll", "^han,adapt"},
      {"OMPI_MCA_oob_tcp_keepalive_time", "10"},
      {"OMPI_MCA_oob_tcp_keepalive_intvl", "5"},
      {"OMPI_MCA_oob_tcp_keepalive_probes", "3"},
      {"PMIX_MCA_gds", "hash"},
  };
  if (local_size > cores) {
    settings.emplace_back("OMPI_MCA_mpi_yield_when_idle", "1");
  }
  if (!interface.empty()) {
    settings.emplace_back("OMPI_MCA_btl_tcp_if_include", interface);
    settings.emplace_back("OMPI_MCA_oob_tcp_if_include", interface);
    settings.emplace_back("NCCL_SOCKET_IFNAME", "=" + interface);  // that name, not a prefix
  }
  return settings;
}

}  // namespace meshtrain
