#include "support/gpu_emulator/block.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <numeric>

#include "backend/gpu/command.h"
#include "base/error.h"
#include "base/hash.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "the fibers of the emulator are written for x86-64, as the CPU backend is"
#endif

// void meshtrain_fiber_switch(void** from, void* to): keeps what the called function must keep on
// the own stack and the stack's pointer in *from, then continues where `to` was left.
asm(R"(
  .text
  .hidden meshtrain_fiber_switch
  .globl meshtrain_fiber_switch
  .type meshtrain_fiber_switch, @function
meshtrain_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size meshtrain_fiber_switch, . - meshtrain_fiber_switch
)");
extern "C" void meshtrain_fiber_switch(void** from, void* to);

namespace meshtrain::gpu {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMargin = 4096;        // of shared memory that is watched
constexpr size_t kStack = 64 << 10;       // of a thread
constexpr unsigned char kGarbage = 0xFF;  // NaN in every format

enum class State : uint8_t { kReady, kBarrier, kExchange, kDone };

// One at a time: modules know it by plain functions.
class Threads {
 public:
  static Threads& get() {
    static Threads threads;
    return threads;
  }

  std::string run(const Grid& grid, const std::vector<unsigned>& order) {
    grid_ = &grid;
    problem_.clear();
    *grid.module->barrier = &Threads::wait_barrier;
    *grid.module->exchange = &Threads::wait_exchange;
    if (!grid.has_barriers) {
      current_ = kThreads;
      for (unsigned t : order) {
        *grid.module->thread = {t, 0, 0};
        grid.kernel->run(grid.params);
      }
      return problem_;
    }
    for (unsigned t = 0; t < kThreads; ++t)
      begin(t);
    while (step(order)) {
    }
    return problem_;
  }

 private:
  struct Fiber {
    void* stack_pointer = nullptr;
    void* fake_stack = nullptr;  // of AddressSanitizer
    State state = State::kReady;
    bool odd = false;  // which of the two slots the next exchange uses
    std::array<unsigned long long, 2> slots{};
  };

  Threads() {
    void* memory = ::mmap(nullptr, kStack * kThreads, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MESHTRAIN_CHECK(memory != MAP_FAILED, "no memory for the stacks of {} threads", kThreads);
    stacks_ = static_cast<std::byte*>(memory);
  }

  std::byte* stack(unsigned t) const { return stacks_ + kStack * t; }

  // The thread begins at enter() when it is switched to: six registers, then where to return to.
  void begin(unsigned t) {
    Fiber& fiber = fibers_[t];
    fiber = {};
    void** top = reinterpret_cast<void**>(stack(t) + kStack) - 2;
    *top = reinterpret_cast<void*>(&Threads::enter);
    fiber.stack_pointer = top - 6;
    std::memset(fiber.stack_pointer, 0, 6 * sizeof(void*));
  }

  static void enter() {
    Threads& self = get();
    self.arrived(nullptr);
    self.grid_->kernel->run(self.grid_->params);
    self.fibers_[self.current_].state = State::kDone;
    self.leave();
  }

  // Back to the loop over threads.
  void leave() {
    Fiber& fiber = fibers_[current_];
#if defined(__SANITIZE_ADDRESS__)
    const bool ends = fiber.state == State::kDone;
    __sanitizer_start_switch_fiber(ends ? nullptr : &fiber.fake_stack, main_bottom_, main_size_);
#endif
    meshtrain_fiber_switch(&fiber.stack_pointer, main_pointer_);
    arrived(fiber.fake_stack);
  }

  void arrived([[maybe_unused]] void* fake_stack) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack, &main_bottom_, &main_size_);
#endif
  }

  void go_on(unsigned t) {
    current_ = t;
    *grid_->module->thread = {t, 0, 0};
#if defined(__SANITIZE_ADDRESS__)
    void* fake_stack = nullptr;
    __sanitizer_start_switch_fiber(&fake_stack, stack(t), kStack);
    meshtrain_fiber_switch(&main_pointer_, fibers_[t].stack_pointer);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#else
    meshtrain_fiber_switch(&main_pointer_, fibers_[t].stack_pointer);
#endif
  }

  // Every thread to where it waits or ends; then resumes those for whom all others have come.
  // False when nobody is left.
  bool step(const std::vector<unsigned>& order) {
    for (unsigned t : order) {
      if (fibers_[t].state == State::kReady)
        go_on(t);
    }
    bool is_any_ready = false;
    for (unsigned warp = 0; warp < kThreads; warp += kWarp) {
      if (all(warp, warp + kWarp, State::kExchange))
        is_any_ready = release(warp, warp + kWarp);
    }
    if (all(0, kThreads, State::kBarrier))
      is_any_ready = release(0, kThreads);
    if (!is_any_ready && !all(0, kThreads, State::kDone))
      problem_ = stuck();
    return is_any_ready;
  }

  bool all(unsigned begin, unsigned end, State state) const {
    return std::all_of(fibers_.begin() + begin, fibers_.begin() + end,
                       [state](const Fiber& fiber) { return fiber.state == state; });
  }

  bool release(unsigned begin, unsigned end) {
    for (unsigned t = begin; t < end; ++t)
      fibers_[t].state = State::kReady;
    return true;
  }

  std::string stuck() const {
    std::array<int, 4> counts{};
    for (const Fiber& fiber : fibers_)
      ++counts[static_cast<size_t>(fiber.state)];
    return fmt::format("{} threads wait at __syncthreads, {} in a shuffle, {} have ended",
                       counts[static_cast<size_t>(State::kBarrier)],
                       counts[static_cast<size_t>(State::kExchange)],
                       counts[static_cast<size_t>(State::kDone)]);
  }

  bool waits(State state) {
    if (current_ == kThreads) {
      problem_ = "has a barrier or a shuffle, but is said to have none";
      return false;
    }
    fibers_[current_].state = state;
    leave();
    return true;
  }

  static void wait_barrier() {
    get().waits(State::kBarrier);
  }

  // A lane may be one exchange ahead of one that has not read yet: two slots suffice.
  static unsigned long long wait_exchange(unsigned long long value, unsigned lane) {
    Threads& self = get();
    if (self.current_ == kThreads) {
      self.waits(State::kExchange);
      return value;
    }
    const unsigned own = self.current_;
    const size_t slot = self.fibers_[own].odd ? 1 : 0;
    self.fibers_[own].slots[slot] = value;
    self.fibers_[own].odd = slot == 0;
    self.waits(State::kExchange);
    return self.fibers_[own / kWarp * kWarp + lane % kWarp].slots[slot];
  }

  std::byte* stacks_ = nullptr;
  std::array<Fiber, kThreads> fibers_;
  const Grid* grid_ = nullptr;
  unsigned current_ = kThreads;  // kThreads: threads are no fibers
  void* main_pointer_ = nullptr;
  const void* main_bottom_ = nullptr;
  size_t main_size_ = 0;
  std::string problem_;
};

}  // namespace

std::vector<unsigned> order_of(unsigned n, uint64_t seed) {
  std::vector<unsigned> order(n);
  std::iota(order.begin(), order.end(), 0u);
  if (seed % 4 == 1) {
    std::reverse(order.begin(), order.end());
  } else if (seed != 0) {
    for (unsigned i = n; i-- > 1;)
      std::swap(order[i], order[hash_mix(seed, i) % (i + 1)]);
  }
  return order;
}

std::string run_grid(const Grid& grid) {
  static std::mutex one_at_a_time;  // devices of one process have threads of their own
  const std::lock_guard lock(one_at_a_time);
  const EmulatorModule& module = *grid.module;
  if (grid.shared_bytes > module.shared_bytes) {
    return fmt::format("asks for {} bytes of shared memory, of which there are {}",
                       grid.shared_bytes, module.shared_bytes);
  }
  *module.grid = {grid.blocks, 1, 1};
  unsigned char* margin = module.shared + grid.shared_bytes;
  if (module.shared_bytes > 0)
    std::memset(margin, kGarbage, kMargin);
  for (unsigned block : order_of(grid.blocks, grid.seed)) {
    *module.block = {block, 0, 0};
    if (grid.shared_bytes > 0)
      std::memset(module.shared, kGarbage, grid.shared_bytes);
    const uint64_t seed = grid.seed == 0 ? 0 : hash_mix(grid.seed, block);
    const std::string problem = Threads::get().run(grid, order_of(kThreads, seed));
    if (!problem.empty())
      return fmt::format("block {}: {}", block, problem);
  }
  const auto is_garbage = [](unsigned char byte) { return byte == kGarbage; };
  if (module.shared_bytes > 0 && !std::all_of(margin, margin + kMargin, is_garbage))
    return fmt::format("writes shared memory beyond its {} bytes", grid.shared_bytes);
  return "";
}

}  // namespace meshtrain::gpu
