#include "comm/tcp/tcp_group.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/diagnostic.h"
#include "base/host.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "comm/heartbeat_monitor.h"
#include "comm/monitor_frames.h"

namespace meshtrain {
namespace {

constexpr double kSilenceSeconds = 10;  // of the network to a host
constexpr size_t kReceivedAtOnce = size_t{1} << 20;

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<int> ports_of(const TcpOptions& options) {
  std::vector<int> ports;
  for (int port = options.port; port <= std::min(options.port + options.more_ports, 65535);
       ++port) {
    ports.push_back(port);
  }
  return ports;
}

bool has_loopback(const std::vector<Address>& addresses) {
  return std::any_of(addresses.begin(), addresses.end(),
                     [](const Address& address) { return address.is_loopback(); });
}

// The one to listen at, or several where each is for some of the others.
using Listeners = std::vector<Socket>;

// At each of `addresses`; none with errno where that is not possible or one of them is taken.
Listeners listen_at_all(const std::vector<Address>& addresses, int port) {
  Listeners listeners;
  int reason = 0;
  for (const Address& address : addresses) {
    if (Socket listener = listen_at(address.with_port(port))) {
      listeners.push_back(std::move(listener));
    } else {
      reason = reason == EADDRINUSE ? reason : errno;
    }
  }
  if (reason == EADDRINUSE) {
    listeners.clear();
  }
  errno = reason;
  return listeners;
}

void warn(const TcpOptions& options, const char* code, const std::string& message,
          const std::string& help) {
  Diagnostics warnings;
  warnings.warning(code, {}, message).help(help);
  options.print(warnings.render());
}

// Where rank 0 is to listen; empty: at all addresses, for want of a better one.
std::vector<Address> own_addresses(const TcpOptions& options) {
  if (!options.interface.empty()) {
    return addresses_of(options.interface);
  }
  std::string error;
  std::vector<Address> named = resolve(options.host, 0, &error);
  if (options.one_host && named.empty()) {
    throw ConfigError("E613", {}, fmt::format("`{}` cannot be found: {}", options.host, error));
  }
  if (options.one_host) {
    return has_loopback(named) ? named : loopback_addresses();
  }
  const std::vector<Address> here = addresses_of("");
  std::erase_if(named, [&](const Address& address) {
    return std::none_of(here.begin(), here.end(),
                        [&](const Address& own) { return own.text() == address.text(); });
  });
  return named;
}

// At rank 0.
Listeners listen_for_ranks(const TcpOptions& options) {
  Listeners listeners;
  if (options.held_port >= 0) {
    listeners.emplace_back(options.held_port);
    if (start_listening(listeners[0])) {
      return listeners;
    }
    listeners.clear();
  }
  std::vector<Address> addresses = own_addresses(options);
  if (addresses.empty()) {
    warn(options, "W618",
         fmt::format("rank 0 listens at all addresses of its host: `{}` is not one by which other "
                     "hosts reach it",
                     options.host),
         "MESHTRAIN_NET_INTERFACE=eth0, the interface between the hosts, for all ranks");
    addresses = {any_address(0, !listen_at_all({any_address(0, true)}, 0).empty())};
  }
  int reason = 0;
  for (const int port : ports_of(options)) {
    listeners = listen_at_all(addresses, port);
    if (!listeners.empty()) {
      return listeners;
    }
    reason = reason == EADDRINUSE ? reason : errno;
  }
  throw ConfigError("E613", {},
                    fmt::format("rank 0 cannot wait for the others at {} port {}: {}", options.host,
                                options.port, std::strerror(reason)))
      .help(reason == EADDRINUSE ? "another program has the port; choose a free MASTER_PORT"
                                 : "MASTER_ADDR must be an address of the host of rank 0");
}

// Where the others look for it.
std::vector<Address> find_rank_zero(const TcpOptions& options, std::string* error) {
  std::vector<Address> named = resolve(options.host, 0, error);
  if (options.one_host && options.interface.empty() && !named.empty() && !has_loopback(named)) {
    const std::vector<Address> loopback = loopback_addresses();
    named.insert(named.begin(), loopback.begin(), loopback.end());
  }
  std::vector<Address> addresses;
  for (const Address& address : named) {
    for (const int port : ports_of(options)) {
      addresses.push_back(address.with_port(port));
    }
  }
  return addresses;
}

// The socket that the process which started this one holds for it, of that port; -1: none.
int take_held_port(int port) {
  Socket socket(parse_number<int>(variable("MESHTRAIN_SOCKET")).value_or(-1));
  const Address address = socket ? local_address(socket) : Address();
  const int fd = socket.release();
  const bool is_ours = address.length > 0 && address.is_loopback() && address.port() == port;
  return is_ours && ::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? fd : -1;
}

[[noreturn]] void lost(int rank) {
  throw ConfigError("E601", {}, fmt::format("rank {} ended while texts went around", rank));
}

void send_text(const Socket& link, int rank, std::string_view text) {
  const uint64_t length = text.size();
  if (!send_all(link, {reinterpret_cast<const char*>(&length), sizeof length}, 0) ||
      !send_all(link, text, 0)) {
    lost(rank);
  }
}

// Takes no more memory than has come.
std::string receive_text(const Socket& link, int rank) {
  uint64_t length = 0;
  std::string text;
  if (!receive_all(link, {reinterpret_cast<char*>(&length), sizeof length}, 0) ||
      length > kMostTextBytes) {
    lost(rank);
  }
  while (text.size() < length) {
    const size_t had = text.size();
    text.resize(std::min<size_t>(length, had + kReceivedAtOnce));
    if (!receive_all(link, std::span(text).subspan(had), 0)) {
      lost(rank);
    }
  }
  return text;
}

[[noreturn]] void moves_no_tensors() {
  throw RuntimeFailure(ExitCode::kRankLost,
                       "processes that meet by MASTER_ADDR move their tensors by NCCL, between "
                       "GPUs; start processes without them by mpirun or srun --mpi=pmix");
}

}  // namespace

TcpOptions TcpOptions::from_environment(int rank, int size, std::string host, int port,
                                        bool one_host) {
  TcpOptions options;
  const HeartbeatOptions shared = HeartbeatOptions::from_environment();
  options.rank = rank;
  options.size = size;
  options.host = std::move(host);
  options.port = port;
  options.one_host = one_host;
  options.interface = shared.interface;
  options.join_seconds = shared.join_seconds;
  const std::string secret = variable("MESHTRAIN_TOKEN");
  options.is_guessable = secret.empty();
  options.token =
      token_of(!secret.empty() ? "secret " + secret
                               : fmt::format("job {} {} {}", port, variable("SLURM_JOB_ID"),
                                             variable("TORCHELASTIC_RUN_ID")));
  options.held_port = take_held_port(port);
  const bool is_started_by_us = std::getenv("MESHTRAIN_SOCKET") != nullptr;  // maybe under torchrun
  if (!is_started_by_us && to_lower(variable("TORCHELASTIC_USE_AGENT_STORE")) == "true") {
    options.port += 1;
    options.more_ports = 7;
  }
  return options;
}

TcpGroup::TcpGroup(const TcpOptions& options)
    : rank_(options.rank), size_(options.size), secret_(options.token) {
  MESHTRAIN_CHECK(rank_ >= 0 && rank_ < size_, "rank {} of {}", rank_, size_);
  if (rank_ == 0 && size_ > 1) {
    if (options.is_guessable) {
      warn(options, "W617",
           fmt::format(
               "the secret of this run can be guessed: any program that reaches port {} of this "
               "host and knows the job's number can join the run",
               options.port),
           "export MESHTRAIN_TOKEN=$(openssl rand -hex 32), the same for all ranks");
    }
    allow_open_files(most_sockets(size_));
    links_ = accept_ranks(listen_for_ranks(options), options.token, size_, options.join_seconds,
                          options.print);
  } else if (size_ > 1) {
    links_.push_back(
        join_rank_zero([&](std::string* error) { return find_rank_zero(options, error); },
                       fmt::format("{} port {}", options.host, options.port), options.token, rank_,
                       size_, options.join_seconds));
  }
  for (const Socket& link : links_) {
    if (link) {
      watch_peer(link, kSilenceSeconds);
    }
  }
  const std::vector<std::string> hosts = all_gather(host_id());
  const std::string& mine = hosts[static_cast<size_t>(rank_)];
  local_size_ = static_cast<int>(std::count(hosts.begin(), hosts.end(), mine));
  local_rank_ = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank_, mine));
}

// Those by which other hosts reach it first.
std::vector<std::string> TcpGroup::addresses() const {
  std::vector<std::string> texts;
  for (const bool is_loopback : {false, true}) {
    for (const Socket& link : links_) {
      const Address address = link && rank_ == 0 ? local_address(link) : Address();
      const bool is_known = std::find(texts.begin(), texts.end(), address.text()) != texts.end();
      if (address.length > 0 && address.is_loopback() == is_loopback && !is_known) {
        texts.push_back(address.text());
      }
    }
  }
  return texts;
}

std::vector<std::string> TcpGroup::all_gather(std::string_view mine) {
  MESHTRAIN_CHECK(mine.size() <= kMostTextBytes, "{} bytes of text", mine.size());
  std::vector<std::string> texts(static_cast<size_t>(size_));
  if (rank_ == 0) {
    texts[0] = mine;
    for (int rank = 1; rank < size_; ++rank) {
      texts[static_cast<size_t>(rank)] = receive_text(links_[static_cast<size_t>(rank)], rank);
    }
    for (int rank = 1; rank < size_; ++rank) {
      for (const std::string& text : texts) {
        send_text(links_[static_cast<size_t>(rank)], rank, text);
      }
    }
    return texts;
  }
  send_text(links_[0], 0, mine);
  for (std::string& text : texts) {
    text = receive_text(links_[0], 0);
  }
  return texts;
}

std::unique_ptr<Transfer> TcpGroup::make_exchange(std::vector<Message>, std::vector<Message>) {
  moves_no_tensors();
}

std::unique_ptr<Transfer> TcpGroup::make_all_reduce(Reduction, DType, std::byte*, int64_t,
                                                    const std::vector<int>&) {
  moves_no_tensors();
}

}  // namespace meshtrain
