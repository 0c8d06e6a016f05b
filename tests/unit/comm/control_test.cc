// The heartbeat monitor between ranks that are threads. control_process_test.cc has what only whole
// processes can do: being killed and stopped.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/host.h"
#include "comm/heartbeat_monitor.h"
#include "comm/socket.h"
#include "control_ranks.h"

namespace meshtrain::test {
namespace {

using Codes = std::vector<int>;

TEST_CASE("ranks that finish in order leave nothing to say") {
  const auto rank_ends = run_ranks(4, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    CHECK(monitor.size() == 4);
    for (int step = 1; step <= 100; ++step) {
      monitor.progress(step, 1, "forward");
      monitor.enter(17, "all-reduce");
      monitor.leave();
      monitor.loss(step, static_cast<uint64_t>(step) * 31);
    }
    monitor.finish();
    CHECK_FALSE(monitor.aborting());
  });
  for (const RankEnd& end : rank_ends) {
    CHECK(end.exit_code == -1);
    CHECK(end.printed == "");
  }
}

TEST_CASE("finish waits for the slowest rank") {
  std::atomic<int> arrived{0};
  run_ranks(3, test_options(), [&](HeartbeatMonitor& monitor, ProcessGroup& group) {
    group.all_gather("");
    if (monitor.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ++arrived;
    monitor.finish();
    CHECK(arrived == 3);
  });
}

TEST_CASE("a rank that fails takes all with its code and its text is shown once by rank 0") {
  const auto rank_ends = run_ranks(4, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    monitor.set_last_checkpoint(1250);
    if (monitor.rank() == 2) {
      monitor.fail(3, "error[E300]: no file `x.npy`\n\n");
    }
    wait_for_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{3, 3, 3, 3});
  CHECK(contains(rank_ends[0].printed, "error[E300]: no file `x.npy`\n  = on rank 2 on host "));
  CHECK(contains(rank_ends[0].printed, "; all 4 processes stopped\n"));
  CHECK(contains(rank_ends[0].printed, "last complete checkpoint: step 1250\n"));
  for (const int rank : {1, 2, 3}) {
    CHECK(rank_ends[static_cast<size_t>(rank)].printed == "");
  }
}

TEST_CASE("what is gathered comes to rank 0, and what rank 0 gives to all") {
  const std::string large(200'000, 'x');  // several frames
  const auto rank_ends =
      run_ranks(4, test_options(), [&](HeartbeatMonitor& monitor, ProcessGroup&) {
        for (int round = 0; round < 3; ++round) {
          const std::string mine = fmt::format("{} of {}", round, monitor.rank()) + large;
          const std::vector<std::string> all = monitor.gather("k", mine);
          CHECK(all.size() == 4);
          CHECK(all[0] == fmt::format("{} of 0", round) + large);
          for (size_t r = 1; r < 4; ++r) {
            const std::string given = fmt::format("{} of {}", round, r) + large;
            CHECK(all[r] == (monitor.rank() == 0 ? given : ""));
          }
          CHECK(monitor.all_gather("all", mine)[3] == fmt::format("{} of 3", round) + large);
        }
        monitor.finish();
      });
  CHECK(exit_codes(rank_ends) == Codes{-1, -1, -1, -1});
}

TEST_CASE("of two threads of a rank that fail one is heard") {
  const auto rank_ends = run_ranks(2, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    if (monitor.rank() == 0) {
      wait_for_the_end(monitor);
      return;
    }
    const auto fail = [&](const char* text) {
      CHECK_THROWS_AS(monitor.fail(5, text), RuntimeFailure);
    };
    std::thread other(fail, "error: one\n");
    fail("error: another\n");
    other.join();
  });
  CHECK(exit_codes(rank_ends) == Codes{5, 5});
  const std::string& text = rank_ends[0].printed;
  INFO(text);
  CHECK(contains(text, "  = on rank 1 on host "));
  CHECK(text.find("error") == text.rfind("error"));
}

TEST_CASE("what all ranks find wrong is shown as if one process had found it") {
  const auto rank_ends = run_ranks(3, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    monitor.fail(2, "error[E204]: 200 is not divisible by 3\n\n");
  });
  CHECK(exit_codes(rank_ends) == Codes{2, 2, 2});
  CHECK(rank_ends[0].printed == "error[E204]: 200 is not divisible by 3\n\n");
  CHECK(rank_ends[1].printed + rank_ends[2].printed == "");
}

TEST_CASE("all end with the code of a rank that failed by itself, not of one that lost it") {
  const auto rank_ends = run_ranks(3, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    if (monitor.rank() == 2) {
      monitor.fail(2, "error[E112]: `epochs` must be an integer\n");
    }
    monitor.fail(8, "error[E605]: rank 2 has gone\n");
  });
  CHECK(exit_codes(rank_ends) == Codes{2, 2, 2});
  CHECK(contains(rank_ends[0].printed, "error[E112]: `epochs` must be an integer\n"));
}

TEST_CASE("a failure of rank 0 itself reaches the others") {
  const auto rank_ends = run_ranks(3, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    if (monitor.rank() == 0) {
      monitor.fail(74, "error[E420]: disk full\n");
    }
    wait_for_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{74, 74, 74});
  CHECK(contains(rank_ends[0].printed, "  = on rank 0 on host "));
}

TEST_CASE("a rank that ends without a word is named and all others leave with 8") {
  const auto rank_ends =
      run_ranks(4, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup& group) {
        monitor.progress(1312, 2, "forward");
        monitor.enter(5, monitor.keep("all-reduce of bucket " + std::to_string(3)));
        monitor.set_last_checkpoint(1250);
        group.all_gather("");  // rank 0 has come as far before rank 2 ends
        if (monitor.rank() == 2) {
          return;  // without finish()
        }
        wait_for_the_end(monitor);
      });
  CHECK(exit_codes(rank_ends) == Codes{8, 8, -1, 8});
  const std::string& text = rank_ends[0].printed;
  INFO(text);
  CHECK(contains(text, "error[E601]: rank 2 on host "));
  CHECK(contains(text, fmt::format("(pid {}) ended without a word", ::getpid())));
  CHECK(contains(text, "last complete checkpoint: step 1250 (62 steps would be repeated)"));
  CHECK(contains(text, "to resume: the same command with --resume\n"));
  CHECK(rank_ends[1].printed + rank_ends[3].printed == "");
}

TEST_CASE("when rank 0 ends one of the others says so") {
  const auto rank_ends = run_ranks(4, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    if (monitor.rank() == 0) {
      return;
    }
    wait_for_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{-1, 8, 8, 8});
  const std::string all = rank_ends[1].printed + rank_ends[2].printed + rank_ends[3].printed;
  INFO(all);
  CHECK(contains(all, "error[E601]: rank 0 on host "));
  CHECK(all.find("error") == all.rfind("error"));
}

TEST_CASE("ranks in different collectives are recognised at once") {
  const auto rank_ends = run_ranks(4, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    monitor.enter(1, "all-gather of d1/kernel");
    monitor.leave();
    if (monitor.rank() == 3) {
      monitor.enter(7, "all-reduce of bucket 1");
    } else {
      monitor.enter(6, "all-reduce of bucket 0");
    }
    wait_for_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{8, 8, 8, 8});
  const std::string& text = rank_ends[0].printed;
  INFO(text);
  CHECK(contains(text, "error[E603]: rank 3 on host "));
  CHECK(contains(text, "= rank 3: all-reduce of bucket 1 (#2), step 0\n"));
  CHECK(contains(text, "= ranks 0-2: all-reduce of bucket 0 (#2), step 0\n"));
}

TEST_CASE("a rank that does not come to a collective is named with what it does instead") {
  HeartbeatOptions options = test_options();
  options.collective_seconds = 0.4;
  const auto rank_ends = run_ranks(3, options, [](HeartbeatMonitor& monitor, ProcessGroup&) {
    monitor.progress(9, 1, "data");
    monitor.enter(4, "all-reduce of bucket 0");
    monitor.leave();
    if (monitor.rank() != 1) {
      monitor.enter(4, "all-reduce of bucket 0");
    }
    be_busy_until_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{8, 8, 8});
  const std::string& text = rank_ends[0].printed;
  INFO(text);
  CHECK(contains(text, "error[E602]: rank 1 on host "));
  CHECK(contains(text, "did not come to all-reduce of bucket 0 (#2) within 0.4 s"));
  CHECK(contains(text,
                 "last report: step 9, data, after all-reduce of bucket 0 (#1) (2 other "
                 "ranks were waiting in all-reduce of bucket 0 (#2), rank 1 had not "
                 "entered)"));
}

TEST_CASE(
    "a rank that is stuck before what the others wait for is named and slow reading is none") {
  HeartbeatOptions options = test_options();
  options.collective_seconds = 3;  // longer than a busy machine lets a thread wait
  const auto rank_ends = run_ranks(3, options, [](HeartbeatMonitor& monitor, ProcessGroup& group) {
    monitor.progress(9, 1, "data");
    monitor.enter(0, "the steps on the GPUs");
    monitor.leave();
    // Many waits, each of them short, are no wait.
    const double until = steady_seconds() + 4.5;
    while (steady_seconds() < until && !monitor.aborting()) {
      monitor.wait_for("reading a variable", 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      monitor.leave();
    }
    CHECK_FALSE(monitor.aborting());
    group.all_gather("");
    if (monitor.rank() != 1) {
      monitor.wait_for("reading the results of steps", 4);
    }
    be_busy_until_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{8, 8, 8});
  const std::string& text = rank_ends[0].printed;
  INFO(text);
  CHECK(contains(text, "error[E602]: rank 1 on host "));
  CHECK(contains(text, "did not come to reading the results of steps (after #1) within 3 s"));
}

TEST_CASE("an announced phase is waited for as long as it said and no longer") {
  HeartbeatOptions options = test_options();
  options.collective_seconds = 0.2;
  const double start = steady_seconds();
  const auto rank_ends = run_ranks(2, options, [](HeartbeatMonitor& monitor, ProcessGroup& group) {
    if (monitor.rank() == 0) {
      group.all_gather("");  // the other has announced it
      monitor.enter(4, "all-reduce");
      be_busy_until_the_end(monitor);
    }
    const auto phase = monitor.announce("compiling the kernels", 1.5);
    group.all_gather("");
    be_busy_until_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{8, 8});
  CHECK(steady_seconds() - start > 1.5);
  INFO(rank_ends[0].printed);
  CHECK(contains(rank_ends[0].printed, "error[E602]: rank 1 on host "));
  CHECK(contains(rank_ends[0].printed, "takes more than 2 s for compiling the kernels"));
}

TEST_CASE("a rank that was excused or does one thing after the other may still come") {
  HeartbeatOptions options = test_options();
  options.collective_seconds = 3;  // longer than a busy machine lets a thread wait
  for (const bool announces : {true, false}) {
    const auto rank_ends =
        run_ranks(2, options, [&](HeartbeatMonitor& monitor, ProcessGroup& group) {
          group.all_gather("");
          if (monitor.rank() == 1) {
            std::optional<HeartbeatMonitor::Announcement> announced;
            if (announces) {
              announced.emplace(monitor.announce("compiling the kernels", 60));
            }
            for (int i = 0; i < 45; ++i) {
              if (!announces) {
                monitor.progress(1, 1, "data");
              }
              std::this_thread::sleep_for(std::chrono::milliseconds(100));
            }
            announced.reset();
            std::this_thread::sleep_for(std::chrono::milliseconds(500));  // several reports
          }
          monitor.enter(4, "all-reduce");
          group.all_gather("");
          monitor.leave();
          monitor.finish();
        });
    INFO(rank_ends[0].printed);
    CHECK(exit_codes(rank_ends) == Codes{-1, -1});
  }
}

TEST_CASE("a rank that does not give its text or does not finish is named") {
  HeartbeatOptions options = test_options();
  options.collective_seconds = 0.3;
  for (const bool at_end : {false, true}) {
    const auto rank_ends = run_ranks(3, options, [&](HeartbeatMonitor& monitor, ProcessGroup&) {
      if (monitor.rank() == 2) {
        be_busy_until_the_end(monitor);
      }
      if (at_end) {
        monitor.finish();
      } else {
        monitor.all_gather("checkpoint 500", "ok");
      }
    });
    CHECK(exit_codes(rank_ends) == Codes{8, 8, 8});
    INFO(rank_ends[0].printed);
    CHECK(contains(rank_ends[0].printed, "error[E602]: rank 2 on host "));
    CHECK(contains(rank_ends[0].printed, at_end ? "did not come to the end of the run within 0.3 s"
                                                : "did not come to `checkpoint 500` within 0.3 s"));
  }
}

TEST_CASE("different losses at one step stop the run") {
  const auto rank_ends =
      run_ranks(3, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup& g) {
        monitor.loss(12, 100);
        g.all_gather("");  // rank 0 has noted its own
        monitor.loss(13, monitor.rank() == 1 ? 7 : 8);
        wait_for_the_end(monitor);
      });
  CHECK(exit_codes(rank_ends) == Codes{8, 8, 8});
  INFO(rank_ends[0].printed);
  CHECK(contains(rank_ends[0].printed, "error[E604]: rank 1 on host "));
  CHECK(contains(rank_ends[0].printed, "another loss at step 13 than rank 0"));
}

TEST_CASE("texts come to all ranks by key from many threads") {
  constexpr int kThreads = 6, kRounds = 40;
  const auto rank_ends = run_ranks(3, test_options(), [](HeartbeatMonitor& monitor, ProcessGroup&) {
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const std::string key = fmt::format("key {}", t);
        for (int round = 0; round < kRounds; ++round) {
          const auto texts =
              monitor.all_gather(key, fmt::format("{}/{}/{}", monitor.rank(), t, round));
          for (int rank = 0; rank < 3; ++rank) {
            wrong += texts.size() != 3 ||
                     texts[static_cast<size_t>(rank)] != fmt::format("{}/{}/{}", rank, t, round);
          }
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(wrong == 0);
    monitor.finish();
  });
  CHECK(exit_codes(rank_ends) == Codes{-1, -1, -1});
}

TEST_CASE("texts longer than a message come whole beside short and empty ones") {
  const std::vector<size_t> sizes = {0, 1, 61439, 61440, 61441, 3000000};
  const auto rank_ends =
      run_ranks(3, test_options(), [&](HeartbeatMonitor& monitor, ProcessGroup&) {
        const auto text_of = [](int rank, size_t size) {
          std::string text(size, static_cast<char>('a' + rank));
          for (size_t i = 0; i < size; i += 997) {
            text[i] = static_cast<char>('A' + i % 26);
          }
          return text;
        };
        for (size_t i = 0; i < sizes.size(); ++i) {
          // Not the same size on all ranks.
          const auto size_of = [&](int rank) {
            return sizes[(i + static_cast<size_t>(rank)) % sizes.size()];
          };
          const auto texts =
              monitor.all_gather("report", text_of(monitor.rank(), size_of(monitor.rank())));
          for (int rank = 0; rank < 3; ++rank) {
            CHECK(texts[static_cast<size_t>(rank)] == text_of(rank, size_of(rank)));
          }
        }
        monitor.finish();
      });
  CHECK(exit_codes(rank_ends) == Codes{-1, -1, -1});
}

TEST_CASE("hooks run before the end newest first and those that are gone do not") {
  std::vector<std::string> ran[2];
  HeartbeatOptions options = test_options();
  const auto rank_ends = run_ranks(2, options, [&](HeartbeatMonitor& monitor, ProcessGroup& group) {
    auto& mine = ran[monitor.rank()];
    const auto first = monitor.on_abort([&] { mine.push_back("first"); });
    {
      const auto gone = monitor.on_abort([&] { mine.push_back("gone"); });
    }
    const auto last = monitor.on_abort([&] {
      // A checkpoint that all have written is still reported.
      mine.push_back(monitor.all_gather("report", "done")[1]);
    });
    group.all_gather("");
    if (monitor.rank() == 1) {
      monitor.fail(5, "error[E501]: loss is NaN\n");
    }
    wait_for_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{5, 5});
  CHECK(ran[0] == std::vector<std::string>{"done", "first"});
  CHECK(ran[1] == std::vector<std::string>{"done", "first"});
}

TEST_CASE("a hook that throws keeps neither the others nor the exit code from coming") {
  std::atomic<int> ran{0};
  const auto rank_ends =
      run_ranks(2, test_options(), [&](HeartbeatMonitor& monitor, ProcessGroup& g) {
        const auto first = monitor.on_abort([&] { ++ran; });
        const auto last = monitor.on_abort([] { throw InternalError("in a hook"); });
        g.all_gather("");
        monitor.fail(5, "error[E501]: loss is NaN\n");
      });
  CHECK(exit_codes(rank_ends) == Codes{5, 5});
  CHECK(ran == 2);
}

TEST_CASE("a hook that hangs does not keep a process") {
  HeartbeatOptions options = test_options();
  options.hook_seconds = 0.2;
  std::mutex mutex;
  std::condition_variable changed;
  int left = 0;
  const auto rank_ends = run_ranks(2, options, [&](HeartbeatMonitor& monitor, ProcessGroup& group) {
    const auto hook = monitor.on_abort([&] {
      if (monitor.rank() == 1) {  // until rank 0 has left
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return left > 0; });
      }
    });
    group.all_gather("");
    if (monitor.rank() == 0) {
      try {
        monitor.fail(8, "error\n");
      } catch (const RuntimeFailure&) {
        const std::lock_guard lock(mutex);
        ++left;
        changed.notify_all();
        throw;
      }
    }
    wait_for_the_end(monitor);
  });
  CHECK(exit_codes(rank_ends) == Codes{8, 8});
}

TEST_CASE("times come from the environment and nonsense is refused") {
  ::setenv("MESHTRAIN_HEARTBEAT_TIMEOUT", "2.5", 1);
  ::setenv("MESHTRAIN_COLLECTIVE_TIMEOUT", "7", 1);
  const HeartbeatOptions options = HeartbeatOptions::from_environment();
  CHECK(options.silence_seconds == 2.5);
  CHECK(options.collective_seconds == 7);
  CHECK(options.join_seconds == 60);
  for (const char* wrong : {"ten", "0", "-1", "nan", "1e99", "5s"}) {
    ::setenv("MESHTRAIN_HEARTBEAT_TIMEOUT", wrong, 1);
    CHECK_THROWS_AS(HeartbeatOptions::from_environment(), ConfigError);
  }
  ::unsetenv("MESHTRAIN_HEARTBEAT_TIMEOUT");
  ::unsetenv("MESHTRAIN_COLLECTIVE_TIMEOUT");
}

TEST_CASE("a reader of what a rank does sees values of one moment") {
  Activity activity;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !stop; ++i) {
      activity.change([&](Activity::Values& v) {
        v.sequence = i;
        v.signature = i * 3;
        v.step = static_cast<int64_t>(i * 7);
      });
    }
  });
  for (int i = 0; i < 100000; ++i) {
    const Activity::Values values = activity.read();
    CHECK_MESSAGE((values.signature == values.sequence * 3 &&
                   values.step == static_cast<int64_t>(values.sequence * 7)),
                  values.sequence);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace meshtrain::test
