// Each call of NCCL fails in turn in one of two processes, which are threads: it ends with a
// message that names the call, the other is aborted as the program does it, and nothing is left.
#include <array>
#include <mutex>

#include "backend/gpu/self_test.h"
#include "base/error.h"
#include "fake_gpu.h"
#include "support/thread_group.h"

namespace meshtrain::test {
namespace {

constexpr int kSize = 2;

// Of all processes: who fails ends the others, as the monitor of a run does.
struct Run {
  std::mutex mutex;
  std::array<gpu::Device*, kSize> devices{};
  bool has_failed = false;
  std::array<std::string, kSize> messages;

  void enter(int rank, gpu::Device& device) {
    const std::lock_guard lock(mutex);
    devices[static_cast<size_t>(rank)] = &device;
    if (has_failed)
      device.abort();
  }
  void leave(int rank) {
    const std::lock_guard lock(mutex);
    devices[static_cast<size_t>(rank)] = nullptr;
  }
  void fail(int rank, const std::string& message) {
    const std::lock_guard lock(mutex);
    messages[static_cast<size_t>(rank)] = message;
    has_failed = true;
    for (gpu::Device* device : devices) {
      if (device != nullptr)
        device->abort();
    }
  }
};

// The message of each process; "" for one that came to its end.
std::array<std::string, kSize> messages_of(bool use_graph) {
  Run run;
  gpu::Runtime* const runtime = fake_runtime();
  const std::string id = runtime->make_id();
  run_as_processes(kSize, [&](const std::shared_ptr<ThreadGroup>& group) {
    const int rank = group->rank();
    gpu::DeviceOptions options;
    options.use_graph = use_graph;
    options.measure = false;
    const auto device = runtime->open(rank, options);
    run.enter(rank, *device);
    try {
      device->join(id, rank, kSize);
      gpu::check_exchange(*device, rank, kSize);
      gpu::check_collectives(*device, rank, {0, 1});
      gpu::check_collectives(*device, rank, {1, 0});
    } catch (const RuntimeFailure& failure) {
      run.fail(rank, failure.what());
    }
    run.leave(rank);
  });
  return run.messages;
}

// What ends communicators, and questions that are asked again. A rank whose end fails aborts, which
// the other rank sees only if it still waits.
bool may_be_silent(const std::string& name) {
  return name == "ncclCommFinalize" || name == "ncclCommDestroy" || name == "ncclCommGetAsyncError";
}

bool is_designed(const std::string& message) {
  return message.empty() || (message.rfind("gpu:", 0) == 0 &&
                             (message.find(" failed") != std::string::npos ||
                              message.find("communication was aborted") != std::string::npos));
}

TEST_CASE("each call of NCCL that fails ends all processes with a message and leaves nothing") {
  set_order(1);
  for (const bool use_graph : {false, true}) {
    CHECK(messages_of(use_graph) == std::array<std::string, kSize>{});
    for (const std::string name :
         {"ncclCommInitRankConfig", "ncclCommSplit", "ncclCommGetAsyncError", "ncclGroupStart",
          "ncclSend", "ncclRecv", "ncclGroupEnd", "ncclAllReduce", "ncclAllGather",
          "ncclReduceScatter", "ncclCommFinalize", "ncclCommDestroy", "cuStreamQuery"}) {
      for (const int64_t skipped : {0, 1}) {
        fake_cuda::fail_named_call(name, skipped);
        const auto messages = messages_of(use_graph);
        fake_cuda::clear_faults();
        CAPTURE(use_graph);
        CAPTURE(name);
        CAPTURE(skipped);
        CAPTURE(messages[0]);
        CAPTURE(messages[1]);
        CHECK(is_designed(messages[0]));
        CHECK(is_designed(messages[1]));
        const bool failed = !messages[0].empty() || !messages[1].empty();
        CHECK((failed || may_be_silent(name)));
        check_clean();
      }
    }
  }
  set_order(0);
}

TEST_CASE("a process that waits for one that has aborted ends with NCCL's error") {
  for (const bool use_graph : {false, true}) {
    CAPTURE(use_graph);
    gpu::Runtime* const runtime = fake_runtime();
    const std::string id = runtime->make_id();
    std::string text;
    run_as_processes(kSize, [&](const std::shared_ptr<ThreadGroup>& group) {
      gpu::DeviceOptions options;
      options.use_graph = use_graph;
      const auto device = runtime->open(group->rank(), options);
      device->join(id, group->rank(), kSize);
      group->all_gather("");
      if (group->rank() == 1) {
        device->abort();
      } else {
        try {
          gpu::check_collectives(*device, 0, {0, 1});
        } catch (const RuntimeFailure& failure) {
          CHECK(failure.exit_code() == ExitCode::kRankLost);
          text = failure.what();
        }
      }
      group->all_gather("");
    });
    CHECK(text.find("failed on rank 0 of 2: remote process exited") != std::string::npos);
    check_clean();
  }
}

TEST_CASE("an id that NCCL does not give is an error of its own") {
  gpu::Runtime* const runtime = fake_runtime();
  runtime->make_id();
  fake_cuda::fail_named_call("ncclGetUniqueId", 0);
  std::string text;
  try {
    runtime->make_id();
  } catch (const RuntimeFailure& failure) {
    CHECK(failure.exit_code() == ExitCode::kRankLost);
    text = failure.what();
  }
  fake_cuda::clear_faults();
  CHECK(text == "ncclGetUniqueId failed: unhandled cuda error; ");
}

}  // namespace
}  // namespace meshtrain::test
