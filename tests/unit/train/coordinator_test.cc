// What processes agree upon: errors, choices, clocks, the folder that all of them see.
#include "engine/coordinator.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <mutex>

#include "base/file.h"
#include "checkpoint/mirror.h"
#include "checkpoint/shared_folder.h"
#include "engine/signals.h"
#include "support/temp_folder.h"
#include "support/thread_group.h"

namespace meshtrain {
namespace {

using Group = std::shared_ptr<ThreadGroup>;

// What each rank's `body` threw, as it is shown, by rank; "" for none.
std::vector<std::string> thrown(int size, const std::function<void(Coordinator&)>& body) {
  std::vector<std::string> out(static_cast<size_t>(size));
  run_as_processes(size, [&](const Group& group) {
    Coordinator coordinator({group, nullptr}, [] { return 0.0; });
    std::string& text = out[static_cast<size_t>(group->rank())];
    try {
      body(coordinator);
    } catch (const ConfigError& error) {
      text =
          fmt::format("{} {}", static_cast<int>(error.exit_code()), error.diagnostics().render());
    } catch (const Error& error) {
      text = fmt::format("{} {}", static_cast<int>(error.exit_code()), error.what());
    }
  });
  return out;
}

// Set as long as it lives.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) {
      before_ = before;
    }
    ::setenv(name, value.c_str(), 1);
  }
  ~EnvironmentVariable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

SourceLoc some_place() {
  const auto file =
      std::make_shared<SourceFile>(SourceFile{"a.yaml", "one: 1\nfit: {epochs: x}\n"});
  return {file, 2, 7, 6};
}

TEST_CASE("what rank 0 throws all throw with the same message and code") {
  const auto errors = thrown(3, [](Coordinator& coordinator) {
    coordinator.on_rank_zero("a test", [] {
      Diagnostics diagnostics;
      diagnostics.error("E112", some_place(), "`epochs` must be an integer").help("write 3");
      throw ConfigError(diagnostics);
    });
  });
  CHECK(errors[0].find("a.yaml:2:7") != std::string::npos);
  CHECK(errors[0].find("fit: {epochs: x}") != std::string::npos);
  CHECK(errors[0].substr(0, 2) == "2 ");
  CHECK(errors[1] == errors[0]);
  CHECK(errors[2] == errors[0]);
}

TEST_CASE("results of rank 0 are broadcast and failures of any kind keep their exit code") {
  run_as_processes(2, [](const Group& group) {
    const Coordinator coordinator({group, nullptr}, [] { return 0.0; });
    CHECK(coordinator.broadcast("a test", [&] { return fmt::format("by {}", group->rank()); }) ==
          "by 0");
  });
  const auto errors = thrown(2, [](Coordinator& coordinator) {
    coordinator.on_rank_zero("a test",
                             [] { throw RuntimeFailure(ExitCode::kWriteFailed, "no space left"); });
  });
  CHECK(errors[0] == "74 no space left");
  CHECK(errors[1] == errors[0]);
}

TEST_CASE("where one fails alone all end with its name") {
  const auto errors = thrown(4, [](Coordinator& coordinator) {
    coordinator.on_all_ranks("a test", [&] {
      if (coordinator.rank() == 2) {
        throw ConfigError("E301", {}, "x.npy is no NumPy file");
      }
    });
  });
  for (const std::string& error : errors) {
    CHECK(error.find("3 error[E301]: rank 2: x.npy is no NumPy file") == 0);
  }
}

// Exit code and class of what `action` throws.
std::string thrown_by(const std::function<void()>& action) {
  const auto named = [](const Error& error, const std::string& name) {
    return fmt::format("{} {}", static_cast<int>(error.exit_code()), name);
  };
  try {
    action();
  } catch (const ConfigError& error) {
    return named(error, "ConfigError");
  } catch (const StopRequested& error) {
    return named(error, "StopRequested");
  } catch (const FileError& error) {
    return named(error, "FileError of " + error.path());
  } catch (const RuntimeFailure& error) {
    return named(error, "RuntimeFailure");
  } catch (const InternalError& error) {
    return named(error, "InternalError");
  } catch (const Error& error) {
    return named(error, "Error");
  }
  return "nothing";
}

TEST_CASE("an error of one process keeps its class and its exit code on all") {
  const std::pair<const char*, std::function<void()>> errors[] = {
      {"2 ConfigError", [] { throw ConfigError("E112", some_place(), "wrong"); }},
      {"130 StopRequested", [] { throw StopRequested(ExitCode::kInterrupted, "interrupted"); }},
      {"3 FileError of x", [] { throw FileError(ExitCode::kData, "cannot open", "x", ENOENT); }},
      {"74 RuntimeFailure", [] { throw RuntimeFailure(ExitCode::kWriteFailed, "no space"); }},
      {"1 InternalError", [] { throw InternalError("a broken invariant"); }},
      {"7 Error", [] { throw Error(ExitCode::kCheckFailed, "not equal"); }},
      {"4 Error", [] { throw std::bad_alloc(); }},
      {"1 Error", [] { throw std::out_of_range("no such key"); }}};
  for (const auto& [expected, fail] : errors) {
    run_as_processes(3, [&, &expected = expected, &fail = fail](const Group& group) {
      const Coordinator coordinator({group, nullptr}, [] { return 0.0; });
      const std::string own = thrown_by([&] {
        coordinator.on_all_ranks("a test", [&] {
          if (coordinator.rank() == 1) {
            fail();
          }
        });
      });
      CHECK(own == expected);
    });
  }
}

TEST_CASE("where all fail each has rank 0's error") {
  const auto errors = thrown(3, [](Coordinator& coordinator) {
    coordinator.on_all_ranks("a test", [&] {
      throw ConfigError("E301", {}, fmt::format("seen by {}", coordinator.rank()));
    });
  });
  for (const std::string& error : errors) {
    CHECK(error.find("3 error[E301]: seen by 0") == 0);
  }
}

TEST_CASE("a save has ended when it has on all and rank 0's clock counts") {
  run_as_processes(3, [](const Group& group) {
    double seconds = 10.0 * (group->rank() + 1);
    Coordinator coordinator({group, nullptr}, [&] { return seconds; });
    seconds += 5;
    CHECK(!coordinator.poll(Coordinator::Pace::kNow, group->rank() != 1));
    CHECK(coordinator.now() == 15);
    seconds += 1;
    CHECK(coordinator.now() == 15);  // until the next poll()
    CHECK(coordinator.poll(Coordinator::Pace::kNow, true));
    CHECK(coordinator.now() == 16);
  });
}

TEST_CASE("a signal to any process stops all at the same step") {
  catch_run_signals({});
  run_as_processes(2, [](const Group& group) {
    Coordinator coordinator({group, nullptr}, [] { return 0.0; });
    coordinator.poll(Coordinator::Pace::kNow);
    CHECK(coordinator.stop_signal() == 0);
    group->all_gather("");
    if (group->rank() == 1) {
      std::raise(SIGUSR1);  // the flag is this program's: both ranks have it
    }
    group->all_gather("");
    CHECK(coordinator.stop_signal() == 0);  // nobody acts before the next poll()
    coordinator.poll(Coordinator::Pace::kNow);
    CHECK(coordinator.stop_signal() == SIGUSR1);
    CHECK(coordinator.stop_saves());
    CHECK_THROWS_AS(coordinator.throw_if_stopped("step 3"), StopRequested);
  });
  forget_stop_signal();
}

TEST_CASE("short steps poll seldom and long ones each time") {
  run_as_processes(2, [](const Group& group) {
    double seconds = 0, last = 0;
    Coordinator coordinator({group, nullptr}, [&] { return seconds; });
    const auto looks_in = [&](int steps, double each) {
      int polls = 0;
      for (int i = 0; i < steps; ++i) {
        seconds += each;
        coordinator.poll();
        polls += coordinator.now() != last ? 1 : 0;
        last = coordinator.now();
      }
      return polls;
    };
    CHECK(looks_in(10, 1.0) == 10);
    const int short_ones = looks_in(10000, 0.001);  // 10 s
    CHECK(short_ones > 150);
    CHECK(short_ones < 250);
    looks_in(100, 1.0);
    CHECK(looks_in(10, 1.0) == 10);
  });
}

TEST_CASE("where a poll takes long there are fewer") {
  run_as_processes(2, [](const Group& group) {
    double seconds = 0, last = 0;
    Coordinator coordinator({group, nullptr}, [&] { return seconds += 0.004; });  // a poll takes
    int polls = 0;
    for (int i = 0; i < 1000; ++i) {
      seconds += 0.01;
      coordinator.poll();
      polls += coordinator.now() != last ? 1 : 0;
      last = coordinator.now();
    }
    CHECK(polls > 20);  // one in 0.4 s
    CHECK(polls < 40);
  });
}

TEST_CASE("values that should be the same and are not end all") {
  const auto errors = thrown(3, [](Coordinator& coordinator) {
    coordinator.poll(Coordinator::Pace::kNow, true, 77);
    coordinator.poll(Coordinator::Pace::kNow, true, coordinator.rank() == 2 ? 78 : 77);
  });
  for (const std::string& error : errors) {
    CHECK(error.find("5 error[E510]: the values of this epoch differ between rank 0 and rank 2") ==
          0);
  }
}

TEST_CASE("a folder that one process does not see is found before the first step") {
  const test::TempFolder shared, other;
  CHECK(thrown(3, [&](Coordinator& coordinator) {
          check_shared_folder(coordinator, shared.path());
        }) == std::vector<std::string>(3));
  CHECK(shared.num_files() == 0);
  const auto errors = thrown(3, [&](Coordinator& coordinator) {
    check_shared_folder(coordinator, (coordinator.rank() == 1 ? other : shared).path(), 0.2);
  });
  CHECK(errors[0].find("6 error[E452]") == 0);
  CHECK(errors[0].find("is not seen by rank 1\n") != std::string::npos);
  CHECK(errors[2] == errors[0]);
  CHECK(shared.num_files() == 0);
}

TEST_CASE("who does not see rank 0's checkpoint gets a copy for as long as it needs it") {
  const test::TempFolder shared, other, temporary;
  const EnvironmentVariable environment("TMPDIR", temporary.path());
  const std::string content(20'000'000, 'a');
  shared.write("a.h5", content);
  other.write("a.h5", std::string(20'000'000, 'x'));
  const auto path = [&](const Coordinator& coordinator) {
    return coordinator.rank() == 1   ? temporary.file("not-there/a.h5")
           : coordinator.rank() == 2 ? other.file("a.h5")
                                     : shared.file("a.h5");
  };
  CHECK(thrown(4, [&](Coordinator& coordinator) {
          {
            const Mirror copy(coordinator, path(coordinator), true);
            const bool is_blind = coordinator.rank() == 1 || coordinator.rank() == 2;
            CHECK(copy.path().find(temporary.path()) == (is_blind ? 0 : std::string::npos));
            CHECK((read_file(copy.path(), 1 << 30) == content));
            CHECK(temporary.num_files() == 1);  // ranks 1 and 2 share it
            coordinator.all_gather("", "");
          }
          coordinator.all_gather("", "");
          CHECK(temporary.num_files() == 0);
          const Mirror seen(coordinator, shared.file("a.h5"), true);
          CHECK(seen.path() == shared.file("a.h5"));
        }) == std::vector<std::string>(4));
  const auto errors = thrown(4, [&](Coordinator& coordinator) {
    const Mirror copy(coordinator, path(coordinator), false);
  });
  CHECK(errors[0].find("6 error[E457]: rank 1: does not see what rank 0 sees as") == 0);
  CHECK(errors[3] == errors[0]);
  CHECK(temporary.num_files() == 0);
}

TEST_CASE("a signal while a checkpoint is copied ends all and leaves nothing behind") {
  const test::TempFolder shared, temporary;
  const EnvironmentVariable environment("TMPDIR", temporary.path());
  shared.write("a.h5", std::string(100, 'a'));
  catch_stop_signals();
  std::raise(SIGTERM);
  const auto errors = thrown(2, [&](Coordinator& coordinator) {
    const Mirror copy(coordinator, shared.file(coordinator.rank() == 1 ? "b.h5" : "a.h5"), true);
  });
  forget_stop_signal();
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  for (const std::string& error : errors) {
    CHECK(error.find("143 terminated after the copying of a checkpoint") == 0);
  }
  CHECK(temporary.num_files() == 0);
}

TEST_CASE("a copy that cannot be written ends all and leaves nothing behind") {
  const test::TempFolder shared, temporary;
  shared.write("a.h5", std::string(100, 'a'));
  const auto errors_of = [&](const std::string& folder) {
    const EnvironmentVariable environment("TMPDIR", folder);
    return thrown(2, [&](Coordinator& coordinator) {
      const Mirror copy(coordinator, shared.file(coordinator.rank() == 1 ? "b.h5" : "a.h5"), true);
    });
  };
  for (const std::string& error : errors_of(temporary.file("not-there"))) {
    CHECK(error.find("74 rank 1: no folder for temporary files (TMPDIR)") == 0);
  }
  for (const std::string& error : errors_of("/proc")) {
    CHECK(error.find("74 rank 1: cannot create `/proc/meshtrain-") == 0);
  }
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {50, before.rlim_max};
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<std::string> too_large = errors_of(temporary.path());
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  for (const std::string& error : too_large) {
    CHECK(error.find("74 rank 1: cannot write `" + temporary.path()) == 0);
    CHECK(error.find("File too large") != std::string::npos);
  }
  CHECK(temporary.num_files() == 0);
  CHECK(errors_of(temporary.path()) == std::vector<std::string>(2));
  CHECK(temporary.num_files() == 0);
}

}  // namespace
}  // namespace meshtrain
