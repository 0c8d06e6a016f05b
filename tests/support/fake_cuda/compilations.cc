// Compilations that tests hold or refuse: what runs beside what shows without a clock.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "support/fake_cuda/control.h"
#include "support/fake_cuda/state.h"

namespace meshtrain::fake_cuda {
namespace {

struct Compilations {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t begun = 0;
  int64_t awaited = 0;  // of `begun`
  std::string held, refused;
};

// Never destroyed, as state().
Compilations& compilations() {
  static Compilations* const made = new Compilations;
  return *made;
}

bool has(const std::string& text, const std::string& word) {
  return !word.empty() && text.find(word) != std::string::npos;
}

}  // namespace

void hold_compilations(int together) {
  Compilations& all = compilations();
  const std::lock_guard lock(all.mutex);
  all.awaited = together == 0 ? 0 : all.begun + together;
  all.changed.notify_all();
}

void hold_compilation_of(const std::string& word) {
  Compilations& all = compilations();
  const std::lock_guard lock(all.mutex);
  all.held = word;
  all.changed.notify_all();
}

void refuse_compilation_of(const std::string& word) {
  Compilations& all = compilations();
  const std::lock_guard lock(all.mutex);
  all.refused = word;
}

int64_t num_compilations() {
  Compilations& all = compilations();
  const std::lock_guard lock(all.mutex);
  return all.begun;
}

bool begin_compilation(const std::string& text) {
  constexpr auto kLongest = std::chrono::seconds(30);
  Compilations& all = compilations();
  std::unique_lock lock(all.mutex);
  ++all.begun;
  all.changed.notify_all();
  const bool is_free = all.changed.wait_for(
      lock, kLongest, [&] { return all.begun >= all.awaited && !has(text, all.held); });
  const bool is_refused = has(text, all.refused);
  lock.unlock();
  if (!is_free) {
    const std::lock_guard state_lock(state().mutex);
    add_problem("a compilation waits for another that does not begin beside it");
  }
  return is_refused;
}

}  // namespace meshtrain::fake_cuda
