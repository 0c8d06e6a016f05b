// The emulator finds what kernels and commands must not do, so that the suites that run on it can
// fail.
#include <doctest/doctest.h>

#include "gpu_device.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

using gpu::Command;

Command launch(const std::string& text, std::vector<gpu::LaunchArg> args,
               std::vector<Access> accesses, bool has_barriers = false, unsigned shared_bytes = 0,
               uint64_t blocks = 1) {
  gpu::Launch out;
  out.body = gpu::make_body("case", text, shared_bytes, has_barriers);
  out.blocks = blocks;
  out.args = std::move(args);
  out.work = 1 << 20;
  return {std::move(out), std::move(accesses), "layer/op"};
}

struct Emulated {
  Emulated() {
    ::setenv("MESHTRAIN_GPU_LIBRARY", MESHTRAIN_EMULATOR, 1);
    set_emulator_seed(0);
    device = open_test_device();
    if (device != nullptr)
      memory = device->allocate(kBytes);
  }
  const std::byte* address(int64_t offset = 0) const { return memory + offset; }
  Access access(int64_t begin, int64_t end, bool is_write) const {
    return {memory + begin, memory + end, is_write};
  }
  // What running them says, "" for nothing.
  std::string run(const std::vector<Command>& commands) {
    return caught([&] {
             device->make_plan(commands, {}, 0, 1)->run();
             device->synchronize();
           })
        .text;
  }
  std::vector<uint32_t> words(int64_t begin, int64_t count) {
    std::vector<uint32_t> out(static_cast<size_t>(count));
    device->download(out.data(), memory + begin, count * 4);
    return out;
  }

  static constexpr int64_t kBytes = 8192;
  std::unique_ptr<gpu::Device> device;
  std::byte* memory = nullptr;
};

const char* const kNumbers = "((unsigned*)arg[0])[block * 256u + threadIdx.x] = threadIdx.x;";

bool says(const std::string& text, std::string_view part) {
  CAPTURE(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

TEST_CASE("emulator: threads write and reduce as in CUDA") {
  Emulated e;
  if (e.device == nullptr)
    return;
  const std::string sum =
      "unsigned x = threadIdx.x;\n"
      "for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);\n"
      "unsigned* parts = (unsigned*)shared;\n"
      "if (threadIdx.x % 32u == 0u) parts[threadIdx.x / 32u] = x;\n"
      "__syncthreads();\n"
      "unsigned all = 0; for (int i = 0; i < 8; ++i) all += parts[i];\n"
      "((unsigned*)arg[0])[threadIdx.x] = all + __shfl_down_sync(0xffffffffu, threadIdx.x, 1);";
  for (uint64_t seed : {0, 1, 2, 3}) {
    set_emulator_seed(seed);
    CHECK(e.run({launch(kNumbers, {e.address()}, {e.access(0, 2048, true)}, false, 0, 2),
                 launch(sum, {e.address(4096)}, {e.access(4096, 5120, true)}, true, 32)}) == "");
    for (int64_t block : {0, 1})
      CHECK(e.words(block * 1024, 256)[200] == 200);
    const std::vector<uint32_t> sums = e.words(4096, 256);
    for (uint32_t t = 0; t < 256; ++t)
      CHECK(sums[t] == 255 * 128 + (t % 32 == 31 ? t : t + 1));
  }
}

TEST_CASE("emulator: writes outside of what a command names are found") {
  Emulated e;
  if (e.device == nullptr)
    return;
  says(e.run({launch(kNumbers, {e.address(4)}, {e.access(0, 1024, true)})}), "does not name");
  says(e.run({launch(kNumbers, {e.address()}, {e.access(0, 1024, false)})}), "only reads");
  const uint64_t number = reinterpret_cast<uint64_t>(e.address());
  says(e.run({launch(kNumbers, {number}, {e.access(0, 1024, true)})}), "not marked as one");
  says(e.run({launch(kNumbers, {e.address()}, {e.access(0, Emulated::kBytes + 4, true)})}),
       "lie in no allocation");
  says(e.run({launch("((unsigned*)shared)[threadIdx.x] = 1u;", {uint64_t{0}}, {}, false, 1020)}),
       "beyond its 1020 bytes");
}

TEST_CASE("emulator: reads outside of what a command names give garbage") {
  Emulated e;
  if (e.device == nullptr)
    return;
  const std::string copy = "((unsigned*)arg[0])[threadIdx.x] = ((unsigned*)arg[1])[threadIdx.x];";
  const std::vector<gpu::LaunchArg> args = {e.address(), e.address(2048)};
  CHECK(e.run({launch(copy, args, {e.access(0, 1024, true), e.access(2048, 3072, false)})}) == "");
  CHECK(e.words(0, 256)[9] == 0);
  CHECK(e.run({launch(copy, args, {e.access(0, 1024, true)})}) == "");
  CHECK(e.words(0, 256)[9] == 0xFFFFFFFF);
}

TEST_CASE("emulator: barriers that not all threads reach are errors") {
  Emulated e;
  if (e.device == nullptr)
    return;
  const std::vector<Access> none;
  says(
      e.run({launch("if (threadIdx.x == 3u) return; __syncthreads();", {uint64_t{0}}, none, true)}),
      "255 threads wait at __syncthreads, 0 in a shuffle, 1 have ended");
  says(e.run({launch("if (threadIdx.x < 4u) __shfl_xor_sync(0xffffffffu, 1, 1); else "
                     "__syncthreads();",
                     {uint64_t{0}}, none, true)}),
       "252 threads wait at __syncthreads, 4 in a shuffle");
  says(e.run({launch("__syncthreads();", {uint64_t{0}}, none, false)}), "is said to have none");
}

TEST_CASE("emulator: a missing barrier gives other results in another order") {
  Emulated e;
  if (e.device == nullptr)
    return;
  const std::string body =
      "unsigned* parts = (unsigned*)shared;\n"
      "parts[threadIdx.x] = threadIdx.x;\n"
      "((unsigned*)arg[0])[threadIdx.x] = parts[255u - threadIdx.x];";
  const std::vector<Command> commands = {
      launch(body, {e.address()}, {e.access(0, 1024, true)}, false, 1024)};
  CHECK(e.run(commands) == "");
  const std::vector<uint32_t> first = e.words(0, 256);
  set_emulator_seed(2);
  CHECK(e.run(commands) == "");
  const bool differs = e.words(0, 256) != first;
  CHECK(differs);
}

TEST_CASE("emulator: work waits until somebody asks for it") {
  Emulated e;
  if (e.device == nullptr)
    return;
  const auto plan =
      e.device->make_plan({launch(kNumbers, {e.address()}, {e.access(0, 1024, true)})}, {}, 0, 1);
  const std::unique_ptr<gpu::PinnedMemory> pinned = e.device->allocate_pinned(1024);
  const std::unique_ptr<gpu::Event> event = e.device->make_event();
  plan->run();
  e.device->enqueue_download(pinned->data(), e.memory, 1024);
  event->record();
  const auto* words = reinterpret_cast<const uint32_t*>(pinned->data());
  CHECK(words[5] == 0);
  event->wait();
  CHECK(words[5] == 5);
}

TEST_CASE("emulator: steps of a plan find their own part of a window") {
  Emulated e;
  if (e.device == nullptr)
    return;
  const gpu::Window window{e.memory, 1024, 1024};
  e.device->make_plan({launch(kNumbers, {e.address()}, {e.access(0, 1024, true)})}, {window}, 2, 3)
      ->run();
  for (int64_t step = 0; step < 6; ++step)
    CHECK(e.words(step * 1024, 256)[7] == (step >= 2 && step < 5 ? 7 : 0));
}

TEST_CASE("emulator: memory has an end and knows its own") {
  Emulated e;
  if (e.device == nullptr)
    return;
  const Caught large = caught([&] { e.device->allocate(int64_t{1} << 50); });
  CHECK(large.exit_code == 4);
  CHECK(large.says("allocating"));
  CHECK(caught([&] { e.device->free(e.memory + 256); }).says("was not allocated"));
  e.device->free(e.memory);
  CHECK(caught([&] { e.device->upload(e.memory, "1234", 4); }).says("lie in no allocation"));
}

}  // namespace
}  // namespace meshtrain::test
