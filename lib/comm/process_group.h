// ProcessGroup: the processes of one run, which all call the same functions in the same order.
//
// There are three implementations: MPI (comm/mpi, a library that is loaded when a launcher of MPI
// started the process), TCP (comm/tcp, beside NCCL), and threads of one process (tests/support).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/message.h"
#include "backend/rules.h"
#include "comm/proof.h"
#include "tensor/dtype.h"

namespace meshtrain {

class HeartbeatMonitor;

// A prepared transfer that runs repeatedly. run() returns when all data are received and sent
// memory may be overwritten. All participating processes must run their transfers in the same
// order.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual void run() = 0;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Rank and size among the processes on this host.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;

  // How the processes find each other for connections beside those of the group: what they all know
  // and never send, zero where there is nothing such (MPI), and the addresses of rank 0 at which
  // the others have reached it, empty where the group does not know (MPI) and on other ranks.
  virtual Token secret() const { return {}; }
  virtual std::vector<std::string> addresses() const { return {}; }

  // Collective over all processes, by the thread that made the group. What each process gave, by
  // rank.
  virtual std::vector<std::string> all_gather(std::string_view mine) = 0;

  // Prepares transfers between host memory, to be run on that thread too. At most one message to
  // and one from each peer, with equal numbers of bytes on both sides. Throws RuntimeFailure (exit
  // 8) where the group moves no tensors (TCP).
  virtual std::unique_ptr<Transfer> make_exchange(std::vector<Message> sends,
                                                  std::vector<Message> receives) = 0;
  // Prepares an in-place all-reduce over `ranks`, which includes this process and is the same list
  // on each. The library decides the algorithm; the order of additions may depend on the size.
  virtual std::unique_ptr<Transfer> make_all_reduce(Reduction reduction, DType dtype,
                                                    std::byte* data, int64_t elements,
                                                    const std::vector<int>& ranks) = 0;
};

// The communication of a run over several processes. A single process has none.
struct Processes {
  std::shared_ptr<ProcessGroup> group;        // null: the only process
  std::shared_ptr<HeartbeatMonitor> monitor;  // null together with it, and in tests without faults

  int rank() const { return group == nullptr ? 0 : group->rank(); }
  int size() const { return group == nullptr ? 1 : group->size(); }
  // True on rank 0, which prints, writes the run's files and decides for all.
  bool is_first() const { return rank() == 0; }
};

}  // namespace meshtrain
