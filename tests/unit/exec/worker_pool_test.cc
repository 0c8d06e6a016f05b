#include "exec/worker_pool.h"

#include <doctest/doctest.h>
#include <immintrin.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/isolate.h"

namespace meshtrain {
namespace {

struct Counters {
  WorkerPool* pool;
  std::array<std::atomic<int>, 64> calls{};
  std::array<int, 64> values{};
  std::atomic<int> wrong{0};
};

// Every worker writes its number, waits, and reads its neighbour's.
void pass_around(void* context, int worker) {
  Counters& c = *static_cast<Counters*>(context);
  const int n = c.pool->size();
  for (int round = 0; round < 20; ++round) {
    c.values[static_cast<size_t>(worker)] = round * 100 + worker;
    c.pool->barrier();
    const int next = (worker + 1) % n;
    if (c.values[static_cast<size_t>(next)] != round * 100 + next)
      ++c.wrong;
    c.pool->barrier();
  }
  ++c.calls[static_cast<size_t>(worker)];
}

void check_pool(int workers, int runs) {
  WorkerPool pool(workers);
  Counters counters;
  counters.pool = &pool;
  for (int run = 0; run < runs; ++run)
    pool.run(pass_around, &counters);
  CHECK(counters.wrong == 0);
  for (int w = 0; w < pool.size(); ++w)
    CHECK(counters.calls[static_cast<size_t>(w)] == runs);
}

TEST_CASE("workers meet at every barrier") {
  for (int workers : {0, 1, 2, 3})
    check_pool(workers, 50);
}

TEST_CASE("many more workers than processors still finish") {
  check_pool(17, 5);
}

TEST_CASE("workers wake up again after they went to sleep") {
  WorkerPool pool(2);
  Counters counters;
  counters.pool = &pool;
  for (int run = 0; run < 5; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool.run(pass_around, &counters);
  }
  CHECK(counters.wrong == 0);
  CHECK(counters.calls[1] == 5);
}

TEST_CASE("an idle pool takes no processor time") {
  WorkerPool pool(0);
  Counters counters;
  counters.pool = &pool;
  pool.run(pass_around, &counters);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(used() - before < 0.05);
}

// A thread that is still starting may hold a lock of the allocator, which a child would inherit.
TEST_CASE("a child that is forked behind a new pool can take memory") {
  for (int i = 0; i < 50; ++i) {
    WorkerPool pool(32);
    IsolatedProcess child({}, [](const IsolatedProcess::Send& send) {
      alarm(20);
      for (size_t size = 8; size < 100000; size += size / 4) {
        for (int block = 0; block < 64; ++block) {
          const std::unique_ptr<char[]> memory(new char[size]);
          if (!send(memory.get(), 0))
            return;
        }
      }
    });
    REQUIRE(child.finish() == "");
  }
}

TEST_CASE("where the system gives no more threads fewer workers do the work") {
  IsolatedProcess child({}, [](const IsolatedProcess::Send& send) {
    const rlimit one = {1, 1};
    if ((geteuid() == 0 && setuid(65534) != 0) || setrlimit(RLIMIT_NPROC, &one) != 0)
      return;
    WorkerPool pool(4);
    std::atomic<int> calls = 0;
    pool.run([](void* context, int) { ++*static_cast<std::atomic<int>*>(context); }, &calls);
    send(pool.size() == 1 && calls == 1 ? "=" : "!", 1);
  });
  char got = 0;
  CHECK(child.receive(&got, 1));
  CHECK(got == '=');
  CHECK(child.finish() == "");
}

TEST_CASE("the caller keeps its floating-point mode, also behind a job that throws") {
  WorkerPool pool(1);
  const unsigned before = _mm_getcsr();
  const auto throws = [](void* mode, int) {
    *static_cast<unsigned*>(mode) = _mm_getcsr();
    throw std::runtime_error("a kernel fails");
  };
  unsigned inside = before;
  CHECK_THROWS_AS(pool.run_alone(throws, &inside), std::runtime_error);
  CHECK(inside != before);  // small numbers are flushed to zero
  CHECK(_mm_getcsr() == before);
}

TEST_CASE("the caller keeps its processors") {
  cpu_set_t before, after;
  sched_getaffinity(0, sizeof(before), &before);
  check_pool(0, 20);
  sched_getaffinity(0, sizeof(after), &after);
  CHECK(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace meshtrain
