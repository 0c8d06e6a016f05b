// What emulated devices of several processes say to each other, over UNIX sockets in a folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

class Peers {
 public:
  // A new folder, for all of them.
  static std::string make_folder();

  // Waits until all `size` have come; RuntimeFailure after a minute. `name`: of this device, for
  // messages: "gpu:0 (GPU emulator)".
  Peers(const std::string& folder, int rank, int size, std::string name);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Return when it is done. Throw RuntimeFailure (exit 8) naming the step where a peer has gone or
  // after abort(), InternalError where a peer sends what is not expected here.
  void run(const ExchangeSpec& exchange, const std::string& path);
  // Each share of the elements is added up from another rank on, so that the order is neither that
  // of the ranks nor the same for all elements; all ranks get the same bits.
  void run(const AllReduceSpec& all_reduce, const std::string& path);
  void run(const ReduceScatterSpec& reduce_scatter, const std::string& path);
  void run(const AllGatherSpec& all_gather, const std::string& path);
  void abort() { is_aborted_ = true; }

 private:
  struct Side;
  void listen(const std::string& path);
  int connect(const std::string& path);
  int accept();
  [[noreturn]] void fail(const std::string& what) const;
  void check_abort(const std::string& path) const;
  void delay();
  // What is at part(place) of each of these ranks for the one at that place: mine, by rank.
  using Terms = std::vector<std::vector<std::byte>>;
  template <class Part>
  Terms terms(const std::vector<int>& ranks, int64_t bytes, const Part& part,
              const std::string& path);

  int rank_;
  std::string name_;
  std::atomic<bool> is_aborted_ = false;
  int listener_ = -1;
  std::vector<int> sockets_;  // by rank; -1: myself
  uint64_t count_ = 0;        // of communications
};

}  // namespace meshtrain::gpu
