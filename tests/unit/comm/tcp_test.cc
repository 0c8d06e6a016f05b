// Processes that meet at MASTER_ADDR and MASTER_PORT, played by threads.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <future>
#include <thread>

#include "base/diagnostic.h"
#include "base/host.h"
#include "comm/heartbeat_monitor.h"
#include "comm/process_exit.h"
#include "comm/rendezvous.h"
#include "comm/tcp/tcp_group.h"
#include "control_ranks.h"
#include "support/own_address.h"

namespace meshtrain::test {
namespace {

// A port that no call before had.
int next_port() {
  static int last = 20000;
  return ++last;
}

TcpOptions options_of(int rank, int size, int port) {
  TcpOptions options;
  options.rank = rank;
  options.size = size;
  options.host = own_address();
  options.port = port;
  options.one_host = true;
  options.token = token_of("test");
  return options;
}

// What each of `size` ranks threw, "" where nothing.
std::vector<std::string> meet(int size, const std::function<void(TcpOptions& options)>& change,
                              const std::function<void(TcpGroup& group)>& body) {
  const int port = next_port();
  std::vector<std::string> problems(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        TcpOptions options = options_of(rank, size, port);
        change(options);
        TcpGroup group(options);
        body(group);
      } catch (const std::exception& error) {
        problems[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return problems;
}

TEST_CASE("processes meet and give each other texts of any size") {
  for (const int size : {1, 2, 5}) {
    const auto problems = meet(
        size, [](TcpOptions&) {},
        [&](TcpGroup& group) {
          CHECK(group.size() == size);
          CHECK(group.local_size() == size);
          CHECK(group.local_rank() == group.rank());
          for (const size_t length : {size_t{0}, size_t{1}, size_t{5} << 20}) {
            const auto texts =
                group.all_gather(std::string(length, static_cast<char>('a' + group.rank())));
            for (int rank = 0; rank < size; ++rank) {
              CHECK(texts[static_cast<size_t>(rank)] ==
                    std::string(length, static_cast<char>('a' + rank)));
            }
          }
        });
    for (const std::string& problem : problems) {
      CHECK(problem == "");
    }
  }
}

TEST_CASE("a heartbeat monitor runs over processes that met so") {
  const auto problems = meet(
      3, [](TcpOptions&) {},
      [](TcpGroup& group) {
        HeartbeatMonitor monitor(group, {});
        CHECK(monitor.all_gather("key", std::to_string(group.rank())) ==
              std::vector<std::string>{"0", "1", "2"});
        monitor.finish();
      });
  CHECK(problems == std::vector<std::string>(3));
}

TEST_CASE("IPv6 alone will do") {
  std::string error;
  if (resolve("::1", 0, &error).empty() || !listen_at(resolve("::1", 0, &error)[0])) {
    MESSAGE("skipped: no IPv6 here");
    return;
  }
  const Socket probe = listen_at(resolve("::1", 0, &error)[0]);
  const int port = local_address(probe).port() + 1;  // or one of those after it
  const auto problems = meet(
      2,
      [&](TcpOptions& options) {
        options.host = "::1";
        options.port = port;
        options.more_ports = 7;
      },
      [](TcpGroup& group) { CHECK(group.all_gather("x").size() == 2); });
  CHECK(problems == std::vector<std::string>(2));
}

TEST_CASE("addresses that the system refuses at once are passed over at once") {
  const Address no_family;  // as one of IPv6 where there is none
  std::string error;
  const Address good = resolve(own_address(), next_port(), &error).at(0);
  size_t index = 0;
  CHECK_FALSE(connect_to_any({good, no_family}, steady_seconds() + 1e6, &index));
  const Socket listener = listen_at(good);
  CHECK(connect_to_any({no_family, good}, steady_seconds() + 1e6, &index));
  CHECK(index == 1);
}

TEST_CASE("tensors are not for this group") {
  meet(
      2, [](TcpOptions&) {},
      [](TcpGroup& group) {
        std::byte byte = {};
        CHECK_THROWS_AS(group.make_exchange({}, {}), RuntimeFailure);
        CHECK_THROWS_WITH_AS(
            group.make_all_reduce(Reduction::kSum, DType::kFloat32, &byte, 0, {0, 1}),
            doctest::Contains("by NCCL"), RuntimeFailure);
        group.all_gather("");
      });
}

TEST_CASE("who does not come is named everywhere") {
  const auto problems = meet(
      4,
      [](TcpOptions& options) {
        options.join_seconds = 1;
        if (options.rank == 1 || options.rank == 2) {
          throw InternalError("it does not come");
        }
      },
      [](TcpGroup&) {});
  CHECK(contains(problems[0], "error[E612]: waited 1 s for ranks 1, 2 of 4 to connect"));
  CHECK(problems[3] == problems[0]);
}

TEST_CASE("without rank 0 the others say where they looked") {
  const auto problems = meet(
      2,
      [](TcpOptions& options) {
        options.join_seconds = 0.2;
        if (options.rank == 0) {
          throw InternalError("it does not come");
        }
      },
      [](TcpGroup&) {});
  CHECK(contains(problems[1], "error[E612]: rank 1 waited 0.2 s: rank 0 did not answer at 127."));
}

TEST_CASE("a rank that connects twice is an error on all") {
  const auto problems = meet(
      3, [](TcpOptions& options) { options.rank = options.rank == 2 ? 1 : options.rank; },
      [](TcpGroup&) {});
  for (const std::string& problem : problems) {
    CHECK(contains(problem, "error[E612]: rank 1 came twice, from 127.0.0.1 and from 127.0.0.1"));
  }
}

TEST_CASE("two that believe to be rank 0 do not both get the port") {
  const auto problems = meet(
      2,
      [](TcpOptions& options) {
        options.rank = 0;
        options.join_seconds = 1;
      },
      [](TcpGroup&) {});
  const std::string all = problems[0] + problems[1];
  CHECK(contains(all, "error[E613]: rank 0 cannot wait for the others at 127."));
  CHECK(contains(all, "Address already in use"));
  CHECK(contains(all, "waited 1 s for rank 1 of 2 to connect"));
}

TEST_CASE("world sizes that differ are an error on all") {
  const auto problems = meet(
      2, [](TcpOptions& options) { options.size = options.rank == 1 ? 8 : 2; }, [](TcpGroup&) {});
  for (const std::string& problem : problems) {
    CHECK(contains(problem,
                   "rank 1 (from 127.0.0.1) says that there are 8 ranks, rank 0 that there are 2"));
  }
}

TEST_CASE("a process of another job is a stranger") {
  std::string warning;
  const auto problems = meet(
      2,
      [&](TcpOptions& options) {
        options.join_seconds = options.rank == 0 ? 1 : 0.5;  // it finds rank 0 as long as it looks
        options.print = [&](std::string_view text) { warning += text; };
        if (options.rank == 1) {
          options.token = token_of("another");
        }
      },
      [](TcpGroup&) {});
  CHECK(contains(problems[1], "is not rank 0 of this run"));
  CHECK(contains(problems[0], "waited 1 s for rank 1 of 2 to connect; dropped "));
  CHECK(contains(warning, "warning[W612]"));
}

TEST_CASE("a port that something else has is passed where another may be used") {
  const int port = next_port();
  std::string error;
  const Socket taken = listen_at(resolve(own_address(), port, &error)[0]);
  REQUIRE(taken);
  std::atomic<bool> stop{false};
  std::thread other_program([&] {
    Address from;
    while (!stop) {
      accept_from(taken, &from).close();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (const int more : {0, 3}) {
    std::vector<std::string> problems(2);
    std::vector<std::thread> threads;
    for (const int rank : {0, 1}) {
      threads.emplace_back([&, rank] {
        TcpOptions options = options_of(rank, 2, port);
        options.more_ports = more;
        options.join_seconds = more == 0 ? 0.2 : 30;
        try {
          const auto texts = TcpGroup(options).all_gather("x");
          CHECK(texts.size() == 2);
        } catch (const ConfigError& problem) {
          problems[static_cast<size_t>(rank)] = problem.what();
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(contains(problems[0], "E613") == (more == 0));
    CHECK((problems[1] != "") == (more == 0));
  }
  stop = true;
  other_program.join();
}

TEST_CASE("a name that does not resolve is said to be so") {
  TcpOptions options = options_of(1, 2, 1);
  options.host = "no-such-host.invalid";
  options.join_seconds = 0.1;
  try {
    TcpGroup group(options);
    FAIL("it met somebody");
  } catch (const ConfigError& error) {
    CHECK(contains(error.what(), "E613"));
    CHECK(contains(error.what(), "no-such-host.invalid port 1 cannot be found"));
    CHECK(error.exit_code() == ExitCode::kRankLost);
  }
}

TEST_CASE("a rank that ends in between is said to be lost") {
  const auto problems = meet(
      3, [](TcpOptions&) {},
      [](TcpGroup& group) {
        if (group.rank() != 1) {
          group.all_gather("x");
        }
      });
  CHECK(contains(problems[0], "error[E601]: rank 1 ended"));
  CHECK(problems[1] == "");
  CHECK(contains(problems[2], "error[E601]: rank 0 ended"));
}

TEST_CASE("the environment gives the token and the port beside that of torchrun") {
  const auto read = [] { return TcpOptions::from_environment(1, 4, "h", 29400, false); };
  const TcpOptions plain = read();
  CHECK(plain.port == 29400);
  CHECK(plain.more_ports == 0);
  ::setenv("TORCHELASTIC_RUN_ID", "run-7", 1);
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  const TcpOptions torchrun = read();
  CHECK(torchrun.port == 29401);
  CHECK(torchrun.more_ports == 7);
  CHECK(torchrun.token != plain.token);
  ::setenv("MESHTRAIN_SOCKET", "", 1);  // a process that one of torchrun's has started
  CHECK(read().port == 29400);
  ::unsetenv("MESHTRAIN_SOCKET");
  ::setenv("MESHTRAIN_TOKEN", "0123", 1);
  const TcpOptions secret = read();
  CHECK(secret.token != torchrun.token);
  ::unsetenv("TORCHELASTIC_RUN_ID");
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  CHECK(read().token == secret.token);  // the job does not matter then
  ::unsetenv("MESHTRAIN_TOKEN");
  CHECK(random_token() != random_token());
}

TEST_CASE("more open files than the system allows are refused with the number") {
  CHECK_NOTHROW(allow_open_files(10));
  try {
    allow_open_files(2000000000);
    FAIL("allowed");
  } catch (const ConfigError& error) {
    CHECK(contains(error.what(), "error[E640]: `ulimit -n` allows "));
    CHECK(error.exit_code() == ExitCode::kMesh);
  }
}

TEST_CASE("without file descriptors left the rendezvous waits and does not spin") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::string error;
    size_t index = 0;
    std::vector<Socket> listeners;
    listeners.push_back(listen_at(any_address(0, false)));
    const Socket stranger =
        connect_to_any(resolve("127.0.0.1", local_address(listeners[0]).port(), &error),
                       steady_seconds() + 30, &index);
    const rlimit few = {64, 64};
    ::setrlimit(RLIMIT_NOFILE, &few);
    while (::dup(listeners[0].fd()) >= 0) {
    }
    const clock_t before = std::clock();
    bool waited = false;
    try {
      accept_ranks(listeners, random_token(), 2, 1, [](std::string_view) {});
    } catch (const ConfigError& refused) {
      waited = contains(refused.what(), "waited 1 s for rank 1 of 2 to connect");
    }
    ::_exit(waited && stranger && std::clock() - before < CLOCKS_PER_SEC / 4 ? 0 : 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("what does not start in time ends with what it was") {
  std::string printed;
  std::promise<int> code;
  {
    TimeLimit limit(
        0.05, "the start of MPI", [&](std::string_view text) { printed += text; },
        [&](int exit_code) { code.set_value(exit_code); });
    CHECK(code.get_future().get() == 8);
  }
  CHECK(printed == "error[E612]: the start of MPI took more than 0.05 s; nothing was started\n\n");
  bool ended = false;
  {
    TimeLimit limit(1000, "x", print_to_stderr, [&](int) { ended = true; });
  }
  CHECK_FALSE(ended);
}

}  // namespace
}  // namespace meshtrain::test
