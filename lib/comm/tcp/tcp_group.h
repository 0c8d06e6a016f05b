// The processes that find each other by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun,
// Kubernetes), and those that the program starts itself, one per GPU. Texts go over TCP, through
// rank 0; tensors go by NCCL.
#pragma once

#include <string>
#include <vector>

#include "comm/process_group.h"
#include "comm/rendezvous.h"

namespace meshtrain {

struct TcpOptions {
  int rank = 0, size = 1;
  std::string host;    // where rank 0 listens: a name, or an address of IPv4 or IPv6
  int port = 0;        // above 0
  int more_ports = 0;  // so many after it are tried as well, where something else may have it
  // Rank 0 accepts connections of its own host only.
  bool one_host = false;
  // The one to listen at. Empty: loopback for one host, else the addresses of `host`, or all where
  // rank 0's host has none of these.
  std::string interface;
  double join_seconds = 60;  // for all to come
  Token token = {};
  bool is_guessable = false;  // the token, by who knows the job: rank 0 warns of it
  int held_port = -1;         // of rank 0: a socket of hold_port() with this port, or -1
  Print print = print_to_stderr;

  // From MESHTRAIN_TOKEN, MESHTRAIN_SOCKET, MESHTRAIN_JOIN_TIMEOUT and MESHTRAIN_NET_INTERFACE.
  //
  // The program gives the processes that it starts itself a random MESHTRAIN_TOKEN, and rank 0 the
  // socket. Without MESHTRAIN_TOKEN the token is made of the port and the identity of the job
  // (SLURM_JOB_ID, TORCHELASTIC_RUN_ID). That keeps out port scanners and processes of another
  // job, but nobody who knows the job's identity and comes before the ranks do.
  //
  // The agent of torchrun listens at MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE): the ports
  // after it are used then, unless the program started its processes itself (MESHTRAIN_SOCKET).
  static TcpOptions from_environment(int rank, int size, std::string host, int port, bool one_host);
};

class TcpGroup : public ProcessGroup {
 public:
  // Waits until all ranks are there. Throws ConfigError E612, which names ranks that are missing,
  // connected twice or expect another number of ranks, E613 for a port that is taken or a name that
  // does not resolve (exit 8 both), or E640 (exit 4).
  explicit TcpGroup(const TcpOptions& options);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }

  Token secret() const override { return secret_; }
  std::vector<std::string> addresses() const override;

  // At most 64 MiB of text. Waits as long as it takes: a heartbeat monitor watches the others.
  // Throws ConfigError E601 (exit 8) when one of them ends.
  std::vector<std::string> all_gather(std::string_view mine) override;

  // Throw RuntimeFailure (exit 8).
  std::unique_ptr<Transfer> make_exchange(std::vector<Message> sends,
                                          std::vector<Message> receives) override;
  std::unique_ptr<Transfer> make_all_reduce(Reduction reduction, DType dtype, std::byte* data,
                                            int64_t elements,
                                            const std::vector<int>& ranks) override;

 private:
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  Token secret_;
  std::vector<Socket> links_;  // of rank 0: by rank; of the others: the first
};

}  // namespace meshtrain
