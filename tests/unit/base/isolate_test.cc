#include "base/isolate.h"

#include <doctest/doctest.h>

#include <csignal>

namespace meshtrain {
namespace {

TEST_CASE("signals that ask a whole group to stop leave the work of a child to its parent") {
  IsolatedProcess child({}, [](const IsolatedProcess::Send& send) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
      raise(number);
    send("x", 1);
  });
  char got = 0;
  CHECK(child.receive(&got, 1));
  CHECK(got == 'x');
  CHECK(child.finish() == "");
}

TEST_CASE("a child that crashes is distinguished from one that fails and one that is done") {
  const auto end_of = [](void (*body)()) {
    IsolatedProcess child({}, [body](const IsolatedProcess::Send&) { body(); });
    return child.finish();
  };
  CHECK(end_of([] {}) == "");
  CHECK(end_of([] { throw 1; }) == "the library failed on it");
  CHECK(end_of([] { raise(SIGSEGV); }) == "the library crashed on it (Segmentation fault)");
}

}  // namespace
}  // namespace meshtrain
