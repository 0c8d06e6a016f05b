// Commands become calls: what is merged, what waits for what.
#include "backend/gpu/merge_launches.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/gpu/dependencies.h"
#include "gpu_device.h"
#include "support/splitmix.h"

namespace meshtrain::test {
namespace {

using gpu::Call;
using gpu::Command;
using gpu::KernelCall;
using gpu::MergedLaunches;

std::byte* memory_at(int64_t offset) {
  return reinterpret_cast<std::byte*>((int64_t{1} << 44) + offset);
}

Access range(int64_t begin, int64_t end, bool is_write) {
  return {memory_at(begin), memory_at(end), is_write};
}

// `kind`: of the body; commands of one kind can be one launch.
Command launch(int kind, std::vector<Access> accesses, uint64_t blocks = 100,
               int64_t work = 1 << 20, size_t args = 2) {
  gpu::Launch out;
  out.body = gpu::make_body("kind", std::to_string(kind), 0, false);
  out.blocks = blocks;
  for (size_t a = 0; a < args; ++a)
    out.args.push_back(1000 * a + blocks);
  out.work = work;
  return {std::move(out), std::move(accesses), "step/" + std::to_string(kind)};
}

Command tiny(int kind, std::vector<Access> accesses) {
  return launch(kind, std::move(accesses), 1, 100);
}

Command product(std::vector<Access> accesses) {
  return {gpu::Matmul{}, std::move(accesses), "dense/matmul"};
}

bool conflict(const Command& a, const Command& b) {
  for (const Access& x : a.accesses) {
    for (const Access& y : b.accesses) {
      if ((x.is_write || y.is_write) && std::max(x.begin, y.begin) < std::min(x.end, y.end))
        return true;
    }
  }
  return false;
}

bool is_chain(const Call& call) {
  const auto* kernel = std::get_if<KernelCall>(&call.what);
  return kernel != nullptr && kernel->kernel.starts_with("chain_");
}

// [a][b]: whether call a comes after call b.
std::vector<std::vector<bool>> closure(const std::vector<Call>& calls) {
  std::vector<std::vector<bool>> out(calls.size(), std::vector<bool>(calls.size(), false));
  for (size_t c = 0; c < calls.size(); ++c) {
    for (int before : calls[c].after) {
      out[c][static_cast<size_t>(before)] = true;
      for (size_t i = 0; i < c; ++i)
        out[c][i] = out[c][i] || out[static_cast<size_t>(before)][i];
    }
  }
  return out;
}

// Every command once; those that conflict in their order; nothing waits without a reason, and
// nothing that follows from the rest is said.
void check_against_all_pairs(const std::vector<Command>& commands, const MergedLaunches& merged) {
  std::vector<size_t> call_of(commands.size(), commands.size()), place(commands.size());
  for (size_t c = 0; c < merged.calls.size(); ++c) {
    for (size_t i = 0; i < merged.calls[c].commands.size(); ++i) {
      const size_t command = static_cast<size_t>(merged.calls[c].commands[i]);
      REQUIRE(call_of[command] == commands.size());
      call_of[command] = c;
      place[command] = i;
    }
  }
  const auto after = closure(merged.calls);
  std::set<std::pair<size_t, size_t>> reasons;
  int wrong = 0;
  for (size_t b = 0; b < commands.size(); ++b) {
    REQUIRE(call_of[b] < merged.calls.size());
    for (size_t a = 0; a < b; ++a) {
      if (!conflict(commands[a], commands[b]))
        continue;
      const size_t first = call_of[a], second = call_of[b];
      if (first == second) {
        wrong += !is_chain(merged.calls[first]) || place[a] > place[b];
      } else {
        wrong += !after[second][first];
        reasons.insert({second, first});
      }
    }
  }
  CHECK(wrong == 0);
  for (size_t c = 0; c < merged.calls.size(); ++c) {
    for (int before : merged.calls[c].after) {
      REQUIRE(before < static_cast<int>(c));
      wrong += reasons.count({c, static_cast<size_t>(before)}) == 0;
      for (int other : merged.calls[c].after)
        wrong += other != before && after[static_cast<size_t>(other)][static_cast<size_t>(before)];
    }
  }
  CHECK(wrong == 0);
}

std::vector<Command> random_commands(uint64_t seed, int count, int64_t bytes) {
  uint64_t n = 0;
  const auto below = [&](int64_t limit) {
    return splitmix_below(seed, n++, static_cast<uint64_t>(limit));
  };
  std::vector<Command> out;
  for (int i = 0; i < count; ++i) {
    std::vector<Access> accesses;
    for (int64_t a = below(4); a >= 0; --a) {
      const int64_t begin = below(bytes);
      accesses.push_back(range(begin, begin + below(20), below(3) == 0));
    }
    const int kind = static_cast<int>(below(4));
    if (below(5) == 0) {
      out.push_back(product(std::move(accesses)));
    } else if (below(2) == 0) {
      out.push_back(tiny(kind, std::move(accesses)));
    } else {
      out.push_back(launch(kind, std::move(accesses)));
    }
  }
  return out;
}

// to[i] = a[i] * factor + b[size - 1 - i].
const char* const kThroughShared = R"(
unsigned* all = (unsigned*)shared;
const unsigned t = threadIdx.x;
all[255 - t] = ((const unsigned*)arg[1])[t];
__syncthreads();
((unsigned*)arg[2])[t] = ((const unsigned*)arg[0])[t] * {}u + all[t];
)";
const char* const kStraight = R"(
const unsigned i = block * kThreads + threadIdx.x, n = (unsigned)arg[3];
if (i < n)
  ((unsigned*)arg[2])[i] = ((const unsigned*)arg[0])[i] * {}u + ((const unsigned*)arg[1])[n - 1 - i];
)";

const KernelCall& kernel_of(const Call& call) {
  return std::get<KernelCall>(call.what);
}

}  // namespace

// Opens no device, so that it shows nothing on a real one (scripts/gpu_check.sh).
TEST_SUITE_BEGIN("host");

TEST_CASE("calls order what conflicts and nothing else") {
  size_t calls = 0, commands = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const int64_t bytes = seed % 3 == 0 ? 60 : seed % 3 == 1 ? 600 : 6000;
    const std::vector<Command> list = random_commands(seed, 120, bytes);
    const MergedLaunches merged = gpu::merge_launches(list);
    CAPTURE(seed);
    check_against_all_pairs(list, merged);
    calls += merged.calls.size();
    commands += list.size();
  }
  CHECK(calls < commands * 2 / 3);  // some were merged
}

TEST_CASE("chains whose last launches take different numbers of arguments are different kernels") {
  std::vector<Command> commands;
  std::vector<size_t> params;
  for (size_t i = 0; i < 2; ++i) {
    commands.push_back(tiny(1, {range(0, 10, true)}));
    commands.push_back(launch(2, {range(0, 10, false), range(10, 20, true)}, 1, 100, 2 + i));
    commands.push_back(product({range(0, 100, true)}));  // what comes behind it is another chain
  }
  std::set<std::string> names;
  for (const Call& call : gpu::merge_launches(commands).calls) {
    if (!is_chain(call))
      continue;
    const KernelCall& kernel = std::get<KernelCall>(call.what);
    names.insert(kernel.kernel);
    params.push_back(kernel.params.size());
  }
  CHECK(params == std::vector<size_t>{4, 5});
  CHECK(names.size() == 2);
}

TEST_CASE("equal launches that do not depend on each other are one") {
  const std::vector<Command> list = {
      launch(1, {range(0, 10, true)}, 3), product({range(0, 10, false), range(100, 110, true)}),
      launch(1, {range(10, 20, true)}, 5), launch(2, {range(20, 30, true)}, 7)};
  const MergedLaunches merged = gpu::merge_launches(list);
  REQUIRE(merged.calls.size() == 3);
  const KernelCall& call = kernel_of(merged.calls[0]);
  CHECK(merged.calls[0].commands == std::vector<int>{0, 2});
  CHECK(merged.calls[0].path == "step/1");
  CHECK(call.grid == 8);
  // The first block of each, then the arguments of each.
  CHECK(call.params == std::vector<gpu::LaunchArg>{uint64_t{0}, 3, 3, 1003, 5, 1005});
  CHECK(merged.calls[1].after == std::vector<int>{0});
  CHECK(merged.calls[2].after.empty());
  CHECK(kernel_of(merged.calls[2]).params == std::vector<gpu::LaunchArg>{7, 1007});
}

TEST_CASE("a launch does not move before what it waits for") {
  const std::vector<Command> list = {
      launch(1, {range(0, 10, true)}), product({range(0, 10, false), range(20, 30, true)}),
      launch(1, {range(20, 30, false), range(30, 40, true)}), launch(1, {range(50, 60, true)})};
  const MergedLaunches merged = gpu::merge_launches(list);
  REQUIRE(merged.calls.size() == 3);
  CHECK(merged.calls[0].commands == std::vector<int>{0, 3});
  CHECK(merged.calls[2].commands == std::vector<int>{2});
  CHECK(merged.calls[2].after == std::vector<int>{1});
}

TEST_CASE("no call has more parameters than a kernel takes") {
  std::vector<Command> large, chained;
  for (int i = 0; i < 400; ++i) {
    large.push_back(launch(1, {range(i * 10, i * 10 + 10, true)}, 100, 1 << 20, 3));
    chained.push_back(tiny(i, {range(0, 10, true)}));
  }
  MergedLaunches merged = gpu::merge_launches(large);
  CHECK(merged.calls.size() == 4);  // 128 of four words each
  for (const Call& call : merged.calls)
    CHECK(kernel_of(call).params.size() <= gpu::kMaxParams);
  merged = gpu::merge_launches(chained);
  REQUIRE(merged.calls.size() == 2);
  CHECK(kernel_of(merged.calls[0]).params.size() == gpu::kMaxParams);
  CHECK(merged.calls[1].after == std::vector<int>{0});
}

TEST_CASE("tiny launches that follow each other are one block") {
  std::vector<Command> list;
  for (int i = 0; i < 5; ++i)
    list.push_back(
        tiny(i, {range(i * 10, i * 10 + 10, false), range(i * 10 + 10, i * 10 + 20, true)}));
  const MergedLaunches merged = gpu::merge_launches(list);
  REQUIRE(merged.calls.size() == 1);
  const KernelCall& call = kernel_of(merged.calls[0]);
  CHECK(merged.calls[0].commands == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(merged.calls[0].path == "step/0, step/1, step/2 and 2 more");
  CHECK(call.grid == 1);
  CHECK(call.has_barriers);
  CHECK(call.params.size() == 10);
  // The same calls have the same name whatever they are called on.
  for (Command& command : list)
    std::get<gpu::Launch>(command.what).args[0].value += 512;
  CHECK(kernel_of(gpu::merge_launches(list).calls[0]).kernel == call.kernel);
}

TEST_CASE("launches of many blocks or much work stay by themselves") {
  const auto step = [](int i) {
    return std::vector<Access>{range(i * 10, i * 10 + 10, false),
                               range(i * 10 + 10, i * 10 + 20, true)};
  };
  const std::vector<Command> list = {tiny(0, step(0)),
                                     launch(1, step(1), gpu::kTinyBlocks + 1, 100),
                                     tiny(2, step(2)), launch(3, step(3), 1, gpu::kTinyWork + 1),
                                     launch(4, step(4), gpu::kTinyBlocks, gpu::kTinyWork)};
  CHECK(gpu::merge_launches(list).calls.size() == 5);
}

TEST_CASE("a tiny launch joins an earlier block where what it waits for is before") {
  const std::vector<Command> list = {tiny(0, {range(0, 10, true)}),
                                     tiny(1, {range(10, 20, true)}),
                                     product({range(0, 20, false), range(20, 30, true)}),
                                     tiny(2, {range(0, 10, false), range(30, 40, true)}),
                                     tiny(3, {range(20, 30, false), range(40, 50, true)}),
                                     product({range(30, 50, false), range(50, 60, true)})};
  const MergedLaunches merged = gpu::merge_launches(list);
  REQUIRE(merged.calls.size() == 4);
  CHECK(merged.calls[0].commands == std::vector<int>{0, 1, 3});
  CHECK(merged.calls[1].after == std::vector<int>{0});
  CHECK(merged.calls[2].commands == std::vector<int>{4});
  CHECK(merged.calls[2].after == std::vector<int>{1});
  CHECK(merged.calls[3].after == std::vector<int>{2});
}

TEST_CASE("tiny launches that nothing waits for are one block behind everything else") {
  const std::vector<Command> list = {tiny(0, {range(0, 10, true)}),
                                     tiny(1, {range(0, 10, false), range(10, 20, true)}),
                                     product({range(0, 10, false), range(20, 30, true)}),
                                     tiny(2, {range(20, 30, false), range(30, 40, true)})};
  const MergedLaunches merged = gpu::merge_launches(list);
  REQUIRE(merged.calls.size() == 3);
  CHECK(merged.calls[0].commands == std::vector<int>{0});
  CHECK(merged.calls[2].commands == std::vector<int>{1, 3});
  CHECK(merged.calls[2].after == std::vector<int>{1});
}

TEST_CASE("a block waits between stages and not between launches") {
  const std::vector<Command> list = {tiny(0, {range(0, 10, true)}), tiny(1, {range(10, 20, true)}),
                                     tiny(2, {range(20, 30, true)}),
                                     tiny(3, {range(0, 30, false), range(30, 40, true)})};
  const MergedLaunches merged = gpu::merge_launches(list);
  REQUIRE(merged.calls.size() == 1);
  const size_t kernel = merged.module.find(kernel_of(merged.calls[0]).kernel);
  REQUIRE(kernel != std::string::npos);
  int barriers = 0;
  for (size_t at = kernel; (at = merged.module.find("__syncthreads", at)) != std::string::npos;
       ++at)
    ++barriers;
  CHECK(barriers == 1);
}

TEST_CASE("empty accesses and a command's own memory make nothing wait") {
  const std::vector<Command> list = {
      launch(0, {range(0, 10, false), range(0, 10, true), range(5, 5, true)}),
      launch(1, {range(5, 5, true), range(10, 20, true)})};
  const MergedLaunches merged = gpu::merge_launches(list);
  REQUIRE(merged.calls.size() == 2);
  CHECK(merged.calls[0].after.empty());
  CHECK(merged.calls[1].after.empty());
}

TEST_CASE("the text of a module has every body once") {
  std::vector<Command> list;
  for (int i = 0; i < 6; ++i)
    list.push_back(launch(7, {range(i / 2 * 10, i / 2 * 10 + 10, true)}));
  const MergedLaunches merged = gpu::merge_launches(list);
  CHECK(merged.calls.size() == 2);
  const std::string body = std::get<gpu::Launch>(list[0].what).body->name;
  const std::string head = "static __device__ void " + body + "(";
  const size_t first = merged.module.find(head);
  REQUIRE(first != std::string::npos);
  CHECK(merged.module.find(head, first + 1) == std::string::npos);
}

TEST_CASE("what follows from the rest is left out as far as is looked back") {
  constexpr int kFar = gpu::PathReduction::kReach + 100;
  gpu::PathReduction paths;
  int wrong = 0;
  for (int node = 0; node < 3 * kFar; ++node) {
    std::vector<int> after;
    for (int back : {kFar, 1000, 1}) {
      if (node >= back)
        after.push_back(node - back);
    }
    std::vector<int> expected;
    if (node >= kFar)  // too far back to know that it follows
      expected.push_back(node - kFar);
    if (node >= 1)
      expected.push_back(node - 1);
    wrong += paths.add(after) != expected;
  }
  CHECK(wrong == 0);
}

// In near-linear time: counted, since clocks of busy machines say little.
TEST_CASE("finding the order of 20000 commands takes few steps") {
  constexpr int kCommands = 20000;
  const auto steps_of = [](const std::vector<Command>& list) {
    gpu::MemoryOrder order;
    for (const Command& command : list)
      order.add(command.accesses);
    return order.steps() / kCommands;
  };
  CHECK(steps_of(random_commands(1, kCommands, 1000)) < 60);
  CHECK(steps_of(random_commands(2, kCommands, 1000000)) < 60);
  // A forward and a backward pass over buffers that all read one more.
  std::vector<Command> list;
  const int64_t last = kCommands / 2;
  for (int64_t i = 0; i < kCommands; ++i) {
    const int64_t at = i < last ? i : kCommands - 1 - i;
    list.push_back(
        launch(static_cast<int>(i), {range(at * 100, at * 100 + 100, false), range(-100, 0, false),
                                     range(at * 100 + 100, at * 100 + 200, i < last),
                                     range((at + last) * 100, (at + last) * 100 + 50, true)}));
  }
  CHECK(steps_of(list) < 20);
  const MergedLaunches merged = gpu::merge_launches(list);
  CHECK(merged.calls.size() == static_cast<size_t>(kCommands));
}

TEST_SUITE_END();

TEST_CASE("merged commands compute what they compute one after the other") {
  constexpr int64_t kWords = 4096, kCommands = 150;
  set_emulator_seed(0);
  const std::unique_ptr<gpu::Device> device = open_test_device();
  if (device == nullptr)
    return;
  std::byte* memory = device->allocate(kWords * 4);
  std::vector<uint32_t> expected(kWords);
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] = static_cast<uint32_t>(splitmix_bits(5, i));
  device->upload(memory, expected.data(), kWords * 4);

  std::vector<Command> list;
  uint64_t n = 0;
  const auto below = [&](uint64_t limit) { return splitmix_below(6, n++, limit); };
  for (int64_t c = 0; c < kCommands; ++c) {
    const bool shares = below(2) == 0;
    const uint32_t factor = static_cast<uint32_t>(below(3)) * 2 + 3;
    const int64_t size = shares ? 256 : 64 + below(400);
    const int64_t to = below(static_cast<uint64_t>(kWords / 512)) * 512;
    std::array<int64_t, 2> from;
    for (int64_t& place : from) {
      do {
        place = below(static_cast<uint64_t>(kWords / 512)) * 512;
      } while (place == to);
    }
    const std::string text = fmt::format(fmt::runtime(shares ? kThroughShared : kStraight), factor);
    gpu::Launch out;
    out.body = gpu::make_body("mix", text, shares ? 1024 : 0, shares);
    out.blocks = static_cast<uint64_t>((size + 255) / 256);
    const auto address = [&](int64_t word) { return gpu::LaunchArg(memory + word * 4); };
    out.args = {address(from[0]), address(from[1]), address(to), static_cast<uint64_t>(size)};
    out.work = below(2) == 0 ? 1 << 20 : 3 * size;
    const auto access = [&](int64_t word, bool is_write) {
      return Access{memory + word * 4, memory + (word + size) * 4, is_write};
    };
    list.push_back({std::move(out),
                    {access(from[0], false), access(from[1], false), access(to, true)},
                    "mix"});
    for (int64_t i = 0; i < size; ++i)
      expected[to + i] = expected[from[0] + i] * factor + expected[from[1] + size - 1 - i];
  }
  CHECK(gpu::merge_launches(list).calls.size() < kCommands);
  for (uint64_t seed : {0u, 1u, 2u}) {
    set_emulator_seed(seed);
    std::vector<uint32_t> got(kWords);
    for (size_t i = 0; i < got.size(); ++i)
      got[i] = static_cast<uint32_t>(splitmix_bits(5, i));
    device->upload(memory, got.data(), kWords * 4);
    device->make_plan(list, {}, 0, 1)->run();
    device->download(got.data(), memory, kWords * 4);
    const bool equal = got == expected;
    CHECK(equal);
  }
  set_emulator_seed(0);
  device->free(memory);
}

}  // namespace meshtrain::test
