// The processes of MPI_COMM_WORLD as a ProcessGroup.
#pragma once

#include <mpi.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/reduce.h"
#include "comm/process_group.h"

namespace meshtrain::mpi {

// MPI from its start to its end, with a communicator of our own.
class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  MPI_Comm comm() const { return comm_; }

 private:
  bool all_have_come() noexcept;

  MPI_Comm comm_ = MPI_COMM_NULL;
};

class MpiGroup final : public ProcessGroup {
 public:
  MpiGroup();
  ~MpiGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }

  std::vector<std::string> all_gather(std::string_view mine) override;
  std::unique_ptr<Transfer> make_exchange(std::vector<Message> sends,
                                          std::vector<Message> receives) override;
  std::unique_ptr<Transfer> make_all_reduce(Reduction reduction, DType dtype, std::byte* data,
                                            int64_t elements,
                                            const std::vector<int>& ranks) override;

 private:
  std::vector<int64_t> all_gather_numbers(int64_t mine);
  MPI_Comm team(const std::vector<int>& ranks);

  Session session_;  // ends after all that it was used for
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  Operations operations_;
  std::map<std::vector<int>, MPI_Comm> teams_;  // of a part of the ranks
};

}  // namespace meshtrain::mpi
