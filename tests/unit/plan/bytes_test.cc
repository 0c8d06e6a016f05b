// The bytes that a collective sends are one number: for the planner that chooses the moves, in the
// plan, and in the estimate of a collective's time.
#include <doctest/doctest.h>

#include <set>

#include "ir/builder.h"
#include "passes/resharder.h"
#include "plan/cost_model.h"
#include "plan/plan_summary.h"

namespace meshtrain {
namespace {

const Shape kShape = {12, 24};

// The collectives between two shardings as the partitioner writes them.
std::vector<PlannedCollective> planned(const Sharding& from, const Sharding& to,
                                       const DeviceMesh& mesh) {
  Graph graph;
  const ValueId x = Builder(graph).input("x", kShape, DType::kFloat32, false);
  Rewriter rewriter(graph);
  rewriter.move_and_keep_values(graph.nodes[0], {});
  Resharder resharder(rewriter, mesh);
  resharder.set_sharding(rewriter.mapped(x), from, {});
  resharder.reshard(rewriter.mapped(x), to, {"x", Phase::kForward, {}}, {});
  return planned_collectives(rewriter.to(), mesh);
}

TEST_CASE("reshard planner, plan and estimate agree on the bytes that a device sends") {
  const DeviceMesh mesh({2, 2, 3}, {"a", "b", "c"});
  Hardware hardware;
  for (const std::string& name : call_names()) {
    hardware.link_calls[name] = {0, 1};  // one byte a second
  }
  const char* const shardings[] = {"[null, null]",
                                   "[a, null]",
                                   "[b, null]",
                                   "[null, c]",
                                   "[[a, b], c]",
                                   "[c, [a, b]]",
                                   "[null, null] sum(a, c)",
                                   "[b, null] sum(c)"};
  std::set<MoveKind> seen;
  for (const char* source : shardings) {
    for (const char* target : shardings) {
      const Sharding from = parse_sharding(source, mesh), to = parse_sharding(target, mesh);
      if ((to.partial & ~from.partial) != 0) {
        continue;
      }
      CAPTURE(source);
      CAPTURE(target);
      const std::vector<PlannedCollective> collectives = planned(from, to, mesh);
      size_t next = 0;
      Sharding state = from;
      for (const ReshardMove& move : plan_reshard(from, to, kShape, DType::kFloat32, mesh)) {
        const int64_t sent = bytes_sent(move, state, kShape, DType::kFloat32, mesh);
        state = move.result;
        if (move.kind == MoveKind::kSlice) {
          CHECK(sent == 0);
          continue;
        }
        REQUIRE(next < collectives.size());
        const PlannedCollective& collective = collectives[next++];
        CHECK(collective.kind == move.kind);
        CHECK(collective.bytes_sent == sent);
        const CollectiveCall call{.kind = move.kind,
                                  .bytes = static_cast<double>(collective.bytes)};
        CHECK(collective_time(hardware, call, {collective.group_size, 1}).seconds ==
              doctest::Approx(static_cast<double>(sent)));
        seen.insert(move.kind);
      }
      CHECK(next == collectives.size());
    }
  }
  CHECK(seen.size() == 5);
}

}  // namespace
}  // namespace meshtrain
