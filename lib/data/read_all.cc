#include "data/read_all.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/system_calls.h"
#include "data/checks.h"

namespace meshtrain {
namespace {

// Reads rows [begin, end); returns what is wrong with them.
Diagnostics problems_of_rows(const Rows& rows, int64_t begin, int64_t end) {
  Diagnostics problems;
  try {
    rows.read_range(begin, end);
  } catch (const ConfigError& error) {
    problems = error.diagnostics();
  }
  return problems;
}

// Reads each row on its own, on all cores; returns the problems in the order of the rows.
Diagnostics problems_of_each(const Rows& rows) {
  std::vector<Diagnostics> problems(static_cast<size_t>(rows.size()));
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // of another kind: the first one ends the reading
  const auto work = [&] {
    try {
      for (int64_t i = next++; i < rows.size() && !failed; i = next++) {
        problems[static_cast<size_t>(i)] = problems_of_rows(rows, i, i + 1);
      }
    } catch (...) {
      if (!failed.exchange(true)) {
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> threads;
  const int64_t count = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 64);
  for (int64_t i = 1; i < std::min(count, rows.size()); ++i) {
    threads.push_back(quiet_thread(work));
  }
  work();
  threads.clear();  // waits for them
  if (failure) {
    std::rethrow_exception(failure);
  }
  Diagnostics all;
  for (const Diagnostics& problem : problems) {
    all.append(problem);
  }
  return all;
}

Diagnostics first_problem(const Rows& rows) {
  Diagnostics problems;
  try {
    rows.for_each_block([](int64_t, const HostTensor&) {});
  } catch (const ConfigError& error) {
    problems = error.diagnostics();
  }
  return problems;
}

void append_new(Diagnostics& all, const Diagnostics& more) {
  for (const Diagnostic& problem : more.list()) {
    const auto is_same = [&](const Diagnostic& known) {
      return known.code == problem.code && known.message == problem.message;
    };
    if (std::none_of(all.list().begin(), all.list().end(), is_same)) {
      all.error(problem.code, problem.loc, problem.message) = problem;
    }
  }
}

}  // namespace

Diagnostics read_all_rows(const Dataset& dataset) {
  Diagnostics problems;
  for (const std::vector<Dataset::Array>* arrays : {&dataset.inputs, &dataset.targets}) {
    for (const Dataset::Array& array : *arrays) {
      if (!is_checked_ahead(*array.rows)) {
        append_new(problems,
                   dataset.files ? problems_of_each(*array.rows) : first_problem(*array.rows));
      }
    }
  }
  if (dataset.sample_weight && !is_checked_ahead(*dataset.sample_weight)) {
    append_new(problems, first_problem(*dataset.sample_weight));
  }
  return problems;
}

}  // namespace meshtrain
