#include "comm/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/host.h"
#include "base/printable.h"
#include "base/system_calls.h"
#include "base/text.h"

namespace meshtrain {
namespace {

void set_option(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.fd(), level, option, &value, sizeof value);
}

Socket new_socket(int family) {
  return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void close_keeping_errno(Socket& socket) {
  const int reason = errno;
  socket.close();
  errno = reason;
}

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

Address to_address(const sockaddr* from, socklen_t length) {
  Address address;
  std::memcpy(&address.storage, from, length);
  address.length = length;
  return address;
}

// 10.0.0.1 for ::ffff:10.0.0.1, as sockets of both families call it.
Address unmapped(const Address& address) {
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
  if (address.storage.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) {
    return address;
  }
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = ipv6.sin6_port;
  std::memcpy(&ipv4.sin_addr, ipv6.sin6_addr.s6_addr + 12, sizeof ipv4.sin_addr);
  return to_address(reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4);
}

bool is_link_local(const Address& address) {
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

// One address after the other, so that a host with several gets one connection as a rule.
constexpr double kConnectStagger = 0.25;

// For poll(): -1 is without limit.
int milliseconds_until(double deadline) {
  if (deadline == 0) {
    return -1;
  }
  return static_cast<int>(std::clamp((deadline - steady_seconds()) * 1000 + 1, 0.0, 1e9));
}

// Whether `fd` became ready before `deadline`.
bool wait_for(int fd, short events, double deadline) {
  pollfd entry = {fd, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

// Returns the interfaces of this host; empty when the system reports none.
InterfaceList list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    list = nullptr;
  }
  return {list, ::freeifaddrs};
}

}  // namespace

void Socket::close() {
  if (fd_ >= 0) {
    ::close(std::exchange(fd_, -1));
  }
}

std::string Address::text() const {
  char host[NI_MAXHOST] = "?";
  ::getnameinfo(generic(*this), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

int Address::port() const {
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

Address Address::with_port(int port) const {
  Address result = *this;
  const auto number = htons(static_cast<uint16_t>(port));
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(result.storage).sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in&>(result.storage).sin_port = number;
  }
  return result;
}

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24 == 127;
}

std::vector<Address> resolve(const std::string& host, int port, std::string* error) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (problem != 0) {
    *error = problem == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(problem);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  std::vector<Address> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
      if (entry->ai_family == family) {
        addresses.push_back(to_address(entry->ai_addr, entry->ai_addrlen).with_port(port));
      }
    }
  }
  if (addresses.empty()) {
    *error = "no address of IPv4 or IPv6";
  }
  return addresses;
}

std::vector<std::string> network_interfaces() {
  const InterfaceList list = list_interfaces();
  std::vector<std::string> names;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) {
      names.emplace_back(entry->ifa_name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string chosen_interface() {
  const char* value = std::getenv("MESHTRAIN_NET_INTERFACE");
  const std::string name = value == nullptr ? "" : value;
  const std::vector<std::string> known = network_interfaces();
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) {
    return name;
  }
  Diagnostics diagnostics;
  diagnostics
      .error(
          "E613", {},
          fmt::format("there is no network interface `{}` with an address here", printable(name)))
      .note(fmt::format("there are: {}", join(known, ", ")))
      .help("set MESHTRAIN_NET_INTERFACE to one of them, or unset it");
  throw ConfigError(std::move(diagnostics));
}

std::vector<Address> addresses_of(const std::string& interface) {
  const InterfaceList list = list_interfaces();
  std::vector<Address> result;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family ||
          (entry->ifa_flags & IFF_UP) == 0) {
        continue;
      }
      const Address address = to_address(
          entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      const bool wanted = interface.empty() ? !address.is_loopback() : entry->ifa_name == interface;
      if (wanted && !is_link_local(address)) {
        result.push_back(address);
      }
    }
  }
  if (result.empty() && !interface.empty()) {
    throw ConfigError(
        "E613", {},
        fmt::format("interface `{}` is down or has no address that others reach; there are {}",
                    interface, join(network_interfaces(), ", ")));
  }
  return result;
}

Address any_address(int port, bool ipv6) {
  Address address;
  address.storage.ss_family = ipv6 ? AF_INET6 : AF_INET;  // the rest is zero: any
  address.length = ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return address.with_port(port);
}

std::vector<Address> loopback_addresses() {
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 ipv6 = {};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_addr = in6addr_loopback;
  return {to_address(reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4),
          to_address(reinterpret_cast<const sockaddr*>(&ipv6), sizeof ipv6)};
}

Socket listen_at(const Address& address) {
  Socket socket = new_socket(address.storage.ss_family);
  if (!socket) {
    return socket;
  }
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.storage.ss_family == AF_INET6) {
    set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  }
  if (::bind(socket.fd(), generic(address), address.length) != 0 || !start_listening(socket)) {
    close_keeping_errno(socket);
  }
  return socket;
}

Socket hold_port() {
  const Address address = loopback_addresses()[0];
  Socket socket = new_socket(address.storage.ss_family);
  // Without SO_REUSEADDR, by which another user's socket could have the port too, and listen first.
  if (socket && ::bind(socket.fd(), generic(address), address.length) != 0) {
    close_keeping_errno(socket);
  }
  return socket;
}

bool start_listening(const Socket& socket) {
  return ::listen(socket.fd(), SOMAXCONN) == 0;
}

Socket accept_from(const Socket& listener, Address* from) {
  from->length = sizeof from->storage;
  Socket socket(retrying([&] {
    return ::accept4(listener.fd(), reinterpret_cast<sockaddr*>(&from->storage), &from->length,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
  }));
  *from = unmapped(*from);
  return socket;
}

Address local_address(const Socket& socket) {
  Address address;
  address.length = sizeof address.storage;
  ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return unmapped(address);
}

Socket connect_to_any(const std::vector<Address>& addresses, double deadline, size_t* index) {
  std::vector<std::pair<Socket, size_t>> tries;
  size_t next = 0;
  while (next < addresses.size() || !tries.empty()) {
    if (next < addresses.size()) {
      const Address& address = addresses[next++];
      Socket socket = new_socket(address.storage.ss_family);
      // An interrupted connect() continues in the background, like one in progress.
      if (socket && (::connect(socket.fd(), generic(address), address.length) == 0 ||
                     errno == EINPROGRESS || errno == EINTR)) {
        tries.emplace_back(std::move(socket), next - 1);
      }
    }
    if (tries.empty()) {  // refused at once: nothing to wait for
      continue;
    }
    std::vector<pollfd> entries;
    for (const auto& [socket, address] : tries) {
      entries.push_back({socket.fd(), POLLOUT, 0});
    }
    const double turn = next < addresses.size() ? steady_seconds() + kConnectStagger : deadline;
    const int ready =
        ::poll(entries.data(), entries.size(), milliseconds_until(std::min(turn, deadline)));
    if (steady_seconds() >= deadline || (ready < 0 && errno != EINTR)) {
      break;
    }
    for (size_t i = entries.size(); ready > 0 && i-- > 0;) {
      int problem = 0;
      socklen_t length = sizeof problem;
      if (entries[i].revents == 0) {
        continue;
      }
      ::getsockopt(tries[i].first.fd(), SOL_SOCKET, SO_ERROR, &problem, &length);
      if (problem == 0) {
        *index = tries[i].second;
        return std::move(tries[i].first);
      }
      tries.erase(tries.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return {};
}

void watch_peer(const Socket& socket, double silence_seconds) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence_seconds * 1000));
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool send_all(const Socket& socket, std::string_view bytes, double deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket.fd(), POLLOUT, deadline)) {
        return false;
      }
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool receive_all(const Socket& socket, std::span<char> bytes, double deadline) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.fd(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      return false;
    } else if (errno == EAGAIN) {
      if (!wait_for(socket.fd(), POLLIN, deadline)) {
        return false;
      }
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace meshtrain
