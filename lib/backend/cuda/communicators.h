// What a device has in common with those of other processes: NCCL's communicators, and the memory
// that they know of.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/core.h"
#include "backend/cuda/libraries.h"

namespace meshtrain::cuda {

// Communicators are made non-blocking: every call of NCCL returns at once, and whoever waits looks
// again and again for errors and for abort(). What fails throws RuntimeFailure that names the call,
// rank, peers and step: exit 8, or 4 where NCCL was used in a way that it does not allow.
//
// One thread uses an object; abort() may be called by any.
class Communicators {
 public:
  explicit Communicators(const Core& core) : core_(core) {}
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // Collective, as all calls below that make a communicator: waits until all have come, at most
  // `patience`.
  void join(const Nccl& nccl, const std::string& id, int rank, int size,
            std::chrono::milliseconds patience = std::chrono::seconds(120));
  bool has_joined() const { return world_ != nullptr; }
  ncclComm_t world() const { return world_; }
  // That of these ranks, made where there is none yet; all ranks come with lists like theirs.
  ncclComm_t of(const std::vector<int>& ranks);

  // Only enqueue.
  void enqueue(const gpu::Exchange& exchange, cudaStream_t stream);
  void enqueue(const gpu::AllReduce& all_reduce, ncclComm_t communicator, cudaStream_t stream);

  // Throws where NCCL has found an error since, or after abort().
  void check();
  void abort();

  // Memory that NCCL can let other devices read; null where it has none.
  std::byte* allocate(size_t bytes);
  // False where it did not come from allocate().
  bool free(std::byte* memory);
  // Tells a communicator of such memory: messages at `data` go to and from it without copies.
  void announce(const std::byte* data, ncclComm_t communicator);

 private:
  struct Block {
    size_t bytes = 0;
    std::map<ncclComm_t, void*> handles;
  };
  using Lock = std::unique_lock<std::timed_mutex>;

  // For one call of NCCL, which abort() does not come between. Throws after abort().
  Lock lock();
  // Until what `call` began is done.
  void settle(ncclResult_t status, ncclComm_t communicator, std::string_view call);
  [[noreturn]] void fail(ncclResult_t status, ncclComm_t communicator, std::string_view call) const;
  void forget(Block& block);
  void finish(ncclComm_t communicator);

  const Core& core_;
  const Nccl* nccl_ = nullptr;
  int rank_ = 0, size_ = 1;
  std::chrono::milliseconds patience_{0};
  ncclComm_t world_ = nullptr;
  std::map<std::vector<int>, ncclComm_t> parts_;
  std::map<std::byte*, Block> blocks_;  // by their beginning
  std::timed_mutex mutex_;
  std::atomic<bool> is_aborted_ = false;
};

// Waits a little more each time that it is called, so that short waits are not made longer.
class Patience {
 public:
  void wait();

 private:
  int calls_ = 0;
};

}  // namespace meshtrain::cuda
