// When replicas are compared, and what E510 says. The comparison itself is in run_processes_test.
#include "train/replica_check.h"

#include <doctest/doctest.h>

#include <limits>

#include "support/temp_folder.h"
#include "support/thread_group.h"

namespace meshtrain {
namespace {

using test::caught;
using test::Caught;

TEST_CASE("several processes compare every so many steps, one alone or with 0 never") {
  run_as_processes(2, [](const std::shared_ptr<ThreadGroup>& group) {
    const Coordinator coordinator({group, nullptr}, [] { return 0.0; });
    const ReplicaCheck check(coordinator, 500);
    CHECK(check.steps_until_due(0) == 500);
    CHECK(check.steps_until_due(999) == 1);
    CHECK(check.is_due(1000));
    CHECK(!check.is_due(1001));
    CHECK(!ReplicaCheck(coordinator, 0).is_due(1000));
  });
  const Coordinator alone;
  CHECK(!ReplicaCheck(alone, 500).is_due(500));
  CHECK(ReplicaCheck(alone, 500).steps_until_due(0) == std::numeric_limits<int64_t>::max());
}

TEST_CASE("E510 names the last step at which all were equal, also when a save ends late") {
  const Coordinator alone;
  ReplicaCheck check(alone, 500);
  const auto differ = [&] { check.record("`k` differs between rank 0 and rank 1", 510, -1); };
  CHECK(caught(differ).code == "E510");
  CHECK(caught(differ).says("`k` differs between rank 0 and rank 1, found after step 510"));
  CHECK(caught(differ).says("it was not compared before"));
  CHECK(caught(differ).says("the last good checkpoint is none"));
  check.record("", 500, -1);
  check.record("", 498, -1);  // a save that was begun before, and has ended now
  CHECK(caught(differ).says("at step 500 they were equal"));
  CHECK(caught([&] { check.record("x", 510, 498); }).says("the last good checkpoint is 000498"));
}

}  // namespace
}  // namespace meshtrain
