// The networks of a host, and TCP sockets: never blocking, closed by themselves, not inherited by
// programs that are started. Names resolve to IPv4 and IPv6. Times are seconds of the steady clock.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshtrain {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  std::string text() const;  // "10.0.0.1", "::1"
  int port() const;
  Address with_port(int port) const;
  bool is_loopback() const;
};

// Returns the addresses of a host name or number, IPv4 first. On failure, returns none and sets
// `error` to the system's reason.
std::vector<Address> resolve(const std::string& host, int port, std::string* error);

// Returns the addresses of `interface`, or of all interfaces but loopback for ""; IPv4 first,
// without link-local addresses. Throws ConfigError E613 when the interface has none.
std::vector<Address> addresses_of(const std::string& interface);

// Names of the interfaces of this host that have an address, sorted: "eth0", "lo".
std::vector<std::string> network_interfaces();

// $MESHTRAIN_NET_INTERFACE, the one interface that heartbeat monitor, MPI and NCCL are to use;
// empty where it is not set: each of them chooses. Throws ConfigError E613 (exit 8), which lists
// those that there are, when there is no such interface here.
std::string chosen_interface();

// Any address of this host, port chosen by the system if 0.
Address any_address(int port, bool ipv6);
// Those by which only this host is reached: 127.0.0.1 and ::1.
std::vector<Address> loopback_addresses();
// No socket and errno where that cannot be.
Socket listen_at(const Address& address);
// Holds a port of 127.0.0.1 that the system chooses: nobody else gets it as long as the socket is
// open, and who connects is refused until start_listening(). No socket and errno on failure.
Socket hold_port();
bool start_listening(const Socket& socket);
// The next connection, with the address it comes from; no socket when there is none now.
Socket accept_from(const Socket& listener, Address* from);
Address local_address(const Socket& socket);
// The first of `addresses` that accepts a connection, and its index; no socket where none has until
// `deadline` or all refuse.
Socket connect_to_any(const std::vector<Address>& addresses, double deadline, size_t* index);

// No waiting for more to send; the kernel gives a peer up that does not answer for
// `silence_seconds`.
void watch_peer(const Socket& socket, double silence_seconds);

// Whether all of it went until `deadline` (0: no limit).
bool send_all(const Socket& socket, std::string_view bytes, double deadline);
bool receive_all(const Socket& socket, std::span<char> bytes, double deadline);

}  // namespace meshtrain
