// Communicators of the fake NCCL, and what their ranks do together.
#pragma once

#include <nccl.h>

#include <set>

#include "support/fake_cuda/state.h"

namespace meshtrain::fake_cuda {

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

// NCCL keeps an order of its own over all that a communicator does, in captures by streams of its
// own that join them. It knows by a capture's id whether they have.
struct StrongStream {
  uint64_t id = 0;
  std::weak_ptr<Capture> capture;
  Node* last = nullptr;
};

}  // namespace meshtrain::fake_cuda

struct ncclComm {
  std::shared_ptr<meshtrain::fake_cuda::Clique> clique;  // null until a split is complete
  int rank = 0;
  meshtrain::fake_cuda::Device* device = nullptr;
  uint64_t collectives = 0, splits = 0;                     // so far
  std::shared_ptr<meshtrain::fake_cuda::Clique> splitting;  // until all have come
  bool is_aborted = false, is_gone = false;
  meshtrain::fake_cuda::StrongStream device_order, host_order;
  // With the others, by an operation outside of a capture, and with peers by messages.
  bool is_connected = false;
  std::set<int> sends_to, receives_from;
};

namespace meshtrain::fake_cuda {

// Collectives, behind what the stream has.
void enqueue_collective(ncclComm& comm, const Part& part, cudaStream_t stream);

// Messages of one group, sent and received at the same time. Groups of a thread may be nested.
void begin_group();
void add_message(bool is_send, int peer, ncclComm& comm, cudaStream_t stream, const Part& part);
void end_group();

// After an abort nothing of this rank reaches others any more: its memory may be freed.
void withdraw(int rank, Clique& clique);

}  // namespace meshtrain::fake_cuda
