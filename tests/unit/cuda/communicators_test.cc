// Communicators beside an NCCL that is played here: what is called, what is waited for, what is
// said when it fails.
#include "backend/cuda/communicators.h"

#include <doctest/doctest.h>

#include <future>
#include <set>

#include "backend/cuda/libraries.h"

namespace meshtrain::test {
namespace {

using namespace std::chrono_literals;
using cuda::Communicators;

// What the played NCCL does and has seen.
struct Played {
  std::vector<std::string> calls;
  int in_progress = 0;              // answers that say "not yet", from now on
  ncclResult_t end = ncclSuccess;   // what comes after
  ncclResult_t send = ncclSuccess;  // of ncclSend
  const char* last = "and why";     // error
  std::set<ncclComm_t> communicators, aborted, destroyed;
  ncclComm_t* to_split = nullptr;  // what is made once its parent is asked and done
  std::promise<void> graphs;       // are gone: until then abort does not end

  ncclComm_t make() {
    const auto made =
        reinterpret_cast<ncclComm_t>(static_cast<uintptr_t>(16 + communicators.size()));
    communicators.insert(made);
    return made;
  }
  ncclResult_t answer() {
    if (in_progress > 0) {
      --in_progress;
      return ncclInProgress;
    }
    return end;
  }
};
Played* played = nullptr;

ncclResult_t note(std::string call, ncclResult_t result = ncclInProgress) {
  played->calls.push_back(std::move(call));
  return result;
}

cuda::Nccl make_nccl() {
  cuda::Nccl out;
  out.ncclGetErrorString = [](ncclResult_t) { return "what NCCL calls it"; };
  out.ncclGetLastError = [](ncclComm_t) { return played->last; };
  out.ncclCommInitRankConfig = [](ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                  ncclConfig_t* config) {
    CHECK(config->blocking == 0);
    CHECK(id.internal[0] == 'i');
    *made = played->make();
    return note(fmt::format("init {} of {}", rank, size));
  };
  out.ncclCommSplit = [](ncclComm_t, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
    CHECK(config->blocking == 0);
    CHECK(*made == nullptr);
    played->to_split = made;
    return note(fmt::format("split {} {}", color, key), ncclSuccess);
  };
  out.ncclCommGetAsyncError = [](ncclComm_t communicator, ncclResult_t* status) {
    CHECK(!played->aborted.contains(communicator));
    if (communicator == nullptr)
      return ncclInvalidArgument;  // and no status
    *status = played->answer();
    if (*status == ncclSuccess && played->to_split != nullptr)
      *std::exchange(played->to_split, nullptr) = played->make();
    return ncclSuccess;
  };
  out.ncclCommFinalize = [](ncclComm_t) { return note("finalize"); };
  out.ncclCommDestroy = [](ncclComm_t communicator) {
    played->destroyed.insert(communicator);
    return note("destroy", ncclSuccess);
  };
  out.ncclCommAbort = [](ncclComm_t communicator) {
    played->aborted.insert(communicator);
    return note("abort", ncclSuccess);
  };
  out.ncclGroupStart = [] { return note("start", ncclSuccess); };
  out.ncclGroupEnd = [] {
    if (!played->aborted.empty())
      played->graphs.get_future().wait();
    return note("end");
  };
  out.ncclSend = [](const void*, size_t bytes, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
    return note(fmt::format("send {} to {}", bytes, peer), played->send);
  };
  out.ncclRecv = [](void*, size_t bytes, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
    return note(fmt::format("receive {} from {}", bytes, peer), ncclSuccess);
  };
  out.ncclAllGather = [](const void* from, void* to, size_t count, ncclDataType_t type,
                         ncclComm_t communicator, cudaStream_t stream) {
    return note(fmt::format("all-gather {} {} at {} from {} to {} on {}", count,
                            static_cast<int>(type), fmt::ptr(communicator), fmt::ptr(from),
                            fmt::ptr(to), fmt::ptr(stream)));
  };
  out.ncclReduceScatter = [](const void* from, void* to, size_t count, ncclDataType_t type,
                             ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
    return note(fmt::format("reduce-scatter {} {} {} at {} from {} to {} on {}", count,
                            static_cast<int>(type), static_cast<int>(operation),
                            fmt::ptr(communicator), fmt::ptr(from), fmt::ptr(to),
                            fmt::ptr(stream)));
  };
  out.ncclAllReduce = [](const void* from, void* to, size_t count, ncclDataType_t type,
                         ncclRedOp_t operation, ncclComm_t, cudaStream_t) {
    CHECK(from == to);
    return note(fmt::format("all-reduce {} {} {}", count, static_cast<int>(type),
                            static_cast<int>(operation)));
  };
  return out;
}

// Rank 1 of 4 on gpu:0, joined.
struct Joined {
  Joined() {
    played = &nccl;
    core.name = "NVIDIA H200";
    communicators.emplace(core);
    nccl.in_progress = 3;
    communicators->join(functions, id, 1, 4);
    nccl.calls.clear();
  }

  const std::string id = std::string(sizeof(ncclUniqueId), 'i');
  Played nccl;
  cuda::Nccl functions = make_nccl();
  cuda::Core core;
  std::optional<Communicators> communicators;
};

struct Failed {
  std::string text;
  ExitCode code = ExitCode::kOk;
};

template <class Body>
Failed caught(const Body& body) {
  try {
    body();
  } catch (const RuntimeFailure& error) {
    return {error.what(), error.exit_code()};
  }
  return {};
}

bool says(const std::string& text, std::string_view part) {
  CAPTURE(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

ExchangeSpec some_exchange() {
  return {{{0, nullptr, 16}, {3, nullptr, 32}}, {{3, nullptr, 64}}};
}

TEST_CASE("an exchange is one group of sends and receives that is waited for") {
  Joined joined;
  joined.nccl.in_progress = 5;
  joined.communicators->enqueue(some_exchange(), nullptr);
  CHECK(joined.nccl.in_progress == 0);
  CHECK(joined.nccl.calls == std::vector<std::string>{"start", "send 16 to 0", "send 32 to 3",
                                                      "receive 64 from 3", "end"});
}

TEST_CASE("an all-reduce over some ranks has a communicator of its own made once") {
  Joined joined;
  joined.nccl.in_progress = 3;
  const ncclComm_t pair = joined.communicators->of({3, 1});
  CHECK(joined.nccl.in_progress == 0);  // it is there
  CHECK(pair != nullptr);
  CHECK(pair != joined.communicators->world());
  CHECK(joined.communicators->of({3, 1}) == pair);
  CHECK(joined.communicators->of({0, 1, 2, 3}) == joined.communicators->world());
  joined.communicators->enqueue(
      AllReduceSpec{Reduction::kMax, DType::kBFloat16, nullptr, 12, {3, 1}}, pair, nullptr);
  CHECK(joined.nccl.calls ==
        std::vector<std::string>{"split 1 1",
                                 fmt::format("all-reduce 12 {} {}", static_cast<int>(ncclBfloat16),
                                             static_cast<int>(ncclMax))});
}

template <class T>
T at(uintptr_t address) {
  return reinterpret_cast<T>(address);
}

TEST_CASE("gathers and scatters have counts of one process and their own communicator and stream") {
  Joined joined;
  const ncclComm_t pair = joined.communicators->of({1, 3}), world = joined.communicators->world();
  joined.nccl.calls.clear();
  joined.nccl.in_progress = 4;
  const AllGatherSpec gather{at<std::byte*>(0x1000), at<std::byte*>(0x2000), 96, {1, 3}};
  joined.communicators->enqueue(gather, pair, at<cudaStream_t>(0x40));
  CHECK(joined.nccl.in_progress == 0);  // waited for
  const ReduceScatterSpec scatter{
      Reduction::kSum, DType::kFloat16, at<std::byte*>(0x3000), at<std::byte*>(0x4000), 24,
      {0, 1, 2, 3}};
  joined.communicators->enqueue(scatter, world, at<cudaStream_t>(0x80));
  CHECK(
      joined.nccl.calls ==
      std::vector<std::string>{
          fmt::format("all-gather 96 {} at {} from 0x1000 to 0x2000 on 0x40",
                      static_cast<int>(ncclInt8), fmt::ptr(pair)),
          fmt::format("reduce-scatter 24 {} {} at {} from 0x3000 to 0x4000 on 0x80",
                      static_cast<int>(ncclFloat16), static_cast<int>(ncclSum), fmt::ptr(world))});
  joined.nccl.end = ncclRemoteError;
  says(caught([&] { joined.communicators->enqueue(gather, pair, nullptr); }).text,
       "an all-gather with ranks 1, 3 failed on rank 1 of 4");
  says(caught([&] { joined.communicators->enqueue(scatter, world, nullptr); }).text,
       "a reduce-scatter with ranks 0, 1, 2, 3 failed on rank 1 of 4");
}

TEST_CASE("all ranks in another order than their numbers have a communicator of their own") {
  Joined joined;
  CHECK(joined.communicators->of({1, 0, 2, 3}) != joined.communicators->world());
  CHECK(joined.nccl.calls == std::vector<std::string>{"split 0 0"});
}

TEST_CASE("errors of NCCL name call and rank and peers and step") {
  Joined joined;
  joined.core.path = "dense/kernel";
  joined.nccl.end = ncclRemoteError;
  Failed failed = caught([&] { joined.communicators->enqueue(some_exchange(), nullptr); });
  CHECK(failed.code == ExitCode::kRankLost);
  CHECK(failed.text ==
        "gpu:0 (NVIDIA H200): an exchange with ranks 0, 3 failed on rank 1 of 4: what NCCL calls "
        "it; and why, at step `dense/kernel`");
  joined.nccl.end = ncclSuccess;
  joined.nccl.send = ncclInvalidArgument;
  failed = caught([&] { joined.communicators->enqueue(some_exchange(), nullptr); });
  CHECK(failed.code == ExitCode::kMesh);
  CHECK(joined.nccl.calls.back() == "end");  // the group is closed all the same
  joined.nccl.end = ncclSystemError;
  says(caught([&] { joined.communicators->check(); }).text, "communication failed on rank 1 of 4");
  joined.nccl.graphs.set_value();
  // Its kernels are asked to end, and what waits behind them learns that they did not end well.
  says(caught([&] { joined.communicators->check_aborted(); }).text, "communication was aborted");
  joined.communicators.reset();
  CHECK(joined.nccl.aborted == joined.nccl.communicators);
}

TEST_CASE("memory that NCCL does not get is no other rank's fault") {
  Joined joined;
  const auto code_of = [&](ncclResult_t status, const char* last) {
    joined.nccl.end = status;
    joined.nccl.last = last;
    return caught([&] { joined.communicators->of({1, 3}); }).code;
  };
  CHECK(code_of(ncclUnhandledCudaError, "Cuda failure 2 'out of memory'") == ExitCode::kMesh);
  CHECK(code_of(ncclUnhandledCudaError, "Failed to CUDA calloc 4194304 bytes") == ExitCode::kMesh);
  CHECK(code_of(ncclSystemError, "Error: Cannot allocate memory") == ExitCode::kMesh);
  CHECK(code_of(ncclUnhandledCudaError, "Cuda failure 719 'unspecified launch failure'") ==
        ExitCode::kRankLost);
  CHECK(code_of(ncclRemoteError, "out of memory") == ExitCode::kRankLost);
  joined.nccl.end = ncclSuccess;
}

TEST_CASE("a communicator that not all ranks come to is not waited for longer than it may take") {
  Played nccl;
  played = &nccl;
  const cuda::Nccl functions = make_nccl();
  cuda::Core core;
  Communicators communicators(core);
  nccl.in_progress = 1 << 30;
  const Failed failed = caught(
      [&] { communicators.join(functions, std::string(sizeof(ncclUniqueId), 'i'), 0, 2, 1s); });
  CHECK(failed.code == ExitCode::kRankLost);
  says(failed.text, "ncclCommInitRankConfig on rank 0 of 2 did not end within 1 s: not all ranks");
  nccl.in_progress = 0;
}

TEST_CASE("abort ends what is waited for and no call of NCCL comes after it") {
  Joined joined;
  joined.communicators->of({0, 1});
  joined.nccl.in_progress = 1 << 30;
  std::promise<void> started;
  auto waiting = std::async(std::launch::async, [&] {
    started.set_value();
    return caught([&] { joined.communicators->enqueue(some_exchange(), nullptr); });
  });
  started.get_future().wait();
  std::this_thread::sleep_for(20ms);
  joined.communicators->abort();
  const Failed failed = waiting.get();
  CHECK(failed.code == ExitCode::kRankLost);
  says(failed.text, "communication was aborted");
  says(caught([&] { joined.communicators->check(); }).text, "communication was aborted");
  says(caught([&] { joined.communicators->of({1, 2}); }).text, "communication was aborted");
  joined.communicators->abort();
  joined.nccl.graphs.set_value();
  joined.communicators.reset();
  CHECK(joined.nccl.aborted == joined.nccl.communicators);
  const std::vector<std::string>& calls = joined.nccl.calls;
  const std::vector<std::string> last(calls.end() - 4, calls.end());
  CHECK(last == std::vector<std::string>{"start", "abort", "abort", "end"});
}

TEST_CASE("communicators end with the others or are aborted after a while") {
  Joined joined;
  joined.communicators->of({0, 1});
  joined.communicators.reset();
  CHECK(joined.nccl.destroyed == joined.nccl.communicators);
  CHECK(joined.nccl.aborted.empty());
}

TEST_CASE("the installed NCCL has every function that is used") {
  try {
    int version = 0;
    CHECK(cuda::nccl().ncclGetVersion(&version) == ncclSuccess);
    CHECK(version >= NCCL_VERSION(2, 19, 0));
  } catch (const RuntimeFailure& error) {
    const std::string text = error.what();
    REQUIRE_MESSAGE(text.find("cannot load libnccl.so.2") != std::string::npos, text);
    MESSAGE("skipped: " << text);
  }
}

}  // namespace
}  // namespace meshtrain::test
