// Who gets into a run: peers that have another secret, repeat or send back an answer, say nothing,
// announce too much, run another version or come from another network.
#include "comm/proof.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "base/diagnostic.h"
#include "base/host.h"
#include "comm/heartbeat_monitor.h"
#include "comm/rendezvous.h"
#include "comm/tcp/tcp_group.h"
#include "control_ranks.h"
#include "support/own_address.h"

namespace meshtrain::test {
namespace {

double soon() {
  return steady_seconds() + 30;
}

Socket listen_here() {
  std::string error;
  return listen_at(resolve(own_address(), 0, &error).at(0));
}

Socket connect_to(const Address& address) {
  size_t index = 0;
  return connect_to_any({address}, soon(), &index);
}

Socket accept_one(const Socket& listener) {
  Address from;
  for (const double until = soon(); steady_seconds() < until;) {
    if (Socket socket = accept_from(listener, &from)) {
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  throw InternalError("nobody came");
}

template <class T>
bool receive(const Socket& socket, T* message) {
  return receive_all(socket, {reinterpret_cast<char*>(message), sizeof *message}, soon());
}

template <class T>
void send(const Socket& socket, const T& message) {
  CHECK(send_all(socket, wire_bytes(message), soon()));
}

// Whether the other end closes it without a further byte.
bool is_dropped(const Socket& socket) {
  char byte = 0;
  return !receive(socket, &byte);
}

// A rendezvous of two at rank 0, beside which `strangers` come; then rank 1 does.
std::string with_strangers(const Token& token,
                           const std::function<void(const Address& place)>& strangers) {
  std::string printed;
  std::vector<Socket> listeners;
  listeners.push_back(listen_here());
  const Address place = local_address(listeners[0]);
  auto rank_zero = std::async(std::launch::async, [&] {
    const auto links =
        accept_ranks(listeners, token, 2, 30, [&](std::string_view text) { printed += text; });
    CHECK(links.size() == 2);
  });
  strangers(place);
  const auto find = [&](std::string*) { return std::vector<Address>{place}; };
  CHECK(join_rank_zero(find, "rank 0", token, 1, 2, 30));
  rank_zero.get();
  return printed;
}

// What rank 1 says of a rank 0 that `answers`, once.
std::string joins(const Token& token, const std::function<void(const Socket& link)>& answers) {
  Socket listener = listen_here();
  const Address place = local_address(listener);
  auto rank_one = std::async(std::launch::async, [&]() -> std::string {
    const auto find = [&](std::string*) { return std::vector<Address>{place}; };
    try {
      join_rank_zero(find, "its place", token, 1, 2, 0.01);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "joined";
  });
  {
    const Socket link = accept_one(listener);
    answers(link);
  }
  return rank_one.get();
}

// The proof of a rank 1 that knows the secret, as whoever plays rank 0 gets it.
Token real_proof(const Token& token, Handshake* handshake) {
  Token proof = {};
  joins(token, [&](const Socket& link) {
    CHECK(receive(link, handshake));
    send(link, Challenge{.nonce = random_token()});
    CHECK(receive(link, &proof));
  });
  return proof;
}

TEST_CASE("a proof is of one secret, one side and one pair of messages") {
  const Token secret = token_of("secret");
  const Handshake handshake = {.nonce = random_token(), .rank = 1, .size = 2};
  const Challenge challenge = {.nonce = random_token()};
  const Token proof = proof_of(secret, Prover::kJoining, handshake, challenge);
  CHECK(proof == proof_of(secret, Prover::kJoining, handshake, challenge));
  CHECK(proof != proof_of(token_of("other"), Prover::kJoining, handshake, challenge));
  CHECK(proof != proof_of(secret, Prover::kRankZero, handshake, challenge));
  Handshake other_rank = handshake;
  other_rank.rank = 2;
  CHECK(proof != proof_of(secret, Prover::kJoining, other_rank, challenge));
  CHECK(proof != proof_of(secret, Prover::kJoining, {}, challenge));
  CHECK(proof != proof_of(secret, Prover::kJoining, handshake, {}));
  CHECK(derived_token(secret, "a") != derived_token(secret, "b"));
  CHECK(random_token() != random_token());
}

TEST_CASE("rank 0 drops who has another secret and gives it nothing to try secrets with") {
  const Token token = random_token();
  const std::string printed = with_strangers(token, [&](const Address& place) {
    const Socket stranger = connect_to(place);
    const Handshake handshake = {.nonce = random_token(), .rank = 1, .size = 2};
    Challenge challenge;
    send(stranger, handshake);
    REQUIRE(receive(stranger, &challenge));
    send(stranger, proof_of(random_token(), Prover::kJoining, handshake, challenge));
    CHECK(is_dropped(stranger));
  });
  CHECK(contains(printed,
                 "warning[W612]: dropped 1 connection to the port of this run that did "
                 "not prove to know its secret, the first from 127."));
}

TEST_CASE("rank 0 drops who repeats the proof of a rank") {
  const Token token = random_token();
  Handshake handshake;
  const Token proof = real_proof(token, &handshake);
  const std::string printed = with_strangers(token, [&](const Address& place) {
    const Socket stranger = connect_to(place);
    Challenge challenge;
    send(stranger, handshake);
    REQUIRE(receive(stranger, &challenge));
    send(stranger, proof);
    CHECK(is_dropped(stranger));
  });
  CHECK(contains(printed, "warning[W612]"));
}

TEST_CASE("a rank does not take its own proof for that of rank 0") {
  const std::string problem = joins(random_token(), [&](const Socket& link) {
    Handshake handshake;
    Token proof = {};
    CHECK(receive(link, &handshake));
    send(link, Challenge{.nonce = handshake.nonce});
    CHECK(receive(link, &proof));
    send(link, proof);
    CHECK(is_dropped(link));
  });
  CHECK(contains(problem,
                 "what listens at its place is not rank 0 of this run: it has another "
                 "secret (another job, or MESHTRAIN_TOKEN is not the same)"));
}

TEST_CASE("processes of other versions say so to each other") {
  constexpr uint64_t kOther = kAnyProofVersion | uint64_t{'3'} << 56;
  CHECK(contains(joins(random_token(),
                       [&](const Socket& link) {
                         Handshake handshake;
                         CHECK(receive(link, &handshake));
                         send(link, kOther);
                       }),
                 "is not rank 0 of this run, but another version of meshtrain"));
  const std::string printed = with_strangers(random_token(), [&](const Address& place) {
    const Socket older = connect_to(place);
    uint64_t answer = 0;
    send(older, kAnyProofVersion | uint64_t{'1'} << 56);  // its message is shorter
    CHECK(receive(older, &answer));
    CHECK(answer == kProofVersion);
    CHECK(is_dropped(older));
  });
  CHECK(contains(printed, "; 127."));
  CHECK(contains(printed, " runs another version of meshtrain"));
}

TEST_CASE("peers that say nothing keep nobody from joining") {
  std::vector<Socket> silent;
  const double start = steady_seconds();
  with_strangers(random_token(), [&](const Address& place) {
    for (int i = 0; i < 20; ++i) {
      silent.push_back(connect_to(place));
      CHECK(silent.back());
    }
    send(silent[0], kProofVersion);  // and no more
  });
  CHECK(steady_seconds() - start < 4.5);  // not the five seconds that each of them has
}

TcpOptions rank_options(int rank, int port) {
  TcpOptions options;
  options.rank = rank;
  options.size = 2;
  options.host = own_address();
  options.port = port;
  options.one_host = true;
  options.token = token_of("test");
  return options;
}

// Whether somebody listens there.
bool is_open(const std::string& host, int port) {
  std::string error;
  size_t index = 0;
  return static_cast<bool>(
      connect_to_any(resolve(host, port, &error), steady_seconds() + 30, &index));
}

// Pages that this process has in memory, in bytes.
size_t memory_in_use() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_CASE("a rank that announces 4 GiB is dropped, and 64 MiB take no memory before they come") {
  for (const uint64_t announced :
       {uint64_t{1} << 32, (uint64_t{64} << 20) + 1, uint64_t{64} << 20}) {
    const int port = free_port();
    auto rank_zero = std::async(std::launch::async, [&]() -> std::string {
      try {
        TcpGroup group(rank_options(0, port));
      } catch (const ConfigError& error) {
        return error.what();
      }
      return "";
    });
    std::string error;
    const Address place = resolve(own_address(), port, &error).at(0);
    const auto find = [&](std::string*) { return std::vector<Address>{place}; };
    Socket link = join_rank_zero(find, "rank 0", token_of("test"), 1, 2, 30);
    const size_t before = memory_in_use();
    send(link, announced);
    CHECK(send_all(link, "some", soon()));
    if (announced <= uint64_t{64} << 20) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      CHECK(memory_in_use() < before + (size_t{16} << 20));
      link.close();
    }
    CHECK(contains(rank_zero.get(), "error[E601]: rank 1 ended while texts went around"));
  }
}

// A group of two with what `change` does to their options; `body` runs while rank 0 waits for rank
// 1. What rank 0 printed.
std::string while_waiting(const std::function<void(TcpOptions& options)>& change,
                          const std::function<void(int port)>& body) {
  std::string printed;
  TcpOptions options = rank_options(0, free_port());
  options.print = [&](std::string_view text) { printed += text; };
  change(options);
  auto rank_zero = std::async(std::launch::async, [&] { CHECK(TcpGroup(options).size() == 2); });
  body(options.port);
  TcpOptions other = options;
  other.rank = 1;
  CHECK(TcpGroup(other).size() == 2);
  rank_zero.get();
  return printed;
}

// Whether rank 0 comes to listen there.
bool opens(const std::string& host, int port) {
  for (const double until = soon(); steady_seconds() < until;) {
    if (is_open(host, port)) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST_CASE("rank 0 listens only where the ranks are") {
  const std::vector<Address> outside = addresses_of("");
  if (outside.empty()) {
    MESSAGE("skipped: this host has no network but loopback");
    return;
  }
  const std::string host = outside[0].text();
  const auto of_host = [&](bool one_host) {
    return [=](TcpOptions& options) {
      options.host = host;
      options.one_host = one_host;
    };
  };
  while_waiting(of_host(true), [&](int port) {
    CHECK(opens("127.0.0.1", port));  // one host: by loopback, whatever it is called
    CHECK_FALSE(is_open(host, port));
  });
  const std::string one_place = while_waiting(of_host(false), [&](int port) {
    CHECK(opens(host, port));
    CHECK_FALSE(is_open("127.0.0.1", port));
  });
  CHECK_FALSE(contains(one_place, "W618"));
  const std::string all = while_waiting([&](TcpOptions& options) { options.one_host = false; },
                                        [&](int port) { CHECK(opens(host, port)); });
  CHECK(contains(all, "warning[W618]: rank 0 listens at all addresses of its host: `127."));
  CHECK(contains(all, "MESHTRAIN_NET_INTERFACE"));
}

// A group whose rank 1 is on another host, as the monitor hears it.
class OnTwoHosts : public ProcessGroup {
 public:
  explicit OnTwoHosts(ProcessGroup& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  Token secret() const override { return group_.secret(); }
  std::vector<std::string> addresses() const override { return group_.addresses(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    given.push_back(group_.all_gather(mine));
    if (given.size() == 1) {
      given[0][1] += " elsewhere";  // ends with the id of the host
    }
    return given.back();
  }
  std::unique_ptr<Transfer> make_exchange(std::vector<Message> s, std::vector<Message> r) override {
    return group_.make_exchange(std::move(s), std::move(r));
  }
  std::unique_ptr<Transfer> make_all_reduce(Reduction reduction, DType dtype, std::byte* data,
                                            int64_t n, const std::vector<int>& ranks) override {
    return group_.make_all_reduce(reduction, dtype, data, n, ranks);
  }

  std::vector<std::vector<std::string>> given;

 private:
  ProcessGroup& group_;
};

TEST_CASE("the monitor of a group over several hosts listens where the group was reached") {
  const std::vector<Address> outside = addresses_of("");
  if (outside.empty()) {
    MESSAGE("skipped: this host has no network but loopback");
    return;
  }
  const int port = free_port();
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      TcpOptions options = rank_options(rank, port);
      options.host = outside[0].text();
      options.one_host = false;
      TcpGroup group(options);
      CHECK(group.secret() == token_of("test"));
      CHECK(group.addresses() ==
            (rank == 0 ? std::vector<std::string>{options.host} : std::vector<std::string>{}));
      OnTwoHosts hosts(group);
      HeartbeatMonitor monitor(hosts, test_options());
      const std::string& place = hosts.given.at(1).at(0);
      CHECK(contains(place, "\n" + options.host + " port "));
      CHECK(std::count(place.begin(), place.end(), '\n') == 1);  // and nowhere else
      monitor.finish();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_CASE("ranks on this host find a rank 0 that takes the job for one of several hosts") {
  const std::vector<Address> outside = addresses_of("");
  if (outside.empty()) {
    MESSAGE("skipped: this host has no network but loopback");
    return;
  }
  for (const bool is_first_alone : {false, true}) {
    const int port = free_port();
    std::vector<std::thread> threads;
    for (const int rank : {0, 1}) {
      threads.emplace_back([&, rank] {
        TcpOptions options = rank_options(rank, port);
        options.host = outside[0].text();
        options.one_host = rank == 1 || !is_first_alone;  // without LOCAL_WORLD_SIZE
        CHECK(TcpGroup(options).all_gather("x").size() == 2);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
}

TEST_CASE("a secret that others can guess is warned of, with the way to set one") {
  for (const char* secret : {"", "0123"}) {
    ::setenv("MESHTRAIN_TOKEN", secret, 1);
    const std::string printed = while_waiting(
        [&](TcpOptions& options) {
          const TcpOptions given =
              TcpOptions::from_environment(0, 2, options.host, options.port, true);
          options.token = given.token;
          options.is_guessable = given.is_guessable;
        },
        [](int) {});
    CHECK(contains(printed, "warning[W617]: the secret of this run can be guessed") ==
          (*secret == '\0'));
    CHECK(contains(printed, "export MESHTRAIN_TOKEN=$(openssl rand -hex 32)") == (*secret == '\0'));
  }
  ::unsetenv("MESHTRAIN_TOKEN");
}

TEST_CASE("rank 0 takes the socket that was held for it, and nothing else") {
  Socket held = hold_port();
  const int port = local_address(held).port();
  const auto given = [&](int of_port) {
    ::setenv("MESHTRAIN_SOCKET", std::to_string(held.fd()).c_str(), 1);
    const int fd = TcpOptions::from_environment(0, 2, "127.0.0.1", of_port, true).held_port;
    ::unsetenv("MESHTRAIN_SOCKET");
    return fd;
  };
  CHECK(given(port + 1) == -1);
  CHECK(local_address(held).port() == port);  // still open
  CHECK(given(port) == held.fd());
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      TcpOptions options = rank_options(rank, port);
      options.host = "127.0.0.1";
      options.held_port = rank == 0 ? held.release() : -1;
      CHECK(TcpGroup(options).all_gather("x").size() == 2);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace meshtrain::test
