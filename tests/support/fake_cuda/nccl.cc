// An NCCL whose ranks are threads of one process. Calls of non-blocking communicators return at
// once; work that waits for other ranks is found out by step_towards().
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <thread>

#include "support/fake_cuda/state.h"
#include "support/gpu_emulator/products.h"

namespace meshtrain::fake_cuda {
namespace {

constexpr const char* kObjects = "communicator";

// What a rank brings to a collective, or to one side of a message.
struct Part {
  std::string kind;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t count = 0;  // elements
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
};

struct Collective {
  std::map<int, Part> parts;  // by rank
  bool is_done = false;
};

// The ranks of a communicator.
struct Clique {
  int size = 0;
  int joined = 0;
  bool is_broken = false;                      // one rank has aborted
  std::map<uint64_t, Collective> collectives;  // by their number
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Part>>> messages;  // from, to
  struct Split {
    int called = 0;
    std::map<int, std::map<std::pair<int, int>, ncclComm_t>> parts;  // color: key and rank
  };
  std::map<uint64_t, Split> splits;
};

}  // namespace
}  // namespace meshtrain::fake_cuda

struct ncclComm {
  std::shared_ptr<meshtrain::fake_cuda::Clique> clique;  // null until a split is complete
  int rank = 0;
  meshtrain::fake_cuda::Device* device = nullptr;
  uint64_t collectives = 0, splits = 0;                     // so far
  std::shared_ptr<meshtrain::fake_cuda::Clique> splitting;  // until all have come
  bool is_aborted = false, is_gone = false;
  // With the others, by an operation outside of a capture, and with peers by messages.
  bool is_connected = false;
  std::set<int> sends_to, receives_from;
};

namespace meshtrain::fake_cuda {
namespace {

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

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt32:
      return DType::kInt32;
    case ncclInt64:
      return DType::kInt64;
    case ncclFloat16:
      return DType::kFloat16;
    case ncclBfloat16:
      return DType::kBFloat16;
    case ncclFloat32:
      return DType::kFloat32;
    case ncclFloat64:
      return DType::kFloat64;
    case ncclInt8:
      return DType::kInt8;
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "type {}", static_cast<int>(type));
  }
}

Reduction reduction_of(ncclRedOp_t op) {
  return op == ncclSum ? Reduction::kSum : op == ncclMax ? Reduction::kMax : Reduction::kMin;
}

size_t bytes_of(const Part& part) {
  return part.count * dtype_size(dtype_of(part.type));
}

// Of all ranks at once, when the last one has come. Results are kept apart until all are known: an
// all-reduce is in place.
void compute(Clique& clique, Collective& collective) {
  const Part& first = collective.parts.begin()->second;
  const DType dtype = dtype_of(first.type);
  const size_t bytes = bytes_of(first);
  std::vector<const std::byte*> sources;
  for (const auto& [rank, part] : collective.parts)
    sources.push_back(part.from);
  const bool gathers = first.kind == "an all-gather";
  const size_t scattered = first.kind == "a reduce-scatter" ? static_cast<size_t>(clique.size) : 1;
  std::vector<std::byte> result(gathers ? bytes * sources.size() : bytes * scattered);
  for (size_t r = 0; gathers && r < sources.size(); ++r)
    std::memcpy(result.data() + r * bytes, sources[r], bytes);
  for (size_t i = 0; !gathers && i < first.count * scattered; ++i)
    gpu::reduce_element(reduction_of(first.reduction), dtype, sources, static_cast<int64_t>(i),
                        result.data());
  for (const auto& [rank, part] : collective.parts) {
    const size_t begin = scattered > 1 ? static_cast<size_t>(rank) * bytes : 0;
    std::memcpy(part.to, result.data() + begin, scattered > 1 ? bytes : result.size());
  }
  collective.is_done = true;
}

void check_consistent(const Part& mine, const Part& other) {
  if (mine.kind != other.kind || mine.count != other.count || mine.type != other.type ||
      mine.reduction != other.reduction)
    refuse(CUDA_ERROR_INVALID_VALUE, "a rank comes with {} of {}, another with {} of {}", mine.kind,
           mine.count, other.kind, other.count);
}

// As the real one: a captured call of the host, behind nothing, which the communication comes
// behind; whatever else it must come behind the program adds. It takes what is sent.
std::shared_ptr<std::vector<std::byte>> capture_host_call(Stream& stream, const std::byte* from,
                                                          size_t bytes) {
  if (stream.capture == nullptr)
    return nullptr;
  auto sent = std::make_shared<std::vector<std::byte>>();
  auto node = std::make_unique<Node>();
  node->what = "a call of the host";
  node->start = at_once([=] { sent->assign(from, from + bytes); });
  stream.frontier.push_back(node.get());
  stream.capture->graph->nodes.push_back(std::move(node));
  return sent;
}

void enqueue_collective(ncclComm& comm, const Part& part, cudaStream_t handle) {
  Stream& stream = stream_of(reinterpret_cast<CUstream>(handle));
  if (stream.device != comm.device || comm.clique == nullptr ||
      comm.clique->joined < comm.clique->size)
    refuse(CUDA_ERROR_INVALID_VALUE,
           "a stream of another device, or a communicator that is not complete");
  const size_t size = static_cast<size_t>(comm.clique->size);
  const size_t read = bytes_of(part) * (part.kind == "a reduce-scatter" ? size : 1);
  const size_t written = bytes_of(part) * (part.kind == "an all-gather" ? size : 1);
  if (stream.capture == nullptr)
    comm.is_connected = true;
  else if (!comm.is_connected)
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a communicator connects during a capture");
  const auto check = [=, &comm] {
    check_range(*comm.device, part.from, read, "what is sent");
    check_range(*comm.device, part.to, written, "what is received");
  };
  check();
  const auto sent = capture_host_call(stream, part.from, read);
  enqueue(stream, part.kind, [=, &comm]() -> Work {
    return [=, &comm, number = std::optional<uint64_t>()]() mutable {
      Clique& clique = *comm.clique;
      if (comm.is_aborted)
        return Outcome::kDone;
      if (!number) {
        check();
        number = comm.collectives++;
        Collective& own = clique.collectives[*number];
        if (!own.parts.empty())
          check_consistent(part, own.parts.begin()->second);
        own.parts[comm.rank] = part;
        if (sent != nullptr)
          own.parts[comm.rank].from = sent->data();
      }
      Collective& collective = clique.collectives[*number];
      if (!collective.is_done && collective.parts.size() == static_cast<size_t>(clique.size))
        compute(clique, collective);
      return collective.is_done ? Outcome::kDone : Outcome::kWaits;
    };
  });
}

// Messages of one group, sent and received at the same time.
struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<std::pair<int, Part>> sends, receives;  // with the peer
};
thread_local Group group;

Outcome exchange(ncclComm& comm, const Group& own, std::vector<std::shared_ptr<Part>>& sent,
                 std::vector<bool>& received) {
  Clique& clique = *comm.clique;
  if (comm.is_aborted)
    return Outcome::kDone;
  if (sent.empty() && received.empty()) {
    for (const auto& [peer, part] : own.sends) {
      sent.push_back(std::make_shared<Part>(part));
      clique.messages[{comm.rank, peer}].push_back(sent.back());
    }
    received.resize(own.receives.size());
  }
  bool is_done = true;
  for (size_t i = 0; i < received.size(); ++i) {
    const auto& [peer, part] = own.receives[i];
    auto& queue = clique.messages[{peer, comm.rank}];
    const bool is_next =
        std::find(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(i), false) ==
        received.begin() + static_cast<std::ptrdiff_t>(i);
    if (!received[i] && is_next && !queue.empty()) {
      const std::shared_ptr<Part> message = queue.front();
      queue.pop_front();
      check_consistent(part, *message);
      std::memcpy(part.to, message->from, bytes_of(part));
      message->from = nullptr;  // received
      received[i] = true;
    }
    is_done = is_done && received[i];
  }
  for (const auto& message : sent)
    is_done = is_done && message->from == nullptr;
  return is_done ? Outcome::kDone : Outcome::kWaits;
}

// After an abort nothing of this rank reaches others any more: its memory may be freed.
void withdraw(int rank, Clique& clique) {
  clique.is_broken = true;
  for (auto& [ranks, queue] : clique.messages) {
    if (ranks.first == rank)
      queue.clear();
  }
  for (auto& [number, collective] : clique.collectives) {
    if (!collective.is_done)
      collective.parts.erase(rank);
  }
}

void add_message(bool is_send, int peer, ncclComm_t comm, cudaStream_t stream, const Part& part) {
  if (group.depth == 0)
    refuse(CUDA_ERROR_INVALID_VALUE, "a message outside of a group");
  check_range(*comm_of(comm).device, is_send ? part.from : part.to, bytes_of(part), "a message");
  group.comm = comm;
  group.stream = stream;
  (is_send ? group.sends : group.receives).push_back({peer, part});
}

void connect(std::set<int>& peers, const std::vector<std::pair<int, Part>>& messages,
             const Stream& stream) {
  for (const auto& [peer, part] : messages) {
    if (stream.capture == nullptr)
      peers.insert(peer);
    else if (!peers.contains(peer))
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a peer is connected during a capture");
  }
}

void end_group() {
  if (--group.depth > 0 || group.comm == nullptr)
    return;
  const Group own = std::exchange(group, {});
  ncclComm& comm = comm_of(own.comm);
  Stream& stream = stream_of(reinterpret_cast<CUstream>(own.stream));
  if (stream.device != comm.device)
    refuse(CUDA_ERROR_INVALID_VALUE, "a stream of another device");
  connect(comm.sends_to, own.sends, stream);
  connect(comm.receives_from, own.receives, stream);
  enqueue(stream, "an exchange", [own, &comm]() -> Work {
    return
        [own, &comm, sent = std::vector<std::shared_ptr<Part>>(),
         received = std::vector<bool>()]() mutable { return exchange(comm, own, sent, received); };
  });
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
  *version = NCCL_VERSION(2, 28, 9);
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
  return answer("ncclGroupStart", [] { ++group.depth; });
}
MESHTRAIN_FAKE ncclGroupEnd() {
  return answer("ncclGroupEnd", [] { end_group(); });
}
MESHTRAIN_FAKE ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                        ncclComm_t comm, cudaStream_t stream) {
  return answer("ncclSend", [&] {
    add_message(true, peer, comm, stream,
                {"a message", static_cast<const std::byte*>(from), nullptr, count, type});
  });
}
MESHTRAIN_FAKE ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                        cudaStream_t stream) {
  return answer("ncclRecv", [&] {
    add_message(false, peer, comm, stream,
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
