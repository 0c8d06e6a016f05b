#include "comm/launch.h"

#include <errno.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/diagnostic.h"
#include "base/json.h"
#include "base/system_calls.h"
#include "comm/meeting.h"

namespace meshtrain {

const char* const kServeVerb = "serve-processes";

namespace {

constexpr int kNotExecutable = 126, kNotFound = 127, kAgentFailed = 255;
constexpr size_t kMaxOrder = size_t{1} << 20;

struct Share {  // of the processes, on one host
  int first = 0, count = 0, total = 0;
  std::string master, port;
};

// MASTER_PORT of the environment as it is, for those who read it; or one that is free `here`.
std::string chosen_port(bool here) {
  if (const char* given = std::getenv("MASTER_PORT")) {
    return given;
  }
  // Below the ports that systems give to clients, so that they are rarely in use.
  constexpr int kFirst = 20000, kCount = 12000;
  return std::to_string(here ? free_port() : kFirst + static_cast<int>(random_token()[0] % kCount));
}

Environment with_token(Environment environment) {
  environment.emplace_back("MESHTRAIN_TOKEN", to_text(random_token()));
  return environment;
}

std::vector<ChildCommand> local_commands(const std::vector<std::string>& words, const Share& share,
                                         const Environment& environment) {
  std::vector<ChildCommand> out;
  for (int i = 0; i < share.count; ++i) {
    ChildCommand command{fmt::format("rank {}", share.first + i), words, environment};
    const auto set = [&](const char* name, const std::string& value) {
      command.environment.emplace_back(name, value);
    };
    set("RANK", std::to_string(share.first + i));
    set("WORLD_SIZE", std::to_string(share.total));
    set("LOCAL_RANK", std::to_string(i));
    set("LOCAL_WORLD_SIZE", std::to_string(share.count));
    set("MASTER_ADDR", share.master);
    set("MASTER_PORT", share.port);
    out.push_back(std::move(command));
  }
  return out;
}

// The token goes over standard input: command lines can be read by everyone on a machine.
std::string order_text(const std::vector<std::string>& words, const Share& share,
                       const Environment& environment) {
  const nlohmann::json order = {{"words", words},       {"environment", environment},
                                {"first", share.first}, {"count", share.count},
                                {"total", share.total}, {"master", share.master},
                                {"port", share.port}};
  try {
    return json_text(order) + "\n";
  } catch (const nlohmann::json::exception&) {
    throw ConfigError(
        "E140", {},
        "a word of the command, or the value of a MESHTRAIN_, OMP_ or NCCL_ variable, "
        "is no UTF-8: it cannot be sent to other hosts");
  }
}

ChildCommand remote_command(const Host& host, const std::vector<std::string>& agent,
                            std::string order) {
  ChildCommand command{fmt::format("host {}", host.name), agent, {}, std::move(order)};
  command.words.push_back(host.name);
  command.words.push_back("cd " + shell_quoted({std::filesystem::current_path().string()}) +
                          " && exec " + shell_quoted({own_program(), kServeVerb}));
  return command;
}

// One of several that a signal ended is a rank that was lost.
ChildrenEnd with_own_code(ChildrenEnd end, int processes) {
  constexpr int kFirstSignal = 129, kLastSignal = 128 + 64;
  if (processes > 1 && end.exit_code >= kFirstSignal && end.exit_code <= kLastSignal &&
      end.exit_code != static_cast<int>(ExitCode::kInterrupted) &&
      end.exit_code != static_cast<int>(ExitCode::kTerminated)) {
    end.exit_code = static_cast<int>(ExitCode::kRankLost);
  }
  return end;
}

// The first line of standard input, read byte by byte: what follows is for run_children().
std::string read_order() {
  std::string out;
  char byte = 0;
  while (out.size() < kMaxOrder && retrying([&] { return read(STDIN_FILENO, &byte, 1); }) == 1) {
    if (byte == '\n') {
      return out;
    }
    out += byte;
  }
  return "";
}

// None where `text` is no order.
std::vector<ChildCommand> ordered_commands(const std::string& text) {
  try {
    const nlohmann::json order = parse_json(text);
    const Share share{order.at("first"), order.at("count"), order.at("total"), order.at("master"),
                      order.at("port")};
    const std::vector<std::string> words = order.at("words");
    if (!words.empty()) {
      return local_commands(words, share, order.at("environment"));
    }
  } catch (const nlohmann::json::exception&) {  // something is missing or of another type
  }
  return {};
}

}  // namespace

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

int free_port() {
  std::string error;
  const Socket socket = listen_at(resolve("127.0.0.1", 0, &error).at(0));
  if (!socket) {
    throw RuntimeFailure(ExitCode::kRankLost, fmt::format("there is no free port on 127.0.0.1: {}",
                                                          std::strerror(errno)));
  }
  return local_address(socket).port();
}

ChildrenEnd run_processes(const std::vector<std::string>& words, int count,
                          const Environment& environment, const ChildrenOptions& options) {
  // Not that of the environment: a launcher that started this process may listen there.
  const Share share{0, count, count, "127.0.0.1", std::to_string(free_port())};
  return with_own_code(run_children(local_commands(words, share, with_token(environment)), options),
                       count);
}

ChildrenEnd run_on_hosts(const std::vector<std::string>& words, const std::vector<Host>& hosts,
                         const std::vector<std::string>& agent, const Environment& environment,
                         const ChildrenOptions& options) {
  const bool here = is_this_host(hosts[0].name);
  if (here && hosts.size() == 1) {
    return run_processes(words, hosts[0].slots, environment, options);
  }
  const Environment shared = with_token(environment);
  Share share{0, 0, total_slots(hosts), hosts[0].name, chosen_port(here)};
  std::vector<ChildCommand> commands;
  for (const Host& host : hosts) {
    share.count = host.slots;
    if (is_this_host(host.name)) {
      for (ChildCommand& command : local_commands(words, share, shared)) {
        commands.push_back(std::move(command));
      }
    } else {
      commands.push_back(remote_command(host, agent, order_text(words, share, shared)));
    }
    share.first += host.slots;
  }
  ChildrenEnd end = run_children(commands, options);
  if (end.exit_code == kNotFound || end.exit_code == kNotExecutable) {
    throw ConfigError(
        "E614", {},
        fmt::format("{} cannot start `{}` (exit code {}): the program must be at the same path on "
                    "every host, and `{}` on this one",
                    end.name, own_program(), end.exit_code, agent[0]));
  }
  if (end.exit_code == kAgentFailed) {
    options.say(fmt::format("{}: `{}` did not reach it, or was cut off (exit code {})", end.name,
                            shell_quoted(agent), end.exit_code));
    end.exit_code = static_cast<int>(ExitCode::kRankLost);
  }
  return with_own_code(end, share.total);
}

int serve_processes(const ChildrenOptions& options) {
  const std::vector<ChildCommand> commands = ordered_commands(read_order());
  if (commands.empty()) {
    throw RuntimeFailure(ExitCode::kConfig,
                         fmt::format("{} is what `meshtrain launch` starts on other hosts; its "
                                     "orders come on standard input",
                                     kServeVerb));
  }
  ChildrenOptions with_orders = options;
  with_orders.orders = STDIN_FILENO;
  return run_children(commands, with_orders).exit_code;
}

}  // namespace meshtrain
