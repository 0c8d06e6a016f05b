#include "comm/rendezvous.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/diagnostic.h"
#include "base/host.h"
#include "base/system_calls.h"

namespace meshtrain {
namespace {

constexpr double kHandshakeSeconds = 5;
constexpr uint32_t kMostRefusal = 60000;
constexpr int kTurnMilliseconds = 100;

// Somebody who connected and has not proved yet to be of this run.
struct Visitor {
  Socket socket;
  Address from;
  double until = 0;
  std::array<char, sizeof(Handshake)> bytes = {};  // the longest message from it
  size_t count = 0;
  bool is_challenged = false;
  Handshake handshake;
  Challenge challenge;
};
static_assert(sizeof(Token) <= sizeof(Handshake));

ConfigError refused(const std::string& message) {
  return ConfigError("E612", {}, message);
}

// The rendezvous at rank 0.
class Reception {
 public:
  Reception(const std::vector<Socket>& listeners, const Token& token, int size, double limit)
      : listeners_(listeners),
        token_(token),
        size_(size),
        limit_(limit),
        ranks_(static_cast<size_t>(size)),
        from_(static_cast<size_t>(size)) {}

  std::vector<Socket> run(const Print& print) {
    std::string problem;
    const double deadline = steady_seconds() + limit_;
    while (present_ + 1 < size_ && problem.empty()) {
      if (steady_seconds() > deadline) {
        problem = fmt::format("waited {:g} s for {} of {} to connect{}", limit_,
                              rank_list(missing()), size_, strangers_note());
      } else {
        problem = turn();
      }
    }
    if (strangers_ > 0) {
      print(fmt::format("warning[W612]: {}\n\n", stranger_text()));
    }
    tell_all(problem);
    if (!problem.empty()) {
      throw refused(problem);
    }
    return std::move(ranks_);
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < size_; ++rank) {
      if (!ranks_[static_cast<size_t>(rank)]) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

  std::string stranger_text() const {
    return fmt::format(
        "dropped {} connection{} to the port of this run that did not prove to know its secret, "
        "the first from {}{}",
        strangers_, strangers_ == 1 ? "" : "s", first_stranger_,
        other_version_.empty()
            ? ""
            : fmt::format("; {} runs another version of meshtrain", other_version_));
  }
  std::string strangers_note() const {
    return strangers_ == 0 ? "" : fmt::format("; {}", stranger_text());
  }

  // An empty text: all are there. Else why nothing comes of it.
  void tell_all(const std::string& problem) {
    const auto length = static_cast<uint32_t>(std::min<size_t>(problem.size(), kMostRefusal));
    const std::string text = std::string(wire_bytes(length)) + problem.substr(0, length);
    for (const Socket& socket : ranks_) {
      if (socket) {
        send_all(socket, text, steady_seconds() + 1);
      }
    }
  }

  // Waits a little for something to happen; returns what makes the rendezvous fail.
  std::string turn() {
    std::vector<pollfd> entries;
    for (const Socket& listener : listeners_) {
      entries.push_back({listener.fd(), POLLIN, 0});
    }
    for (const Visitor& visitor : visitors_) {
      entries.push_back({visitor.socket.fd(), POLLIN, 0});
    }
    const size_t num_visitors = visitors_.size();
    std::vector<int> waiting;
    for (int rank = 1; rank < size_; ++rank) {
      if (const Socket& socket = ranks_[static_cast<size_t>(rank)]) {
        entries.push_back({socket.fd(), POLLIN, 0});
        waiting.push_back(rank);
      }
    }
    if (::poll(entries.data(), entries.size(), kTurnMilliseconds) > 0) {
      for (size_t i = 0; i < listeners_.size(); ++i) {
        if (entries[i].revents != 0) {
          take_visitors(listeners_[i]);
        }
      }
      for (size_t i = 0; i < waiting.size(); ++i) {  // who waits says nothing: it has ended
        if (entries[listeners_.size() + num_visitors + i].revents != 0) {
          return fmt::format("rank {} ended before all ranks were there", waiting[i]);
        }
      }
    }
    std::string problem;
    for (Visitor& visitor : visitors_) {
      if (problem.empty()) {
        problem = listen_to(visitor);
      }
    }
    std::erase_if(visitors_, [](const Visitor& visitor) { return !visitor.socket; });
    return problem;
  }

  void take_visitors(const Socket& listener) {
    while (true) {
      Visitor visitor;
      visitor.socket = accept_from(listener, &visitor.from);
      if (visitor.socket) {
        visitor.until = steady_seconds() + kHandshakeSeconds;
        visitors_.push_back(std::move(visitor));
      } else if (errno != EMFILE && errno != ENFILE) {
        return;
      } else if (visitors_.empty()) {  // no file descriptor is left; the visitor must wait
        std::this_thread::sleep_for(std::chrono::milliseconds(kTurnMilliseconds));
        return;
      } else {
        drop_oldest();
      }
      if (visitors_.size() > static_cast<size_t>(size_ + kMostStrangers)) {
        drop_oldest();
      }
    }
  }

  void drop_oldest() {
    drop(visitors_.front());
    visitors_.erase(visitors_.begin());
  }

  void drop(Visitor& visitor) {
    if (strangers_++ == 0) {
      first_stranger_ = visitor.from.text();
    }
    visitor.socket.close();
  }

  // Whether all `size` bytes of the visitor's next message are there. Drops who sends nothing
  // more, or what no process of this version sends.
  bool has_message(Visitor& visitor, size_t size) {
    while (visitor.count < size) {
      const ssize_t got = ::recv(visitor.socket.fd(), visitor.bytes.data() + visitor.count,
                                 size - visitor.count, 0);
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0 && errno == EAGAIN && steady_seconds() < visitor.until) {
        break;
      }
      if (got <= 0) {
        drop(visitor);
        return false;
      }
      visitor.count += static_cast<size_t>(got);
    }
    uint64_t version = kProofVersion;
    if (!visitor.is_challenged && visitor.count >= sizeof version) {
      std::memcpy(&version, visitor.bytes.data(), sizeof version);
    }
    if (version != kProofVersion) {
      if (is_of_meshtrain(version)) {
        other_version_ = visitor.from.text();
        send_all(visitor.socket, wire_bytes(kProofVersion), steady_seconds() + 1);
      }
      drop(visitor);
      return false;
    }
    return visitor.count == size;
  }

  // Reads what came, and lets in who knows the secret.
  std::string listen_to(Visitor& visitor) {
    if (!visitor.is_challenged && has_message(visitor, sizeof(Handshake))) {
      std::memcpy(&visitor.handshake, visitor.bytes.data(), sizeof(Handshake));
      visitor.is_challenged = true;
      visitor.count = 0;
      visitor.challenge.nonce = random_token();
      send_all(visitor.socket, wire_bytes(visitor.challenge), steady_seconds() + 1);
    }
    if (!visitor.is_challenged || !has_message(visitor, sizeof(Token))) {
      return {};
    }
    Token proof;
    std::memcpy(proof.data(), visitor.bytes.data(), sizeof proof);
    if (!is_same_digest(proof,
                        proof_of(token_, Prover::kJoining, visitor.handshake, visitor.challenge))) {
      drop(visitor);
      return {};
    }
    return let_in(visitor);
  }

  std::string let_in(Visitor& visitor) {
    const Handshake& handshake = visitor.handshake;
    const Token proof = proof_of(token_, Prover::kRankZero, handshake, visitor.challenge);
    send_all(visitor.socket, wire_bytes(proof), steady_seconds() + 1);
    const std::string from = visitor.from.text();
    const auto index = static_cast<size_t>(handshake.rank);
    if (handshake.size != size_) {
      return tell(visitor,
                  fmt::format("rank {} (from {}) says that there are {} ranks, rank 0 that there "
                              "are {}: the same WORLD_SIZE is needed everywhere",
                              handshake.rank, from, handshake.size, size_));
    }
    if (handshake.rank <= 0 || handshake.rank >= size_) {
      return tell(visitor, fmt::format("a process from {} says that it is rank {} of {}{}", from,
                                       handshake.rank, size_,
                                       handshake.rank == 0 ? ": there are two with rank 0" : ""));
    }
    if (ranks_[index]) {
      return tell(visitor,
                  fmt::format("rank {} came twice, from {} and from {}: each process needs a "
                              "RANK of its own",
                              handshake.rank, from_[index], from));
    }
    ranks_[index] = std::move(visitor.socket);
    from_[index] = from;
    ++present_;
    return {};
  }

  // Returns the problem with the visitor after sending it to the visitor, too.
  std::string tell(Visitor& visitor, std::string problem) {
    const auto length = static_cast<uint32_t>(problem.size());
    send_all(visitor.socket, std::string(wire_bytes(length)) + problem, steady_seconds() + 1);
    visitor.socket.close();
    return problem;
  }

  const std::vector<Socket>& listeners_;
  const Token token_;
  const int size_;
  const double limit_;
  std::vector<Socket> ranks_;
  std::vector<std::string> from_;
  std::vector<Visitor> visitors_;
  int present_ = 0;
  int64_t strangers_ = 0;
  std::string first_stranger_, other_version_;
};

// Why the other end is not rank 0 of this run; empty: it is.
std::string introduce(const Socket& socket, const Token& token, int rank, int size) {
  const auto receive = [&, until = steady_seconds() + kHandshakeSeconds](auto* message) {
    return receive_all(socket, {reinterpret_cast<char*>(message), sizeof *message}, until);
  };
  const auto send = [&](const auto& message) {
    return send_all(socket, wire_bytes(message), steady_seconds() + 1);
  };
  const Handshake handshake = {.nonce = random_token(), .rank = rank, .size = size};
  Challenge challenge;
  if (!send(handshake) || !receive(&challenge.version) || !is_of_meshtrain(challenge.version)) {
    return "is not rank 0 of this run";
  }
  if (challenge.version != kProofVersion) {
    return "is not rank 0 of this run, but another version of meshtrain: all hosts need the same";
  }
  Token proof = {};
  const bool is_known = receive(&challenge.nonce) &&
                        send(proof_of(token, Prover::kJoining, handshake, challenge)) &&
                        receive(&proof);
  return is_known && is_same_digest(proof, proof_of(token, Prover::kRankZero, handshake, challenge))
             ? ""
             : "is not rank 0 of this run: it has another secret (another job, or MESHTRAIN_TOKEN "
               "is not the same)";
}

// Waits until all ranks are there.
void await_others(const Socket& socket, double limit_seconds) {
  const double deadline = steady_seconds() + limit_seconds;
  uint32_t length = 0;
  std::string problem;
  bool has_reply = receive_all(socket, {reinterpret_cast<char*>(&length), sizeof length}, deadline);
  if (has_reply && length == 0) {
    return;
  }
  if (has_reply && length <= kMostRefusal) {
    problem.resize(length);
    has_reply = receive_all(socket, problem, deadline);
  }
  throw refused(has_reply ? problem
                : steady_seconds() < deadline
                    ? "rank 0 ended before all ranks were there"
                    : fmt::format("rank 0 did not say in {:g} s whether all ranks are there: it "
                                  "is stuck, or the network to it",
                                  limit_seconds));
}

}  // namespace

void print_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = retrying([&] { return ::write(STDERR_FILENO, text.data(), text.size()); });
    if (done < 0 && errno == EAGAIN) {  // others have set it to not wait
      pollfd ready = {STDERR_FILENO, POLLOUT, 0};
      if (poll(&ready, 1, 1000) > 0) {
        continue;
      }
    }
    if (done <= 0) {
      return;
    }
    text.remove_prefix(static_cast<size_t>(done));
  }
}

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) {
      text += fmt::format("{}{}", last > i + 1 ? "-" : ", ", ranks[last]);
    }
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::vector<Socket> accept_ranks(const std::vector<Socket>& listeners, const Token& token, int size,
                                 double limit_seconds, const Print& print) {
  return Reception(listeners, token, size, limit_seconds).run(print);
}

Socket join_rank_zero(const FindAddresses& find, const std::string& place, const Token& token,
                      int rank, int size, double limit_seconds) {
  const double deadline = steady_seconds() + limit_seconds;
  std::string code, why;
  do {
    std::string error;
    std::vector<Address> addresses = find(&error);
    if (addresses.empty()) {
      code = "E613";
      why = fmt::format("{} cannot be found: {}", place, error);
    } else {
      code = "E612";
      why = fmt::format("rank 0 did not answer at {}", place);
    }
    size_t index = 0;
    while (Socket socket = connect_to_any(addresses, deadline, &index)) {
      const std::string refusal = introduce(socket, token, rank, size);
      if (refusal.empty()) {
        // Rank 0 was there before: it gives up sooner and says who is missing.
        await_others(socket, limit_seconds + kHandshakeSeconds);
        return socket;
      }
      why = fmt::format("what listens at {} {}", place, refusal);
      addresses.erase(addresses.begin() + static_cast<std::ptrdiff_t>(index));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (steady_seconds() < deadline);
  throw ConfigError(code, {}, fmt::format("rank {} waited {:g} s: {}", rank, limit_seconds, why));
}

void allow_open_files(int more) {
  int open = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++open;
  }
  const auto needed = static_cast<rlim_t>(open + more);
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
    return;
  }
  if (limit.rlim_max >= needed) {
    limit.rlim_cur = std::min(limit.rlim_max, 2 * needed);
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return;
  }
  throw ConfigError(
      "E640", {}, fmt::format("`ulimit -n` allows {} open files, needs {}", limit.rlim_max, needed))
      .help(fmt::format("ulimit -n {}, or LimitNOFILE of the service that starts the processes",
                        needed));
}

}  // namespace meshtrain
