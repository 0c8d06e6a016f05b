// How the heartbeat monitor comes about: strangers at its port, ranks that do not come, and what is
// no message.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "base/diagnostic.h"
#include "base/host.h"
#include "base/text.h"
#include "comm/heartbeat_monitor.h"
#include "comm/monitor_frames.h"
#include "comm/rendezvous.h"
#include "comm/socket.h"
#include "control_ranks.h"

namespace meshtrain::test {
namespace {

using Codes = std::vector<int>;

// Where rank 0 says that it listens: "127.0.0.1 port 4000" in the line after the number of the run.
Address place_in(const std::string& text) {
  const std::vector<std::string> words = split(split(text, '\n').at(1), ' ');
  std::string error;
  return resolve(words.at(0), std::atoi(words.at(2).c_str()), &error).at(0);
}

// Shows the place of rank 0, and lets `before` meet it before the others come.
class Held : public ProcessGroup {
 public:
  Held(ProcessGroup& group, std::function<void(const std::string& host, int port)> before)
      : group_(group), before_(std::move(before)) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  int local_rank() const override { return group_.local_rank(); }
  int local_size() const override { return group_.local_size(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    std::vector<std::string> texts = group_.all_gather(mine);
    if (++calls_ == 2 && rank() != 0) {
      const Address place = place_in(texts[0]);
      before_(place.text(), place.port());
    }
    return texts;
  }
  std::unique_ptr<Transfer> make_exchange(std::vector<Message> s, std::vector<Message> r) override {
    return group_.make_exchange(std::move(s), std::move(r));
  }
  std::unique_ptr<Transfer> make_all_reduce(Reduction reduction, DType dtype, std::byte* data,
                                            int64_t n, const std::vector<int>& ranks) override {
    return group_.make_all_reduce(reduction, dtype, data, n, ranks);
  }

 private:
  ProcessGroup& group_;
  const std::function<void(const std::string&, int)> before_;
  int calls_ = 0;
};

Socket connect_as_stranger(const std::string& host, int port) {
  std::string error;
  size_t index = 0;
  return connect_to_any(resolve(host, port, &error), steady_seconds() + 30, &index);
}

// Whether the other end has closed it, waiting for that.
bool was_dropped(const Socket& socket) {
  char byte = 0;
  return !receive_all(socket, {&byte, 1}, steady_seconds() + 30);
}

TEST_CASE("strangers at the port are dropped and counted and reported once") {
  std::mutex mutex;
  std::string printed;
  int port_after = 0;
  run_as_processes(2, [&](std::shared_ptr<ThreadGroup> group) {
    std::vector<Socket> slow;
    Held held(*group, [&](const std::string& host, int port) {
      port_after = port;
      CHECK(host == "127.0.0.1");               // one host: nobody else reaches it at all
      connect_as_stranger(host, port).close();  // a port scan
      const Socket garbage = connect_as_stranger(host, port);
      CHECK(send_all(garbage, std::string(100000, 'x'), steady_seconds() + 30));
      CHECK(was_dropped(garbage));
      const Socket web = connect_as_stranger(host, port);
      CHECK(send_all(web, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", steady_seconds() + 30));
      CHECK(was_dropped(web));
      for (int i = 0; i < 100; ++i) {  // these say nothing: more of them than are heard at once
        slow.push_back(connect_as_stranger(host, port));
        CHECK(send_all(slow.back(), "m", steady_seconds() + 30));
      }
      CHECK(was_dropped(slow[0]));
    });
    HeartbeatOptions options = test_options();
    options.print = [&](std::string_view text) {
      const std::lock_guard lock(mutex);
      printed += text;
    };
    HeartbeatMonitor monitor(held, options);
    CHECK(monitor.all_gather("k", "v") == std::vector<std::string>{"v", "v"});
    monitor.finish();
  });
  INFO(printed);
  CHECK(contains(printed, "warning[W612]: dropped "));
  CHECK(contains(printed, "that did not prove to know its secret, the first from 127.0.0.1"));
  CHECK(printed.find("warning") == printed.rfind("warning"));
  CHECK_FALSE(connect_as_stranger("127.0.0.1", port_after));  // closed as soon as all were there
}

TEST_CASE("a slow stranger has five seconds") {
  run_as_processes(2, [&](std::shared_ptr<ThreadGroup> group) {
    Held held(*group, [&](const std::string& host, int port) {
      const double start = steady_seconds();
      const Socket slow = connect_as_stranger(host, port);
      CHECK(send_all(slow, "mhtra", steady_seconds() + 30));
      CHECK(was_dropped(slow));
      CHECK(steady_seconds() - start > 4.5);
    });
    HeartbeatOptions options = test_options();
    options.print = [](std::string_view) {};
    HeartbeatMonitor monitor(held, options);
    monitor.finish();
  });
}

TEST_CASE("a rank that sends what is no message stops the run") {
  const auto frame = [](FrameKind kind) { return FrameWriter(kind); };
  const std::vector<std::string> wrong = {
      std::string(8, '\xff'),                         // longer than a message may be
      std::string(8, '\0'),                           // shorter than any
      frame(static_cast<FrameKind>(77)).done(),       // of no kind
      frame(FrameKind::kAllDone).done(),              // only rank 0 says so
      frame(FrameKind::kReport).put(1).done(),        // too short
      frame(FrameKind::kGather).put(~0u).done(),      // a key of 4 GiB
      frame(FrameKind::kFail).put(int16_t{3}).done()  // half a number
  };
  for (const std::string& bytes : wrong) {
    std::string printed;
    int left = -1;
    run_as_processes(2, [&](std::shared_ptr<ThreadGroup> group) {
      if (group->rank() == 0) {
        HeartbeatOptions options = test_options();
        options.print = [&](std::string_view text) { printed += text; };
        options.exit = [&](int code) { left = code; };
        HeartbeatMonitor monitor(*group, options);
        CHECK_THROWS_AS(wait_for_the_end(monitor), RuntimeFailure);
        return;
      }
      group->all_gather("false-host\n17\n" + host_id());
      const std::string place = group->all_gather("")[0];
      const Token token = derived_token({}, split(place, '\n').at(0));
      const auto find = [&](std::string*) { return std::vector<Address>{place_in(place)}; };
      const Socket link = join_rank_zero(find, "rank 0", token, 1, 2, 30);
      CHECK(send_all(link, bytes, steady_seconds() + 30));
      char byte = 0;
      while (receive_all(link, {&byte, 1}, steady_seconds() + 30)) {  // until it is closed
      }
    });
    INFO(printed);
    CHECK(left == 8);
    CHECK(contains(printed,
                   "error[E601]: rank 1 on host false-host (pid 17) sent what is no "
                   "message of this program; training stopped"));
  }
}

TEST_CASE("a rank that never connects is named") {
  HeartbeatOptions options = test_options();
  options.join_seconds = 1;
  std::string texts[3];
  run_as_processes(3, [&](std::shared_ptr<ThreadGroup> group) {
    Held held(*group, [&](const std::string&, int) {
      if (group->rank() == 2) {
        throw InternalError("it does not come");
      }
    });
    try {
      HeartbeatMonitor monitor(held, options);
    } catch (const ConfigError& error) {
      CHECK(error.exit_code() == ExitCode::kRankLost);
      texts[group->rank()] = error.what();
    } catch (const InternalError&) {
    }
  });
  CHECK(contains(texts[0], "error[E612]: waited 1 s for rank 2 of 3 to connect"));
  CHECK(texts[1] == texts[0]);
}

TEST_CASE("an interface that does not exist stops all ranks with the same message") {
  HeartbeatOptions options = test_options();
  options.interface = "no-such-interface";
  const auto rank_ends = run_ranks(2, options, [](HeartbeatMonitor&, ProcessGroup&) {});
  CHECK(exit_codes(rank_ends) == Codes{8, 8});
  CHECK(contains(rank_ends[0].printed, "error[E613]: interface `no-such-interface`"));
  CHECK(rank_ends[1].printed == rank_ends[0].printed);
}

}  // namespace
}  // namespace meshtrain::test
