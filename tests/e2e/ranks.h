// meshtrain as several processes of this host, started by mpirun.
#pragma once

#include <string>
#include <vector>

#include "command.h"

namespace meshtrain {

// What is different for one rank: variables of its environment, or a shell command that runs before
// it in the same process ("echo $$ >pid").
struct Rank {
  std::vector<std::string> environment = {};
  std::string before = {};
};

// mpirun of `size` times `args`; `ranks`, where given, are the first of them.
inline Command as_ranks(int size, const std::vector<std::string>& args, const std::string& folder,
                        const std::vector<Rank>& ranks = {}) {
  Command out;
  out.program = MESHTRAIN_MPIRUN;
  out.folder = folder;
  out.args = {"--oversubscribe", "--quiet"};
  for (int r = 0; r < size; ++r) {
    const Rank rank = r < static_cast<int>(ranks.size()) ? ranks[static_cast<size_t>(r)] : Rank{};
    if (r > 0) {
      out.args.push_back(":");
    }
    out.args.insert(out.args.end(), {"-np", "1", "env"});
    out.args.insert(out.args.end(), rank.environment.begin(), rank.environment.end());
    if (!rank.before.empty()) {
      out.args.insert(out.args.end(), {"sh", "-c", rank.before + "; exec \"$@\"", "sh"});
    }
    out.args.push_back(MESHTRAIN_BINARY);
    out.args.insert(out.args.end(), args.begin(), args.end());
  }
  out.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                     "OMPI_MCA_mpi_yield_when_idle=1", "OMPI_MCA_rmaps_base_oversubscribe=1"};
  return out;
}

// How often one text is in another: of several processes one speaks.
inline size_t count(const std::string& text, const std::string& part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

}  // namespace meshtrain
