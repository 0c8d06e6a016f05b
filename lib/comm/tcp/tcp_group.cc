#include "comm/tcp/tcp_group.h"

#include <errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/diagnostic.h"
#include "base/text.h"
#include "comm/heartbeat_monitor.h"

namespace meshtrain {
namespace {

constexpr double kSilenceSeconds = 10;             // of the network to a host
constexpr uint64_t kMostText = uint64_t{1} << 32;  // of one rank

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

// At rank 0.
Socket listen_for_ranks(const TcpOptions& options) {
  std::vector<Address> addresses;
  if (!options.interface.empty()) {
    addresses = addresses_of(options.interface);
  } else if (options.one_host) {
    std::string error;
    addresses = resolve(options.host, 0, &error);
    if (addresses.empty()) {
      throw ConfigError("E613", {}, fmt::format("`{}` cannot be found: {}", options.host, error));
    }
  } else {
    addresses = {any_address(0, true), any_address(0, false)};
  }
  int reason = 0;
  for (const int port : ports_of(options)) {
    for (const Address& address : addresses) {
      if (Socket listener = listen_at(address.with_port(port))) {
        return listener;
      }
      reason = reason == EADDRINUSE ? reason : errno;
    }
  }
  throw ConfigError("E613", {},
                    fmt::format("rank 0 cannot wait for the others at {} port {}: {}", options.host,
                                options.port, std::strerror(reason)))
      .help(reason == EADDRINUSE ? "another program has the port; choose a free MASTER_PORT"
                                 : "MASTER_ADDR must be an address of the host of rank 0");
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

std::string receive_text(const Socket& link, int rank) {
  uint64_t length = 0;
  std::string text;
  if (!receive_all(link, {reinterpret_cast<char*>(&length), sizeof length}, 0) ||
      length > kMostText) {
    lost(rank);
  }
  text.resize(length);
  if (!receive_all(link, text, 0)) {
    lost(rank);
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
  options.token =
      token_of(!secret.empty() ? "secret " + secret
                               : fmt::format("job {} {} {}", port, variable("SLURM_JOB_ID"),
                                             variable("TORCHELASTIC_RUN_ID")));
  if (to_lower(variable("TORCHELASTIC_USE_AGENT_STORE")) == "true") {
    options.port += 1;
    options.more_ports = 7;
  }
  return options;
}

TcpGroup::TcpGroup(const TcpOptions& options) : rank_(options.rank), size_(options.size) {
  MESHTRAIN_CHECK(rank_ >= 0 && rank_ < size_, "rank {} of {}", rank_, size_);
  if (rank_ == 0 && size_ > 1) {
    allow_open_files(most_sockets(size_));
    std::vector<Socket> listeners;
    listeners.push_back(listen_for_ranks(options));
    links_ = accept_ranks(listeners, options.token, size_, options.join_seconds, options.print);
  } else if (size_ > 1) {
    const auto find = [&](std::string* error) {
      std::vector<Address> addresses;
      for (const Address& address : resolve(options.host, 0, error)) {
        for (const int port : ports_of(options)) {
          addresses.push_back(address.with_port(port));
        }
      }
      return addresses;
    };
    links_.push_back(join_rank_zero(find, fmt::format("{} port {}", options.host, options.port),
                                    options.token, rank_, size_, options.join_seconds));
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

std::vector<std::string> TcpGroup::all_gather(std::string_view mine) {
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
