// Checks that all processes of a run are consistent before they start: the same program, config and
// request.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/process_group.h"

namespace meshtrain {

struct Fact {
  std::string name;   // "config"
  std::string value;  // of any length; only a hash is sent unless some differ
  // The lines that say how another rank's value differs from that of rank 0; by default both
  // values.
  std::function<std::vector<std::string>(const std::string& first, const std::string& other)>
      difference = nullptr;
};

// Collective; `facts` have the same names everywhere. Throws ConfigError E611 (exit 2) on every
// rank, with each rank and host that differs from rank 0 and in what: "rank 3 on host b `differs`
// rank 0 on host a".
void check_consistent(ProcessGroup& group, const std::vector<Fact>& facts,
                      std::string_view differs = "is not started as");

// Collective: what ended a process before the run, empty text for nothing.
struct Failure {
  int exit_code = 0;
  std::string text;  // as it is shown
};
// Collective: returns the common failure, the same on all ranks. It is empty, one text that all
// ranks have, or the texts of the failed ranks with rank and host, and the exit code of the first.
Failure common_failure(ProcessGroup& group, const Failure& mine);

}  // namespace meshtrain
