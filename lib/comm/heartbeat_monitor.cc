#include "comm/heartbeat_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <span>

#include "base/diagnostic.h"
#include "base/host.h"
#include "base/parse_number.h"
#include "base/system_calls.h"
#include "base/text.h"
#include "comm/monitor_thread.h"
#include "comm/rendezvous.h"

namespace meshtrain {
namespace {

// A number of seconds from the environment.
void read_seconds(const char* name, double* seconds) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return;
  }
  const auto number = parse_number<double>(value);
  if (!number || !(*number > 0 && *number <= 1e6)) {
    throw ConfigError("E140", {},
                      fmt::format("{}=`{}`: must be a number of seconds above 0", name, value));
  }
  *seconds = *number;
}

// The description of a rank, and rank 0's address; one line for each field.
std::string lines(const std::vector<std::string>& fields) {
  return join(fields, "\n");
}

// Where rank 0 waits for the others.
struct Place {
  std::vector<Socket> listeners;
  std::vector<std::string> addresses;  // "10.0.0.1 port 4000", to look for it in this order
};

// At those addresses only by which the others reach rank 0, as far as anybody knows.
Place open_place(const HeartbeatOptions& options, bool one_host, const ProcessGroup& group) {
  Place place;
  const auto listen = [&](const Address& address, const std::vector<Address>& names) {
    if (Socket listener = listen_at(address.with_port(0))) {
      for (const Address& name : names) {
        place.addresses.push_back(
            fmt::format("{} port {}", name.text(), local_address(listener).port()));
      }
      place.listeners.push_back(std::move(listener));
    }
  };
  allow_open_files(most_sockets(group.size()));
  if (!options.interface.empty()) {
    const Address address = addresses_of(options.interface)[0];
    listen(address, {address});
  } else if (one_host) {
    const Address address = loopback_addresses()[0];
    listen(address, {address});
  } else {
    for (const std::string& text : group.addresses()) {
      std::string error;
      for (const Address& address : resolve(text, 0, &error)) {
        listen(address, {address});
      }
    }
    for (const bool ipv6 : {true, false}) {
      if (place.listeners.empty()) {
        listen(any_address(0, ipv6), addresses_of(""));
      }
    }
  }
  if (place.listeners.empty() || place.addresses.empty()) {
    throw ConfigError("E613", {},
                      fmt::format("rank 0 has no network address where the others could reach it; "
                                  "the interfaces are {}",
                                  join(network_interfaces(), ", ")));
  }
  return place;
}

// Of lines as Place::addresses.
std::vector<Address> find_place(std::span<const std::string> lines, std::string* error) {
  std::vector<Address> addresses;
  for (const std::string& line : lines) {
    const std::vector<std::string> words = split(line, ' ');
    const std::vector<Address> some = resolve(words.at(0), std::atoi(words.at(2).c_str()), error);
    addresses.insert(addresses.end(), some.begin(), some.end());
  }
  return addresses;
}

// Of an error that is to be the same on all ranks.
std::string error_lines(const ConfigError& error) {
  const Diagnostic& first = error.diagnostics().list().front();
  return lines({"error", first.code, first.message});
}

}  // namespace

HeartbeatOptions HeartbeatOptions::from_environment() {
  HeartbeatOptions options;
  read_seconds("MESHTRAIN_HEARTBEAT_TIMEOUT", &options.silence_seconds);
  read_seconds("MESHTRAIN_COLLECTIVE_TIMEOUT", &options.collective_seconds);
  read_seconds("MESHTRAIN_JOIN_TIMEOUT", &options.join_seconds);
  options.interface = chosen_interface();
  return options;
}

class HeartbeatMonitor::Impl {
 public:
  Impl(ProcessGroup& group, HeartbeatOptions given, const Activity& activity,
       std::atomic<bool>& aborting)
      : options(std::move(given)), rank(group.rank()), size(group.size()) {
    if (!options.print) {
      options.print = print_to_stderr;
    }
    std::vector<std::string> hosts;
    for (const std::string& text :
         group.all_gather(lines({host_name(), std::to_string(::getpid()), host_id()}))) {
      const std::vector<std::string> fields = split(text, '\n');
      views.push_back({fields.at(0), std::atoll(fields.at(1).c_str())});
      hosts.push_back(fields.at(2));
    }
    Token token;
    std::vector<Link> links = connect(group, hosts, &token);
    loop = std::make_unique<MonitorThread>(state, activity, aborting, options, rank, views,
                                           std::move(hosts), std::move(links),
                                           to_text(derived_token(token, "name")));
    thread = quiet_thread([this] { loop->run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(state.mutex);
      state.stop = true;
    }
    state.wake();
    thread.join();
  }

  // Collective.
  std::vector<Link> connect(ProcessGroup& group, const std::vector<std::string>& hosts,
                            Token* token) {
    Place place;
    std::string mine;
    if (rank == 0) {
      const bool one_host = std::count(hosts.begin(), hosts.end(), hosts[0]) == size;
      try {
        place = open_place(options, one_host, group);
        mine = lines({to_text(random_token()), lines(place.addresses)});
      } catch (const ConfigError& error) {
        mine = error_lines(error);
      }
    }
    const std::vector<std::string> fields = split(group.all_gather(mine)[0], '\n');
    if (fields[0] == "error") {
      throw ConfigError(fields.at(1), {}, fields.at(2));
    }
    *token = derived_token(group.secret(), fields[0]);
    std::vector<Socket> sockets(static_cast<size_t>(size));
    if (rank == 0) {
      sockets = accept_ranks(place.listeners, *token, size, options.join_seconds, options.print);
    } else {
      const std::span addresses = std::span(fields).subspan(1);
      sockets[0] = join_rank_zero([&](std::string* error) { return find_place(addresses, error); },
                                  join({addresses.begin(), addresses.end()}, ", "), *token, rank,
                                  size, options.join_seconds);
    }
    std::vector<Link> links;
    for (Socket& socket : sockets) {
      if (socket) {
        watch_peer(socket, options.silence_seconds);
      }
      links.emplace_back(std::move(socket));
    }
    return links;
  }

  // Throws when the processes leave and leaving returns, as it does in tests only.
  void check_left() const {
    if (state.left) {
      throw RuntimeFailure(static_cast<ExitCode>(*state.left), "the processes of this run leave");
    }
  }

  // Gives a text and waits for what comes back.
  std::vector<std::string> exchange(GatherRequest mine) {
    const std::string key = mine.key;
    MESHTRAIN_CHECK(key.size() <= kMostKeyBytes && mine.text.size() <= kMostTextBytes,
                    "{} bytes under a key of {}", mine.text.size(), key.size());
    mine.limit = mine.limit > 0 ? mine.limit : options.collective_seconds;
    std::unique_lock lock(state.mutex);
    check_left();
    MESHTRAIN_CHECK(!state.finished, "a gather of `{}` after finish()", key);
    state.gathers.push_back(std::move(mine));
    state.wake();
    state.changed.wait(
        lock, [&] { return state.gathered.count(key) > 0 || state.left || state.finished; });
    const auto found = state.gathered.find(key);
    if (found == state.gathered.end()) {
      check_left();
      throw InternalError(fmt::format("a gather of `{}` was still waiting in finish()", key));
    }
    std::vector<std::string> texts = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) {
      state.gathered.erase(found);
    }
    return texts;
  }

  HeartbeatOptions options;
  const int rank, size;
  std::vector<RankView> views;
  MonitorState state;
  std::unique_ptr<MonitorThread> loop;
  std::jthread thread;
  std::mutex texts_mutex;
  std::set<std::string, std::less<>> texts;  // of keep()
};

HeartbeatMonitor::HeartbeatMonitor(ProcessGroup& group, HeartbeatOptions options)
    : impl_(std::make_unique<Impl>(group, std::move(options), activity_, aborting_)) {}

HeartbeatMonitor::~HeartbeatMonitor() = default;

int HeartbeatMonitor::rank() const {
  return impl_->rank;
}

int HeartbeatMonitor::size() const {
  return impl_->size;
}

std::string HeartbeatMonitor::describe(int rank) const {
  return meshtrain::describe(impl_->views.at(static_cast<size_t>(rank)), rank);
}

void HeartbeatMonitor::loss(int64_t step, uint64_t hash) {
  if (impl_->rank == 0) {
    impl_->state.losses.set(step, hash);
  }
  activity_.change([&](Activity::Values& v) {
    v.loss_step = step;
    v.loss_hash = hash;
  });
}

const char* HeartbeatMonitor::keep(std::string_view text) {
  const std::lock_guard lock(impl_->texts_mutex);
  return impl_->texts.emplace(text).first->c_str();
}

HeartbeatMonitor::Announcement HeartbeatMonitor::announce(std::string what, double limit_seconds) {
  MonitorState& state = impl_->state;
  const std::lock_guard lock(state.mutex);
  state.announcements.push_back(
      {++state.last_id, std::move(what), steady_seconds(), limit_seconds});
  return Announcement(this, state.last_id);
}

HeartbeatMonitor::Announcement::~Announcement() {
  if (monitor_ != nullptr) {
    MonitorState& state = monitor_->impl_->state;
    const std::lock_guard lock(state.mutex);
    std::erase_if(state.announcements, [this](const auto& entry) { return entry.id == id_; });
  }
}

std::vector<std::string> HeartbeatMonitor::all_gather(std::string_view key, std::string text,
                                                      double limit_seconds) {
  return impl_->exchange({std::string(key), std::move(text), limit_seconds, false});
}

std::vector<std::string> HeartbeatMonitor::gather(std::string_view key, std::string text,
                                                  double limit_seconds) {
  return impl_->exchange({std::string(key), std::move(text), limit_seconds, true});
}

void HeartbeatMonitor::set_last_checkpoint(int64_t step) {
  impl_->state.last_checkpoint.store(step);
}

HeartbeatMonitor::Hook HeartbeatMonitor::on_abort(std::function<void()> hook) {
  const uint64_t id = impl_->state.hooks.add(std::move(hook));
  return Hook(this, id);
}

HeartbeatMonitor::Hook::~Hook() {
  if (monitor_ != nullptr) {
    monitor_->impl_->state.hooks.remove(id_);
  }
}

void HeartbeatMonitor::fail(int exit_code, const std::string& text) {
  MonitorState& state = impl_->state;
  std::unique_lock lock(state.mutex);
  if (state.finished) {
    impl_->options.print(text);
    impl_->options.exit ? impl_->options.exit(exit_code) : ::_exit(exit_code);
    state.left = exit_code;
  }
  if (!state.left) {
    if (!state.failure) {  // of another thread
      state.failure = {impl_->rank, exit_code, text};
    }
    state.last_resort.start(impl_->options.last_resort_seconds);
    state.wake();
    state.changed.wait(lock, [&] { return state.left.has_value(); });
  }
  throw RuntimeFailure(static_cast<ExitCode>(*state.left), text);
}

void HeartbeatMonitor::finish() {
  MonitorState& state = impl_->state;
  std::unique_lock lock(state.mutex);
  impl_->check_left();
  state.finish = true;
  state.wake();
  state.changed.wait(lock, [&] { return state.finished || state.left; });
  if (!state.finished) {
    impl_->check_left();
  }
}

}  // namespace meshtrain
