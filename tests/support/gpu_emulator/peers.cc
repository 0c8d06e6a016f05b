#include "support/gpu_emulator/peers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "support/gpu_emulator/plan.h"
#include "support/gpu_emulator/products.h"

namespace meshtrain::gpu {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(60);  // for the others to come
constexpr int kPollMilliseconds = 50;                 // between two looks at abort()

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  MESHTRAIN_CHECK(path.size() < sizeof(address.sun_path), "{} is too long for a socket", path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

int make_socket() {
  const int made = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  MESHTRAIN_CHECK(made >= 0, "socket: {}", std::strerror(errno));
  return made;
}

}  // namespace

// One direction of a message: its size, then its bytes.
struct Peers::Side {
  int peer, socket;
  bool sends;
  std::byte* data;
  uint64_t bytes;
  std::array<std::byte, sizeof(uint64_t)> header{};
  uint64_t done = 0;  // of header and data

  Side(const Message& message, int socket_, bool sends_)
      : peer(message.peer),
        socket(socket_),
        sends(sends_),
        data(message.data),
        bytes(static_cast<uint64_t>(message.bytes)) {
    if (sends)
      std::memcpy(header.data(), &bytes, sizeof(bytes));
  }
  bool is_done() const { return done == header.size() + bytes; }

  // As much as can be had now; false where the peer has gone.
  bool advance() {
    while (!is_done()) {
      const bool in_header = done < header.size();
      std::byte* const at = in_header ? header.data() + done : data + (done - header.size());
      const uint64_t left = in_header ? header.size() - done : bytes - (done - header.size());
      const ssize_t moved =
          sends ? ::send(socket, at, left, MSG_NOSIGNAL) : ::recv(socket, at, left, 0);
      if (moved < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
      if (moved <= 0)
        return false;
      done += static_cast<uint64_t>(moved);
      if (!sends && done == header.size())
        check_size();
    }
    return true;
  }

  void check_size() const {
    uint64_t theirs = 0;
    std::memcpy(&theirs, header.data(), sizeof(theirs));
    MESHTRAIN_CHECK(theirs == bytes, "rank {} sends {} bytes where {} are expected", peer, theirs,
                    bytes);
  }
};

std::string Peers::make_folder() {
  std::string pattern = (fs::temp_directory_path() / "mt-gpus-XXXXXX").string();
  if (pattern.size() > 90)  // the name of a socket has 107 bytes
    pattern = "/tmp/mt-gpus-XXXXXX";
  MESHTRAIN_CHECK(::mkdtemp(pattern.data()) != nullptr, "mkdtemp: {}", std::strerror(errno));
  return pattern;
}

Peers::Peers(const std::string& folder, int rank, int size, std::string name)
    : rank_(rank), name_(std::move(name)), sockets_(static_cast<size_t>(size), -1) {
  const auto place = [&](int of) { return fmt::format("{}/{}", folder, of); };
  listen(place(rank));
  for (int other = 0; other < rank; ++other) {
    const int made = connect(place(other));
    sockets_[static_cast<size_t>(other)] = made;
    MESHTRAIN_CHECK(::send(made, &rank, sizeof(rank), MSG_NOSIGNAL) == sizeof(rank));
  }
  for (int missing = size - 1 - rank; missing > 0; --missing) {
    const int made = accept();
    int other = -1;
    pollfd ready{made, POLLIN, 0};
    ::poll(&ready, 1, 10'000);
    MESHTRAIN_CHECK(::recv(made, &other, sizeof(other), 0) == sizeof(other) && other > rank &&
                        other < size && sockets_[static_cast<size_t>(other)] < 0,
                    "rank {} comes to {}", other, place(rank));
    sockets_[static_cast<size_t>(other)] = made;
  }
  ::unlink(place(rank).c_str());
  ::rmdir(folder.c_str());  // by the last
}

Peers::~Peers() {
  for (const int socket : sockets_) {
    if (socket >= 0)
      ::close(socket);
  }
  if (listener_ >= 0)
    ::close(listener_);
}

void Peers::listen(const std::string& path) {
  const sockaddr_un address = address_of(path);
  listener_ = make_socket();
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener_, 64) != 0)
    fail(fmt::format("cannot listen at {}: {}", path, std::strerror(errno)));
}

int Peers::connect(const std::string& path) {
  const sockaddr_un address = address_of(path);
  for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
    const int made = make_socket();
    if (::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      return made;
    ::close(made);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  fail(fmt::format("nobody came to {}", path));
}

int Peers::accept() {
  pollfd ready{listener_, POLLIN, 0};
  ::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
  const int made = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (made < 0)
    fail("some of the other processes did not come");
  return made;
}

void Peers::fail(const std::string& what) const {
  throw RuntimeFailure(ExitCode::kRankLost, fmt::format("{}, rank {}: {}", name_, rank_, what));
}

void Peers::check_abort(const std::string& path) const {
  if (is_aborted_)
    fail(fmt::format("communication was aborted, at step `{}`", path));
}

// Ranks come to a communication at different times.
void Peers::delay() {
  const uint64_t seed = EmulatorOptions::from_environment().seed;
  ++count_;
  if (seed != 0) {
    const uint64_t own = hash_mix(hash_mix(seed, static_cast<uint64_t>(rank_)), count_);
    std::this_thread::sleep_for(std::chrono::microseconds(own % 4 == 0 ? own % 1500 : 0));
  }
}

void Peers::run(const ExchangeSpec& exchange, const std::string& path) {
  delay();
  std::vector<Side> sides;
  for (const Message& message : exchange.sends)
    sides.emplace_back(message, sockets_.at(static_cast<size_t>(message.peer)), true);
  for (const Message& message : exchange.receives)
    sides.emplace_back(message, sockets_.at(static_cast<size_t>(message.peer)), false);
  while (true) {
    check_abort(path);
    std::vector<pollfd> waiting;
    for (Side& side : sides) {
      if (!side.advance())
        fail(fmt::format("rank {} has gone, at step `{}`", side.peer, path));
      if (!side.is_done())
        waiting.push_back({side.socket, static_cast<short>(side.sends ? POLLOUT : POLLIN), 0});
    }
    if (waiting.empty())
      return;
    ::poll(waiting.data(), waiting.size(), kPollMilliseconds);
  }
}

template <class Part>
Peers::Terms Peers::terms(const std::vector<int>& ranks, int64_t bytes, const Part& part,
                          const std::string& path) {
  Terms terms(ranks.size(), std::vector<std::byte>(static_cast<size_t>(bytes)));
  ExchangeSpec exchange;
  for (size_t place = 0; place < ranks.size(); ++place) {
    std::byte* const sent = const_cast<std::byte*>(part(static_cast<int64_t>(place)));
    if (ranks[place] == rank_) {
      std::memcpy(terms[place].data(), sent, terms[place].size());
      continue;
    }
    exchange.sends.push_back({ranks[place], sent, bytes});
    exchange.receives.push_back({ranks[place], terms[place].data(), bytes});
  }
  run(exchange, path);
  return terms;
}

namespace {

void reduce(Reduction reduction, DType dtype, const std::vector<std::vector<std::byte>>& terms,
            int64_t elements, std::byte* to) {
  const size_t count = terms.size();
  std::vector<const std::byte*> in_order(count);
  for (int64_t i = 0; i < elements; ++i) {
    const size_t first = static_cast<size_t>(i) * count / static_cast<size_t>(elements);
    for (size_t k = 0; k < count; ++k)
      in_order[k] = terms[(first + k) % count].data();
    reduce_element(reduction, dtype, in_order, i, to);
  }
}

}  // namespace

void Peers::run(const AllReduceSpec& all_reduce, const std::string& path) {
  const Terms all = terms(
      all_reduce.ranks, all_reduce.bytes(), [&](int64_t) { return all_reduce.data; }, path);
  reduce(all_reduce.reduction, all_reduce.dtype, all, all_reduce.elements, all_reduce.data);
}

void Peers::run(const ReduceScatterSpec& reduce_scatter, const std::string& path) {
  const int64_t bytes = reduce_scatter.bytes();
  const Terms mine = terms(
      reduce_scatter.ranks, bytes,
      [&](int64_t place) { return reduce_scatter.from + place * bytes; }, path);
  reduce(reduce_scatter.reduction, reduce_scatter.dtype, mine, reduce_scatter.elements,
         reduce_scatter.to);
}

void Peers::run(const AllGatherSpec& all_gather, const std::string& path) {
  const Terms all = terms(
      all_gather.ranks, all_gather.bytes, [&](int64_t) { return all_gather.from; }, path);
  for (size_t place = 0; place < all.size(); ++place)
    std::memcpy(all_gather.to + place * all[place].size(), all[place].data(), all[place].size());
}

}  // namespace meshtrain::gpu
