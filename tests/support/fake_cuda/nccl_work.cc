// Collectives and messages: every rank brings its part, and work that waits for other ranks is
// found out by step_towards().
#include "support/fake_cuda/nccl_work.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "support/gpu_emulator/products.h"

namespace meshtrain::fake_cuda {
namespace {

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

// Where a capture has the id of one that has ended, the own stream is not in it, and NCCL does not
// join it again.
void join_capture(StrongStream& strong, const std::shared_ptr<Capture>& capture) {
  if (strong.id != capture->id)
    strong = {capture->id, capture, nullptr};
  if (strong.capture.lock() != capture)
    refuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
           "dependency created on uncaptured work in another stream");
}

// What the stream captures next comes behind the communicator's last call in this capture.
void follow_order(StrongStream& strong, Stream& stream) {
  if (stream.capture == nullptr)
    return;
  join_capture(strong, stream.capture);
  if (strong.last != nullptr)
    stream.frontier.push_back(strong.last);
}
void set_order(StrongStream& strong, const Stream& stream) {
  if (stream.capture != nullptr)
    strong.last = stream.frontier.front();
}

// As the real one: a captured call of the host, behind the communicator's last one in this capture
// and nothing else, which the communication comes behind. It tells the network threads what is
// next.
using Number = std::shared_ptr<uint64_t>;
Number capture_host_call(ncclComm& comm, Stream& stream) {
  if (stream.capture == nullptr)
    return nullptr;
  join_capture(comm.host_order, stream.capture);
  const auto number = std::make_shared<uint64_t>(0);
  auto node = std::make_unique<Node>();
  node->what = "a call of the host";
  node->start = at_once([=, &comm] { *number = comm.collectives++; });
  if (comm.host_order.last != nullptr)
    node->after.insert(comm.host_order.last);
  comm.host_order.last = node.get();
  stream.frontier.push_back(node.get());
  stream.capture->graph->nodes.push_back(std::move(node));
  return number;
}

}  // namespace

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
  follow_order(comm.device_order, stream);
  const Number given = capture_host_call(comm, stream);
  enqueue(stream, part.kind, [=, &comm]() -> Work {
    return [=, &comm, number = std::optional<uint64_t>()]() mutable {
      Clique& clique = *comm.clique;
      if (comm.is_aborted)
        return Outcome::kDone;
      if (!number) {
        check();
        number = given == nullptr ? comm.collectives++ : *given;
        Collective& own = clique.collectives[*number];
        if (!own.parts.empty())
          check_consistent(part, own.parts.begin()->second);
        own.parts[comm.rank] = part;
      }
      Collective& collective = clique.collectives[*number];
      if (!collective.is_done && collective.parts.size() == static_cast<size_t>(clique.size))
        compute(clique, collective);
      return collective.is_done ? Outcome::kDone : Outcome::kWaits;
    };
  });
  set_order(comm.device_order, stream);
}

namespace {

// The messages of a group with its communicator.
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

}  // namespace

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

void begin_group() {
  ++group.depth;
}

void add_message(bool is_send, int peer, ncclComm& comm, cudaStream_t stream, const Part& part) {
  if (group.depth == 0)
    refuse(CUDA_ERROR_INVALID_VALUE, "a message outside of a group");
  check_range(*comm.device, is_send ? part.from : part.to, bytes_of(part), "a message");
  group.comm = &comm;
  group.stream = stream;
  (is_send ? group.sends : group.receives).push_back({peer, part});
}

namespace {

void connect(std::set<int>& peers, const std::vector<std::pair<int, Part>>& messages,
             const Stream& stream) {
  for (const auto& [peer, part] : messages) {
    if (stream.capture == nullptr)
      peers.insert(peer);
    else if (!peers.contains(peer))
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a peer is connected during a capture");
  }
}

}  // namespace

void end_group() {
  if (--group.depth > 0 || group.comm == nullptr)
    return;
  const Group own = std::exchange(group, {});
  ncclComm& comm = *own.comm;
  if (comm.is_gone)
    refuse(CUDA_ERROR_INVALID_HANDLE, "there is no such communicator");
  Stream& stream = stream_of(reinterpret_cast<CUstream>(own.stream));
  if (stream.device != comm.device)
    refuse(CUDA_ERROR_INVALID_VALUE, "a stream of another device");
  connect(comm.sends_to, own.sends, stream);
  connect(comm.receives_from, own.receives, stream);
  follow_order(comm.device_order, stream);
  enqueue(stream, "an exchange", [own, &comm]() -> Work {
    return
        [own, &comm, sent = std::vector<std::shared_ptr<Part>>(),
         received = std::vector<bool>()]() mutable { return exchange(comm, own, sent, received); };
  });
  set_order(comm.device_order, stream);
}

}  // namespace meshtrain::fake_cuda
