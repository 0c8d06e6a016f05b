// Processes played by threads of one process: for programs of several processes in unit tests.
#pragma once

#include <functional>
#include <memory>

#include "comm/process_group.h"

namespace meshtrain {

// Runs body(group) for ranks 0 ... size - 1 at the same time, each on a thread of its own, and
// rethrows the first exception. What a group sends is counted: bytes_sent().
class ThreadGroup;
void run_as_processes(int size, const std::function<void(std::shared_ptr<ThreadGroup>)>& body);

class ThreadGroup : public ProcessGroup {
 public:
  struct Shared;
  ThreadGroup(std::shared_ptr<Shared> shared, int rank);

  int rank() const override { return rank_; }
  int size() const override;
  int local_rank() const override { return rank_; }
  int local_size() const override { return size(); }
  std::vector<std::string> all_gather(std::string_view mine) override;
  std::unique_ptr<Transfer> make_exchange(std::vector<Message> sends,
                                          std::vector<Message> receives) override;
  std::unique_ptr<Transfer> make_all_reduce(Reduction reduction, DType dtype, std::byte* data,
                                            int64_t elements,
                                            const std::vector<int>& ranks) override;

  // Of exchanges that were run, to other ranks; and how many of them.
  int64_t bytes_sent() const { return bytes_sent_; }
  int64_t exchanges() const { return exchanges_; }
  // Of all-reduces by the library that were run, the bytes they were over.
  int64_t bytes_reduced() const { return bytes_reduced_; }

 private:
  friend class ThreadExchange;
  friend class ThreadAllReduce;
  std::shared_ptr<Shared> shared_;
  int rank_;
  int64_t bytes_sent_ = 0, exchanges_ = 0, bytes_reduced_ = 0;
};

}  // namespace meshtrain
