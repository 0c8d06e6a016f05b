// Run by mpirun: what any ProcessGroup must do, over MPI. Prints what is wrong; exit status 1 then.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>

#include "comm/communicator_self_test.h"
#include "comm/handshake.h"
#include "comm/mpi/load.h"
#include "support/group_check.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

// All processes are on this host, in the order of their ranks.
void check_places(ProcessGroup& group, const LaunchEnvironment& environment,
                  std::vector<std::string>& problems) {
  if (group.rank() != environment.rank || group.local_rank() != environment.local_rank ||
      group.local_size() != environment.local_size) {
    problems.push_back(fmt::format(
        "MPI says rank {}, {} of {} here; mpirun {}, {} of {}", group.rank(), group.local_rank(),
        group.local_size(), environment.rank, environment.local_rank, environment.local_size));
  }
}

// A message of another length than what is waited for is an error where it arrives.
void check_unequal_lengths(ProcessGroup& group, std::vector<std::string>& problems) {
  if (group.size() < 2 || group.rank() > 1) {
    return;
  }
  const bool is_sender = group.rank() == 0;
  for (const auto& [sent, says] : {std::pair{7, "7 bytes came from rank 0 instead of 8"},
                                   {9, "9 bytes came from rank 0 instead of 8"}}) {
    std::byte bytes[9] = {};
    const std::vector<Message> messages = {{is_sender ? 1 : 0, bytes, is_sender ? sent : 8}};
    const Caught error = caught([&] {
      is_sender ? group.make_exchange(messages, {})->run()
                : group.make_exchange({}, messages)->run();
    });
    if (is_sender ? error.exit_code != 0 : !error.says(says)) {
      problems.push_back(
          fmt::format("rank {}: {} bytes for 8: `{}`", group.rank(), sent, error.text));
    }
  }
}

// What MPI refuses is an error with its words, not the end of the process.
void check_refusal(ProcessGroup& group, std::vector<std::string>& problems) {
  std::vector<int> ranks(static_cast<size_t>(group.size()) + 1);
  std::iota(ranks.begin(), ranks.end(), 0);  // one too many
  const Caught error =
      caught([&] { group.make_all_reduce(Reduction::kSum, DType::kFloat32, nullptr, 0, ranks); });
  if (error.exit_code != 8 || !error.says("MPI_Group_incl failed: MPI_ERR_RANK")) {
    problems.push_back(fmt::format("rank {}: no such rank: `{}`", group.rank(), error.text));
  }
}

// To itself, and nothing at all.
void check_own_message(ProcessGroup& group, std::vector<std::string>& problems) {
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  std::byte out[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}, in[4] = {};
  group
      .make_exchange({{group.rank(), out, 4}, {next, out, 0}},
                     {{group.rank(), in, 4}, {before, in, 0}})
      ->run();
  if (!std::equal(out, out + 4, in)) {
    problems.push_back("a message to itself");
  }
}

int run() {
  const LaunchEnvironment environment = read_environment([](const char* n) { return getenv(n); });
  const std::shared_ptr<ProcessGroup> group = make_mpi_group(environment, 2, "");
  std::vector<std::string> problems = check_group(*group);
  if (group->size() <= 3) {
    for (const std::string& problem : check_long_transfers(*group)) {
      problems.push_back(problem);
    }
  }
  check_places(*group, environment, problems);
  check_refusal(*group, problems);
  check_own_message(*group, problems);
  check_unequal_lengths(*group, problems);
  check_communicator(*group, true);
  check_consistent(*group, {{"version", "1"}});
  for (const std::string& problem : problems) {
    fmt::print(stderr, "{}\n", problem);
  }
  return problems.empty() ? 0 : 1;
}

}  // namespace
}  // namespace meshtrain::test

int main() {
  try {
    return meshtrain::test::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
