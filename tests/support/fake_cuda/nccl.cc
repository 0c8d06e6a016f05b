// An NCCL whose ranks are threads of one process. Calls of non-blocking communicators return at
// once.
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "support/fake_cuda/nccl_work.h"

namespace meshtrain::fake_cuda {
namespace {

constexpr const char* kObjects = "communicator";

std::map<std::string, std::shared_ptr<Clique>>& cliques() {
  static auto* const made = new std::map<std::string, std::shared_ptr<Clique>>;
  return *made;
}

template <class F>
ncclResult_t answer(const char* name, const F& function) {
  switch (call(name, function)) {
    case CUDA_SUCCESS:
      return ncclSuccess;
    case CUDA_ERROR_NOT_READY:
      return ncclInProgress;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
      return ncclInvalidUsage;
    default:
      return ncclUnhandledCudaError;
  }
}

// Never freed, so that a use after its end is found.
ncclComm& comm_of(ncclComm_t comm) {
  if (comm == nullptr || comm->is_gone)
    refuse(CUDA_ERROR_INVALID_HANDLE, "there is no such communicator");
  return *comm;
}

// Programs say which of both ways they mean.
bool is_blocking(const ncclConfig_t* config) {
  if (config == nullptr || config->blocking < 0 || config->blocking > 1)
    refuse(CUDA_ERROR_INVALID_VALUE, "a communicator that may block or not");
  return config->blocking == 1;
}

ncclComm_t add_comm() {
  ++state().handles[kObjects];
  auto* const made = new ncclComm;
  made->device = &current_device();
  return made;
}

void end_comm(ncclComm& comm) {
  comm.is_gone = true;
  --state().handles[kObjects];
}

// All ranks of the parent have called: ranks of one color, in the order of their keys.
void complete(Clique::Split& split) {
  for (auto& [color, members] : split.parts) {
    auto clique = std::make_shared<Clique>();
    clique->size = clique->joined = static_cast<int>(members.size());
    int rank = 0;
    for (auto& [key, comm] : members) {
      comm->clique = clique;
      comm->rank = rank++;
    }
  }
}

// Ranks are threads, which come meanwhile.
void wait_until(const std::function<bool()>& is_done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!is_done()) {
    if (std::chrono::steady_clock::now() > end)
      refuse(CUDA_ERROR_TIMEOUT, "not all ranks come");
    state().mutex.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state().mutex.lock();
  }
}

// Of the newest split of the parent, or of joining.
bool is_ready(const ncclComm& comm) {
  if (comm.clique == nullptr || comm.clique->joined < comm.clique->size)
    return false;
  const auto last = comm.clique->splits.find(comm.splits);
  return last == comm.clique->splits.end() || last->second.called == comm.clique->size;
}

}  // namespace
}  // namespace meshtrain::fake_cuda

using namespace meshtrain::fake_cuda;
#define MESHTRAIN_FAKE extern "C" MESHTRAIN_FAKE_API ncclResult_t

MESHTRAIN_FAKE ncclGetVersion(int* version) {
  *version = number_of("MESHTRAIN_EMULATOR_NCCL", NCCL_VERSION(2, 28, 9));
  return ncclSuccess;
}
extern "C" MESHTRAIN_FAKE_API const char* ncclGetErrorString(ncclResult_t status) {
  return status == ncclInvalidUsage  ? "invalid usage"
         : status == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "unhandled cuda error";
}
extern "C" MESHTRAIN_FAKE_API const char* ncclGetLastError(ncclComm_t) {
  return "";
}
MESHTRAIN_FAKE ncclGetUniqueId(ncclUniqueId* id) {
  return answer("ncclGetUniqueId", [&] {
    static int made = 0;
    std::memset(id, 0, sizeof(*id));
    std::snprintf(id->internal, sizeof(id->internal), "fake %d", ++made);
  });
}
MESHTRAIN_FAKE ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                      ncclConfig_t* config) {
  return answer("ncclCommInitRankConfig", [&] {
    const bool blocks = is_blocking(config);
    std::shared_ptr<Clique>& clique = cliques()[id.internal];
    if (clique == nullptr)
      clique = std::make_shared<Clique>();
    clique->size = size;
    ++clique->joined;
    *out = add_comm();
    (*out)->clique = clique;
    (*out)->rank = rank;
    const ncclComm& comm = **out;
    if (!blocks)
      throw Failure{CUDA_ERROR_NOT_READY};
    wait_until([&] { return is_ready(comm); });
  });
}
// Says success before the part is made, as the real one does.
MESHTRAIN_FAKE ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* out,
                             ncclConfig_t* config) {
  return answer("ncclCommSplit", [&] {
    const bool blocks = is_blocking(config);
    ncclComm& comm = comm_of(parent);
    *out = add_comm();
    Clique::Split& split = comm.clique->splits[++comm.splits];
    split.parts[color][{key, comm.rank}] = *out;
    if (++split.called == comm.clique->size)
      complete(split);
    if (blocks)
      wait_until([&] { return is_ready(comm); });
  });
}
MESHTRAIN_FAKE ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* status) {
  return answer("ncclCommGetAsyncError", [&] {
    const ncclComm& asked = comm_of(comm);
    const bool is_broken = asked.clique != nullptr && asked.clique->is_broken;
    *status = is_broken ? ncclRemoteError : is_ready(asked) ? ncclSuccess : ncclInProgress;
  });
}
MESHTRAIN_FAKE ncclCommFinalize(ncclComm_t comm) {
  return answer("ncclCommFinalize", [&] { comm_of(comm); });
}
MESHTRAIN_FAKE ncclCommDestroy(ncclComm_t comm) {
  return answer("ncclCommDestroy", [&] { end_comm(comm_of(comm)); });
}
MESHTRAIN_FAKE ncclCommAbort(ncclComm_t comm) {
  return answer("ncclCommAbort", [&] {
    ncclComm& aborted = comm_of(comm);
    aborted.is_aborted = state().has_aborted = true;
    if (aborted.clique != nullptr)
      withdraw(aborted.rank, *aborted.clique);
    end_comm(aborted);
  });
}
MESHTRAIN_FAKE ncclGroupStart() {
  return answer("ncclGroupStart", [] { begin_group(); });
}
MESHTRAIN_FAKE ncclGroupEnd() {
  return answer("ncclGroupEnd", [] { end_group(); });
}
MESHTRAIN_FAKE ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                        ncclComm_t comm, cudaStream_t stream) {
  return answer("ncclSend", [&] {
    add_message(true, peer, comm_of(comm), stream,
                {"a message", static_cast<const std::byte*>(from), nullptr, count, type});
  });
}
MESHTRAIN_FAKE ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                        cudaStream_t stream) {
  return answer("ncclRecv", [&] {
    add_message(false, peer, comm_of(comm), stream,
                {"a message", nullptr, static_cast<std::byte*>(to), count, type});
  });
}
MESHTRAIN_FAKE ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return answer("ncclAllReduce", [&] {
    enqueue_collective(comm_of(comm),
                       {"an all-reduce", static_cast<const std::byte*>(from),
                        static_cast<std::byte*>(to), count, type, op},
                       stream);
  });
}
MESHTRAIN_FAKE ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                             ncclComm_t comm, cudaStream_t stream) {
  return answer("ncclAllGather", [&] {
    enqueue_collective(comm_of(comm),
                       {"an all-gather", static_cast<const std::byte*>(from),
                        static_cast<std::byte*>(to), count, type},
                       stream);
  });
}
MESHTRAIN_FAKE ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return answer("ncclReduceScatter", [&] {
    enqueue_collective(comm_of(comm),
                       {"a reduce-scatter", static_cast<const std::byte*>(from),
                        static_cast<std::byte*>(to), count, type, op},
                       stream);
  });
}
