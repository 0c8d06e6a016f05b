// What a device has in common with those of other processes: NCCL's communicators.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/cuda/core.h"
#include "backend/cuda/libraries.h"

namespace meshtrain::cuda {

// Communicators are made non-blocking: every call of NCCL returns at once, and whoever waits looks
// again and again for errors and for abort(). What fails throws RuntimeFailure that names the call,
// rank, peers and step: exit 8, or 4 where NCCL was used in a way that it does not allow or finds
// no memory.
//
// One thread uses an object; abort() may be called by any.
class Communicators {
 public:
  explicit Communicators(const Core& core) : core_(core) {}
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // Collective, as all calls below: waits until all have come, at most so long.
  void join(const Nccl& nccl, const std::string& id, int rank, int size,
            std::chrono::seconds limit = std::chrono::seconds(120));
  ncclComm_t world() const { return world_; }
  // That of these ranks, in this order, made where there is none yet; all ranks come with lists
  // like theirs.
  ncclComm_t of(const std::vector<int>& ranks);

  // Collective: sends each other rank a message, and from now on each communicator computes
  // something once when it is made, in this memory of at least kTrialBytes. NCCL connects with a
  // first operation, which allocates and waits: nothing for a capture.
  void connect(std::byte* memory);
  static constexpr size_t kTrialBytes = 256;

  // Only enqueue.
  void enqueue(const ExchangeSpec& exchange, CUstream stream);
  void enqueue(const AllReduceSpec& all_reduce, ncclComm_t communicator, CUstream stream);
  void enqueue(const AllGatherSpec& all_gather, ncclComm_t communicator, CUstream stream);
  void enqueue(const ReduceScatterSpec& reduce_scatter, ncclComm_t communicator, CUstream stream);

  // Throws where NCCL has found an error since (then all are aborted), or after abort().
  void check();
  // Throws after abort(). What was aborted ends at once and without an error: whoever waited for
  // its end asks here.
  void check_aborted() const;
  // Returns at once. This object lives on until all graphs with communication are gone.
  void abort();

 private:
  // For others to come that compile first; less than GpuExecutor gives them, so that the
  // message names the call.
  static constexpr std::chrono::minutes kLimit{14};
  using Lock = std::unique_lock<std::timed_mutex>;

  // For one call of NCCL, which abort() does not come between. Throws after abort().
  Lock lock();
  template <class Call>
  void enqueue_one(std::string_view kind, const std::vector<int>& ranks, ncclComm_t communicator,
                   const Call& call);
  // Until what `call` began is done.
  void wait_until_done(ncclResult_t status, ncclComm_t communicator, std::string_view call,
                       std::chrono::seconds limit = kLimit);
  [[noreturn]] void fail(ncclResult_t status, ncclComm_t communicator, std::string_view call) const;
  void finish(ncclComm_t communicator);
  void try_out(ncclComm_t communicator, const std::vector<int>& ranks);

  const Core& core_;
  const Nccl* nccl_ = nullptr;
  int rank_ = 0, size_ = 1;
  ncclComm_t world_ = nullptr;
  std::map<std::vector<int>, ncclComm_t> parts_;
  std::byte* trial_ = nullptr;
  std::timed_mutex mutex_;
  std::atomic<bool> is_aborted_ = false;
  std::jthread aborting_;
};

// Waits a little more each time that it is called, so that short waits are not made longer.
class Patience {
 public:
  void wait();

 private:
  int calls_ = 0;
};

}  // namespace meshtrain::cuda
