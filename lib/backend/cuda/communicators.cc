#include "backend/cuda/communicators.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/system_calls.h"

namespace meshtrain::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAbortPatience = std::chrono::seconds(1);   // for a call of NCCL to return
constexpr auto kFinishPatience = std::chrono::seconds(5);  // for the others to end, too

ncclDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return ncclUint8;
    case DType::kInt8:
      return ncclInt8;
    case DType::kInt32:
      return ncclInt32;
    case DType::kUInt32:
      return ncclUint32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUInt64:
      return ncclUint64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    default:
      throw InternalError(fmt::format("a reduction of {}", dtype_name(dtype)));
  }
}

ncclRedOp_t operation(Reduction reduction) {
  MESHTRAIN_CHECK(reduction != Reduction::kCount);
  return reduction == Reduction::kSum ? ncclSum : reduction == Reduction::kMax ? ncclMax : ncclMin;
}

std::string peers_of(const ExchangeSpec& exchange) {
  std::vector<int> peers;
  for (const std::vector<Message>* messages : {&exchange.sends, &exchange.receives}) {
    for (const Message& message : *messages) {
      if (std::find(peers.begin(), peers.end(), message.peer) == peers.end())
        peers.push_back(message.peer);
    }
  }
  return fmt::format("{}", fmt::join(peers, ", "));
}

// Of GPU or host memory, which NCCL says in words only: CUDA's, those of its allocators, errno's.
bool is_out_of_memory(ncclResult_t status, std::string_view detail) {
  if (status != ncclUnhandledCudaError && status != ncclSystemError)
    return false;
  constexpr std::string_view kWords[] = {"out of memory", "Failed to CUDA calloc",
                                         "Failed to CUDA malloc", "Cannot allocate memory"};
  return std::any_of(std::begin(kWords), std::end(kWords), [detail](std::string_view words) {
    return detail.find(words) != std::string_view::npos;
  });
}

// $MESHTRAIN_NCCL_BLOCKING=1: for a library whose other ways are in question. A call that waits for
// a lost process then ends with that of NCCL only.
ncclConfig_t configuration() {
  const char* const text = std::getenv("MESHTRAIN_NCCL_BLOCKING");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = text != nullptr && std::string_view(text) == "1" ? 1 : 0;
  return config;
}

}  // namespace

void Patience::wait() {
  constexpr int kSpins = 2000, kYields = 1000;
  ++calls_;
  if (calls_ < kSpins)
    return;
  if (calls_ < kSpins + kYields)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

Communicators::~Communicators() {
  const Lock held(mutex_);
  if (nccl_ == nullptr || is_aborted_)
    return;
  for (const auto& [ranks, communicator] : parts_) {
    if (communicator != nullptr)  // else its split failed
      finish(communicator);
  }
  if (world_ != nullptr)
    finish(world_);
}

// The others end theirs at about the same time; one that does not is not waited for.
void Communicators::finish(ncclComm_t communicator) {
  ncclResult_t status = nccl_->ncclCommFinalize(communicator);
  Patience patience;
  for (const auto end = Clock::now() + kFinishPatience;
       status == ncclInProgress && Clock::now() < end; patience.wait())
    nccl_->ncclCommGetAsyncError(communicator, &status);
  if (status == ncclSuccess)
    nccl_->ncclCommDestroy(communicator);
  else
    nccl_->ncclCommAbort(communicator);
}

Communicators::Lock Communicators::lock() {
  Lock lock(mutex_);
  check_aborted();
  return lock;
}

void Communicators::fail(ncclResult_t status, ncclComm_t communicator,
                         std::string_view call) const {
  const char* last = nccl_->ncclGetLastError(communicator);
  const std::string detail = last == nullptr || *last == '\0' ? "" : fmt::format("; {}", last);
  const bool is_own = status == ncclInvalidUsage || status == ncclInvalidArgument ||
                      is_out_of_memory(status, detail);  // no other rank is to blame
  core_.fail(fmt::format("{} failed on rank {} of {}: {}{}", call, rank_, size_,
                         nccl_->ncclGetErrorString(status), detail),
             is_own ? ExitCode::kMesh : ExitCode::kRankLost);
}

void Communicators::wait_until_done(ncclResult_t status, ncclComm_t communicator,
                                    std::string_view call, std::chrono::seconds limit) {
  Patience patience;
  for (const auto end = Clock::now() + limit; status == ncclInProgress; patience.wait()) {
    if (Clock::now() >= end) {
      core_.fail(
          fmt::format("{} on rank {} of {} did not end within {} s: not all ranks came to it", call,
                      rank_, size_, limit.count()),
          ExitCode::kRankLost);
    }
    const Lock held = lock();
    nccl_->ncclCommGetAsyncError(communicator, &status);
  }
  if (status != ncclSuccess)
    fail(status, communicator, call);
}

void Communicators::join(const Nccl& nccl, const std::string& id, int rank, int size,
                         std::chrono::seconds limit) {
  MESHTRAIN_CHECK(world_ == nullptr && id.size() == sizeof(ncclUniqueId), "an id of {} bytes",
                  id.size());
  nccl_ = &nccl;
  rank_ = rank;
  size_ = size;
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), sizeof(unique));
  ncclConfig_t config = configuration();
  ncclResult_t status;
  {
    const Lock held = lock();
    status = nccl.ncclCommInitRankConfig(&world_, size, unique, rank, &config);
  }
  wait_until_done(status, world_, "ncclCommInitRankConfig", limit);
}

ncclComm_t Communicators::of(const std::vector<int>& ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  MESHTRAIN_CHECK(own != ranks.end(), "rank {} is not among {}", rank_, fmt::join(ranks, ", "));
  if (static_cast<int>(ranks.size()) == size_ && std::is_sorted(ranks.begin(), ranks.end()))
    return world_;
  const std::string call = fmt::format("ncclCommSplit to ranks {}", fmt::join(ranks, ", "));
  ncclConfig_t config = configuration();
  ncclComm_t* part;
  ncclResult_t status;
  {
    const Lock held = lock();
    part = &parts_[ranks];
    if (*part != nullptr)
      return *part;
    status = nccl_->ncclCommSplit(world_, *std::min_element(ranks.begin(), ranks.end()),
                                  static_cast<int>(own - ranks.begin()), part, &config);
    // It says success while a thread still makes it; its parent says when that is done
    // (NVIDIA/nccl#1472), and only then there is a part to ask.
    if (status == ncclSuccess)
      status = ncclInProgress;
  }
  wait_until_done(status, world_, call);
  wait_until_done(ncclInProgress, *part, call);
  try_out(*part, ranks);
  return *part;
}

void Communicators::connect(std::byte* memory) {
  trial_ = memory;
  std::vector<int> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  try_out(world_, all);
  ExchangeSpec messages;
  for (const int peer : all) {
    if (peer != rank_) {
      messages.sends.push_back({peer, trial_, 1});
      messages.receives.push_back({peer, trial_ + 1, 1});
    }
  }
  enqueue(messages, core_.messages);
  core_.wait_for(core_.messages);
}

void Communicators::try_out(ncclComm_t communicator, const std::vector<int>& ranks) {
  if (trial_ == nullptr)
    return;
  enqueue({Reduction::kSum, DType::kFloat32, trial_, 1, ranks}, communicator, core_.messages);
  core_.wait_for(core_.messages);
}

void Communicators::enqueue(const ExchangeSpec& exchange, CUstream stream) {
  const std::string call = fmt::format("an exchange with ranks {}", peers_of(exchange));
  ncclResult_t status, first = ncclSuccess;
  const auto note = [&first](ncclResult_t result) {
    if (first == ncclSuccess && result != ncclInProgress)
      first = result;
  };
  {
    const Lock held = lock();
    note(nccl_->ncclGroupStart());
    if (first != ncclSuccess)
      fail(first, world_, call);
    for (const Message& message : exchange.sends)
      note(nccl_->ncclSend(message.data, static_cast<size_t>(message.bytes), ncclInt8, message.peer,
                           world_, stream));
    for (const Message& message : exchange.receives)
      note(nccl_->ncclRecv(message.data, static_cast<size_t>(message.bytes), ncclInt8, message.peer,
                           world_, stream));
    status = nccl_->ncclGroupEnd();
  }
  if (first != ncclSuccess)
    fail(first, world_, call);
  wait_until_done(status, world_, call);
}

template <class Call>
void Communicators::enqueue_one(std::string_view kind, const std::vector<int>& ranks,
                                ncclComm_t communicator, const Call& call) {
  ncclResult_t status;
  {
    const Lock held = lock();
    status = call();
  }
  wait_until_done(status, communicator,
                  fmt::format("{} with ranks {}", kind, fmt::join(ranks, ", ")));
}

void Communicators::enqueue(const AllReduceSpec& what, ncclComm_t communicator, CUstream stream) {
  enqueue_one("an all-reduce", what.ranks, communicator, [&] {
    return nccl_->ncclAllReduce(what.data, what.data, static_cast<size_t>(what.elements),
                                data_type(what.dtype), operation(what.reduction), communicator,
                                stream);
  });
}

void Communicators::enqueue(const AllGatherSpec& what, ncclComm_t communicator, CUstream stream) {
  enqueue_one("an all-gather", what.ranks, communicator, [&] {
    return nccl_->ncclAllGather(what.from, what.to, static_cast<size_t>(what.bytes), ncclInt8,
                                communicator, stream);
  });
}

void Communicators::enqueue(const ReduceScatterSpec& what, ncclComm_t communicator,
                            CUstream stream) {
  enqueue_one("a reduce-scatter", what.ranks, communicator, [&] {
    return nccl_->ncclReduceScatter(what.from, what.to, static_cast<size_t>(what.elements),
                                    data_type(what.dtype), operation(what.reduction), communicator,
                                    stream);
  });
}

void Communicators::check() {
  ncclComm_t failed = nullptr;
  ncclResult_t status = ncclSuccess;
  {
    const Lock held = lock();
    const auto look = [&](ncclComm_t communicator) {
      ncclResult_t found = ncclSuccess;
      if (failed == nullptr && communicator != nullptr)
        nccl_->ncclCommGetAsyncError(communicator, &found);
      if (found != ncclSuccess && found != ncclInProgress) {
        failed = communicator;
        status = found;
      }
    };
    look(world_);
    for (const auto& [ranks, communicator] : parts_)
      look(communicator);
  }
  if (failed == nullptr)
    return;
  try {
    fail(status, failed, "communication");
  } catch (...) {
    abort();  // its kernels still wait for others, and whoever frees memory waits for them
    throw;
  }
}

void Communicators::check_aborted() const {
  if (is_aborted_)
    core_.fail("communication was aborted, since another process failed", ExitCode::kRankLost);
}

// A thread that is inside of NCCL and does not come back keeps the lock: then the communicators are
// left to the end of the process, which whoever aborts brings about.
//
// NCCL tells what runs to stop at once, but does not come back before every graph with its calls is
// gone: those of the thread that waits here for the end of one, or aborts. As a group, all
// communicators are aborted before one is waited for.
void Communicators::abort() {
  if (is_aborted_.exchange(true))
    return;
  const Lock held(mutex_, kAbortPatience);
  if (!held.owns_lock() || world_ == nullptr)
    return;
  std::vector<ncclComm_t> all = {world_};
  for (const auto& [ranks, communicator] : parts_) {
    if (communicator != nullptr)
      all.push_back(communicator);
  }
  aborting_ = quiet_thread([nccl = nccl_, context = core_.context, all] {
    if (context != nullptr)  // NCCL comes back to the thread's own context
      driver().cuCtxSetCurrent(context);
    nccl->ncclGroupStart();
    for (const ncclComm_t communicator : all)
      nccl->ncclCommAbort(communicator);
    nccl->ncclGroupEnd();
  });
}

}  // namespace meshtrain::cuda
