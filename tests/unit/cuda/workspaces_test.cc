#include "backend/cuda/workspaces.h"

#include <doctest/doctest.h>

#include "support/splitmix.h"

namespace meshtrain::test {
namespace {

bool comes_after(const std::vector<std::vector<int>>& after, int call, int before) {
  for (const int earlier : after[static_cast<size_t>(call)]) {
    if (earlier == before || comes_after(after, earlier, before))
      return true;
  }
  return false;
}

TEST_CASE("calls in a row share one workspace and wait for nothing more") {
  const std::vector<std::vector<int>> after = {{}, {0}, {1}};
  const cuda::WorkspaceShares shares = cuda::share_workspaces(after, {5, 6, 7}, 4);
  CHECK(shares.workspace == std::vector<int>{0, 0, 0});
  CHECK(shares.after == after);
}

TEST_CASE("calls beside each other have workspaces of their own as long as there are some") {
  const std::vector<std::vector<int>> after = {{}, {}, {}, {0}, {}};
  const cuda::WorkspaceShares shares = cuda::share_workspaces(after, {1, 1, 0, 1, 1}, 2);
  CHECK(shares.workspace == std::vector<int>{0, 1, -1, 0, 1});
  CHECK(shares.after[3] == std::vector<int>{0});
  CHECK(shares.after[4] == std::vector<int>{1});  // the one that was used longest ago
}

TEST_CASE("calls of one workspace never run at the same time") {
  uint64_t drawn = 0;
  const auto below = [&](uint64_t limit) {
    return static_cast<size_t>(splitmix_below(7, drawn++, limit));
  };
  for (int round = 0; round < 200; ++round) {
    const size_t count = 2 + below(80);
    const int most = 1 + static_cast<int>(below(4));
    std::vector<std::vector<int>> after(count);
    std::vector<size_t> bytes(count);
    for (size_t call = 0; call < count; ++call) {
      bytes[call] = below(3);
      for (size_t edges = below(3); call > 0 && edges > 0; --edges)
        after[call].push_back(static_cast<int>(below(call)));
    }
    const cuda::WorkspaceShares shares = cuda::share_workspaces(after, bytes, most);
    std::vector<int> last(static_cast<size_t>(most), -1);
    for (size_t call = 0; call < count; ++call) {
      const int workspace = shares.workspace[call];
      CHECK((workspace >= 0) == (bytes[call] > 0));
      for (const int earlier : shares.after[call])
        CHECK(earlier < static_cast<int>(call));
      if (workspace < 0)
        continue;
      REQUIRE(workspace < most);
      int& previous = last[static_cast<size_t>(workspace)];
      if (previous >= 0 && count <= 24)  // the search is exponential
        CHECK(comes_after(shares.after, static_cast<int>(call), previous));
      previous = static_cast<int>(call);
    }
  }
}

}  // namespace
}  // namespace meshtrain::test
