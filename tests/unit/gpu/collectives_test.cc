// What each of several processes tells its GPU of whole training steps to send: known without one.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "engine/setup.h"
#include "exec/library_collective.h"
#include "plan/plan_summary.h"
#include "support/engine_case.h"
#include "support/gpu_commands.h"

namespace meshtrain::test {
namespace {

using gpu::Command;
using Overrides = std::vector<std::string>;

// Sizes that every mesh divides, so that shares are equal.
constexpr const char* kModel = R"(
seed: 1
distribution:
  type: ModelParallel
  batch_dim_name: data
  device_mesh: {shape: [2, 4], axis_names: [data, model]}
data: {train: {source: random, samples: 64, shape: [64], labels: [16], seed: 3}}
model:
  layers:
    - Input: {shape: [64]}
    - Dense: {name: d1, units: 64, activation: relu}
    - Dense: {name: d2, units: 64}
    - Dense: {name: d3, units: 16}
compile: {optimizer: {Adam: {learning_rate: 0.01}}, loss: mse}
fit: {batch_size: 16}
)";

constexpr const char* kSplit =
    "distribution.layout_map={d1/kernel: [null, model], d1/bias: [model], d2/kernel: [model, "
    "null]}";

const std::vector<Overrides> kLayouts = {
    {"distribution.device_mesh.shape=[8,1]"},                                 // data parallel
    {kSplit, "distribution.device_mesh.shape=[1,8]"},                         // tensor parallel
    {kSplit, "distribution.device_mesh.shape=[2,4]"},                         // both
    {"distribution.device_mesh.shape=[8,1]", "distribution.zero=1"},          // ZeRO-1
    {"distribution.device_mesh.shape=[8,1]", "distribution.zero=2"},          // ZeRO-2
    {"distribution.device_mesh.shape=[8,1]", "distribution.zero=3"},          // FSDP
    {kSplit, "distribution.device_mesh.shape=[2,4]", "distribution.zero=3"},  // with both
    {"distribution.batch_dim_name=[data, model]", "distribution.zero_axes=[model]",
     "distribution.zero=3"},  // HSDP
};

using Groups = std::set<std::vector<int>>;

struct Planned {
  std::vector<std::vector<Command>> commands;  // by rank, those that communicate
  std::vector<Groups> groups;                  // by rank, as the program tells without commands
  int64_t bytes = 0;                           // that the plan says each device sends
};

std::vector<Command> communications(const Program& program) {
  std::vector<Command> all = gpu_commands(program);
  std::erase_if(all, [](const Command& command) { return !gpu::communicates(command.what); });
  return all;
}

Planned plan_over(int processes, Overrides overrides, const std::string& reductions) {
  overrides.push_back("distribution.reductions=" + reductions);
  const Config config = config_from(kModel, overrides);
  const Dataset data = load_dataset(*config.data.train, config.data);
  const DataSpec spec = data_spec(data);
  Planned out;
  for (int rank = 0; rank < processes; ++rank) {
    const Setup setup(config, &spec, {}, processes, rank);
    const Compiled compiled = setup.compile(StepKind::kTrain, 16);
    out.commands.push_back(communications(compiled.program));
    const std::vector<std::vector<int>> groups = library_groups(compiled.program);
    out.groups.emplace_back(groups.begin(), groups.end());
    CHECK(out.groups.back().size() == groups.size());
    if (rank > 0)
      continue;
    for (const PlannedCollective& c : planned_collectives(compiled.graph, setup.mesh()))
      out.bytes += c.bytes_sent;
  }
  return out;
}

template <class What>
int64_t count_of(const std::vector<Command>& commands) {
  return std::count_if(commands.begin(), commands.end(), [](const Command& command) {
    return std::holds_alternative<What>(command.what);
  });
}

// With what a bandwidth-optimal all-reduce sends.
int64_t bytes_of(const std::vector<Command>& commands) {
  int64_t bytes = gpu::traffic_of(commands).bytes_sent;
  for (const Command& command : commands) {
    if (const auto* all_reduce = std::get_if<AllReduceSpec>(&command.what)) {
      const auto n = static_cast<int64_t>(all_reduce->ranks.size());
      bytes += 2 * (n - 1) * all_reduce->bytes() / n;
    }
  }
  return bytes;
}

TEST_CASE("GPUs of eight processes send what the plan says and no byte more") {
  for (const Overrides& layout : kLayouts) {
    CAPTURE(layout.front());
    CAPTURE(layout.back());
    const Planned fast = plan_over(8, layout, "fast"), fixed = plan_over(8, layout, "fixed");
    CHECK(fast.bytes > 0);
    int64_t total = 0;
    for (size_t rank = 0; rank < 8; ++rank) {
      CHECK(bytes_of(fast.commands[rank]) == fast.bytes);
      const int64_t sent = bytes_of(fixed.commands[rank]);
      CHECK(std::abs(sent - fixed.bytes) <= 64);  // of scalars: a loss has one share
      total += sent;
    }
    CHECK(total == 8 * fixed.bytes);
  }
}

// NCCL's maximum of a NaN and a number is the number.
TEST_CASE("a maximum of floats is joined here and not by the library") {
  const Overrides layout = {
      kSplit, "distribution.device_mesh.shape=[1,8]",
      "distribution.layout_map={d1/kernel: [null, model], d1/output: [null, model]}",
      "model.layers=[{Input: {shape: [64]}}, {Dense: {name: d1, units: 64}}, {Lambda: {function: "
      "'=max(x, axis=-1, keepdims=true)'}}, {Dense: {name: d3, units: 16}}]"};
  const Planned planned = plan_over(8, layout, "fast");
  int64_t sums = 0;
  for (size_t rank = 0; rank < 8; ++rank) {
    Groups used;
    for (const Command& command : planned.commands[rank]) {
      if (const auto* all_reduce = std::get_if<AllReduceSpec>(&command.what)) {
        CHECK(all_reduce->reduction == Reduction::kSum);
        ++sums;
      }
      if (const std::vector<int>* ranks = gpu::ranks_of(command.what))
        used.insert(*ranks);
    }
    CHECK(planned.groups[rank] == used);
    CHECK(count_of<ExchangeSpec>(planned.commands[rank]) > 0);
  }
  MESSAGE(sums, " sums");
}

// They are joined, and their memory taken, before it is asked what fits.
TEST_CASE("the groups of all collectives are known before there are commands") {
  for (const Overrides& layout : kLayouts) {
    CAPTURE(layout.back());
    for (const int processes : {2, 4, 8}) {
      CAPTURE(processes);
      for (const char* reductions : {"fast", "fixed"}) {
        const Planned planned = plan_over(processes, layout, reductions);
        for (size_t rank = 0; rank < planned.commands.size(); ++rank) {
          Groups used;
          for (const Command& command : planned.commands[rank]) {
            if (const std::vector<int>* ranks = gpu::ranks_of(command.what))
              used.insert(*ranks);
          }
          CHECK(!used.empty());
          CHECK(planned.groups[rank] == used);
        }
      }
    }
  }
}

// Whether the others of its group do the same at the same time.
template <class What>
void check_together(const Planned& planned, size_t at, int rank) {
  const auto& mine = std::get<What>(planned.commands[static_cast<size_t>(rank)][at].what);
  CHECK(std::find(mine.ranks.begin(), mine.ranks.end(), rank) != mine.ranks.end());
  for (const int peer : mine.ranks) {
    const auto& theirs = std::get<What>(planned.commands[static_cast<size_t>(peer)][at].what);
    CHECK(theirs.ranks == mine.ranks);
    if constexpr (std::is_same_v<What, AllGatherSpec>)
      CHECK(theirs.bytes == mine.bytes);
    else
      CHECK(theirs.elements == mine.elements);
  }
}

TEST_CASE("all processes of a group do the same collectives in the same order") {
  for (const int processes : {2, 4, 8}) {
    for (const Overrides& layout : kLayouts) {
      for (const char* reductions : {"fast", "fixed"}) {
        CAPTURE(processes);
        CAPTURE(layout.front());
        CAPTURE(reductions);
        const Planned planned = plan_over(processes, layout, reductions);
        for (int rank = 0; rank < processes; ++rank) {
          const std::vector<Command>& own = planned.commands[static_cast<size_t>(rank)];
          for (size_t c = 0; c < own.size(); ++c) {
            if (std::holds_alternative<AllGatherSpec>(own[c].what))
              check_together<AllGatherSpec>(planned, c, rank);
            else if (std::holds_alternative<ReduceScatterSpec>(own[c].what))
              check_together<ReduceScatterSpec>(planned, c, rank);
            else if (std::holds_alternative<AllReduceSpec>(own[c].what))
              check_together<AllReduceSpec>(planned, c, rank);
          }
        }
      }
    }
  }
}

TEST_CASE("weights are gathered and gradients scattered by collectives of their own") {
  for (const char* zero : {"distribution.zero=1", "distribution.zero=2", "distribution.zero=3"}) {
    CAPTURE(zero);
    const Overrides layout = {"distribution.device_mesh.shape=[8,1]", zero};
    const std::vector<Command> fast = plan_over(8, layout, "fast").commands[3];
    CHECK(count_of<AllGatherSpec>(fast) > 0);
    CHECK(count_of<ReduceScatterSpec>(fast) > 0);
    CHECK(count_of<ExchangeSpec>(fast) == 0);
    const std::vector<Command> fixed = plan_over(8, layout, "fixed").commands[3];
    CHECK(count_of<AllGatherSpec>(fixed) >= count_of<AllGatherSpec>(fast));
    CHECK(count_of<ReduceScatterSpec>(fixed) == 0);
    CHECK(count_of<AllReduceSpec>(fixed) == 0);
  }
}

TEST_CASE("the second half of an all-reduce with fixed reductions is an all-gather") {
  const Planned planned = plan_over(8, kLayouts[0], "fixed");
  const std::vector<Command>& own = planned.commands[1];
  int64_t gathered = 0, largest = 0;
  for (const Command& command : own) {
    if (const auto* gather = std::get_if<AllGatherSpec>(&command.what)) {
      CHECK(gather->ranks == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
      gathered += gather->whole_bytes();
    } else {
      for (const Message& message : std::get<ExchangeSpec>(command.what).sends)
        largest = std::max(largest, message.bytes);
    }
  }
  const int64_t parameters = 64 * 64 + 64 + 64 * 64 + 64 + 64 * 16 + 16;
  CHECK(gathered == parameters * 4);
  CHECK(largest == parameters * 4 / 8);  // an eighth of the terms
}

TEST_CASE("what lies as its parts do is gathered to where it belongs and nothing is copied") {
  // Of one tensor each, split along its first dimension.
  const Config config =
      config_from(kModel, {"distribution.device_mesh.shape=[8,1]", "distribution.zero=3",
                           "distribution.reductions=fast"});
  const Dataset data = load_dataset(*config.data.train, config.data);
  const DataSpec spec = data_spec(data);
  const Setup setup(config, &spec, {}, 8, 5);
  const Program program = setup.compile(StepKind::kTrain, 16, false).program;
  std::map<std::string, std::vector<Command>> by_path;
  for (const Command& command : gpu_commands(program))
    by_path[command.path].push_back(command);
  int64_t gathers = 0, scatters = 0;
  for (const auto& [path, commands] : by_path) {
    CAPTURE(path);
    const int64_t moved = count_of<AllGatherSpec>(commands) + count_of<ReduceScatterSpec>(commands);
    CHECK((moved == 0 || moved == static_cast<int64_t>(commands.size())));
    gathers += count_of<AllGatherSpec>(commands);
    scatters += count_of<ReduceScatterSpec>(commands);
  }
  CHECK(gathers == 6);
  CHECK(scatters == 6);
}

}  // namespace
}  // namespace meshtrain::test
