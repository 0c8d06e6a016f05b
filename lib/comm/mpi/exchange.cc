#include "comm/mpi/exchange.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "comm/mpi/calls.h"

namespace meshtrain::mpi {
namespace {

// Counts of MPI are int: a longer message is split into several with different tags.
constexpr int64_t kMostBytes = int64_t{64} << 20;

struct Copy {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
};

class Exchange final : public Transfer {
 public:
  Exchange(MPI_Comm comm, const std::vector<Message>& sends, const std::vector<Message>& receives) {
    int rank = 0, size = 0;
    check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    check_peers(sends, size);
    check_peers(receives, size);
    add_own(sends, receives, rank);
    // Receives are posted first: a message with a posted receive is not copied on the way.
    for (const Message& message : receives) {
      add(comm, message, rank, false);
    }
    num_receives_ = requests_.size();
    for (const Message& message : sends) {
      add(comm, message, rank, true);
    }
  }

  ~Exchange() override {
    int is_over = 0;
    MPI_Finalized(&is_over);
    for (MPI_Request& request : requests_) {
      if (is_over == 0) {
        MPI_Request_free(&request);
      }
    }
  }

  void run() override {
    for (const Copy& copy : copies_) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    }
    if (requests_.empty()) {
      return;
    }
    const int count = static_cast<int>(requests_.size());
    check(MPI_Startall(count, requests_.data()), "MPI_Startall");
    // Prepared transfers do not change: lengths are compared once.
    std::vector<MPI_Status> statuses(was_compared_ ? 0 : requests_.size());
    int done = 0;
    for (Waiting waiting; done == 0; waiting.pause()) {
      check(MPI_Testall(count, requests_.data(), &done,
                        was_compared_ ? MPI_STATUSES_IGNORE : statuses.data()),
            "MPI_Testall");
    }
    if (!was_compared_) {
      compare(statuses);
    }
  }

 private:
  static void check_peers(const std::vector<Message>& messages, int size) {
    std::vector<bool> seen(static_cast<size_t>(size));
    for (const Message& message : messages) {
      MESHTRAIN_CHECK(message.peer >= 0 && message.peer < size && message.bytes >= 0,
                      "{} bytes for rank {} of {}", message.bytes, message.peer, size);
      MESHTRAIN_CHECK(!seen[static_cast<size_t>(message.peer)], "two messages for rank {}",
                      message.peer);
      seen[static_cast<size_t>(message.peer)] = true;
    }
  }

  void add_own(const std::vector<Message>& sends, const std::vector<Message>& receives, int rank) {
    const auto to_me = [rank](const Message& m) { return m.peer == rank && m.bytes > 0; };
    const auto sent = std::find_if(sends.begin(), sends.end(), to_me);
    const auto received = std::find_if(receives.begin(), receives.end(), to_me);
    const int64_t out = sent == sends.end() ? 0 : sent->bytes;
    const int64_t in = received == receives.end() ? 0 : received->bytes;
    MESHTRAIN_CHECK(out == in, "rank {} sends itself {} bytes and receives {}", rank, out, in);
    if (in > 0) {
      copies_.push_back({received->data, sent->data, static_cast<size_t>(in)});
    }
  }

  void add(MPI_Comm comm, const Message& message, int rank, bool is_send) {
    if (message.peer == rank) {
      return;
    }
    for (int64_t at = 0; at < message.bytes; at += kMostBytes) {
      const int bytes = static_cast<int>(std::min(kMostBytes, message.bytes - at));
      const int tag = static_cast<int>(at / kMostBytes);
      MPI_Request request = MPI_REQUEST_NULL;
      if (is_send) {
        check(MPI_Send_init(message.data + at, bytes, MPI_BYTE, message.peer, tag, comm, &request),
              "MPI_Send_init");
      } else {
        check(MPI_Recv_init(message.data + at, bytes, MPI_BYTE, message.peer, tag, comm, &request),
              "MPI_Recv_init");
        lengths_.push_back(bytes);
      }
      requests_.push_back(request);
    }
  }

  void compare(const std::vector<MPI_Status>& statuses) {
    for (size_t i = 0; i < num_receives_; ++i) {
      int bytes = 0;
      check(MPI_Get_count(&statuses[i], MPI_BYTE, &bytes), "MPI_Get_count");
      MESHTRAIN_CHECK(bytes == lengths_[i], "{} bytes came from rank {} instead of {}", bytes,
                      statuses[i].MPI_SOURCE, lengths_[i]);
    }
    was_compared_ = true;
  }

  std::vector<MPI_Request> requests_;  // receives first
  size_t num_receives_ = 0;
  std::vector<int> lengths_;  // of receives
  std::vector<Copy> copies_;  // from this process to itself
  bool was_compared_ = false;
};

}  // namespace

std::unique_ptr<Transfer> make_exchange(MPI_Comm comm, const std::vector<Message>& sends,
                                        const std::vector<Message>& receives) {
  return std::make_unique<Exchange>(comm, sends, receives);
}

}  // namespace meshtrain::mpi
