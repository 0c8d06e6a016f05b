// Plans of the emulated device: joined commands, checked when they are made and while they run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "support/gpu_emulator/memory.h"
#include "support/gpu_emulator/module.h"

namespace meshtrain::gpu {

class Peers;

// How plans are run, from the environment at every run.
struct EmulatorOptions {
  // $MESHTRAIN_EMULATOR_SEED: 0 = calls, blocks and threads in their order; otherwise in an order
  // of its own for each number: calls in any order that `after` allows.
  uint64_t seed = 0;
  // $MESHTRAIN_EMULATOR_WATCHED_RUNS: in the first step of as many first runs of every plan, each
  // call finds garbage in all memory that it does not name, and what it writes where it must not is
  // an error; unless there is much memory.
  int watched_runs = 1;

  static EmulatorOptions from_environment();
};

// A plan's commands, for any steps of its windows. Where $MESHTRAIN_EPILOGUES is 0 when it
// is made, products have no epilogues, as with a library that offers none.
class Steps {
 public:
  // Throws InternalError where an access lies in no allocation, or where commands that touch the
  // same memory may run at the same time.
  Steps(const DeviceMemory& memory, const std::vector<Command>& commands,
        const std::vector<Window>& windows, bool use_tf32);
  // Throws InternalError naming the step of a call that did what it must not. `peers`: null where
  // commands do not communicate.
  void run(int step, bool is_watched, uint64_t seed, Peers* peers) const;
  const Traffic& traffic() const { return traffic_; }  // of one step

 private:
  void communicate(const Call& call, int64_t step, Peers& peers) const;
  void run_call(const Call& call, int64_t step, uint64_t seed) const;
  void watch_call(const Call& call, int64_t step, uint64_t seed) const;
  uint64_t moved(uint64_t address, int64_t step) const;
  template <class Byte>
  Byte* moved(Byte* address, int64_t step) const {
    return reinterpret_cast<Byte*>(moved(reinterpret_cast<uint64_t>(address), step));
  }

  const DeviceMemory& memory_;
  std::vector<std::vector<Access>> accesses_;  // of each command
  std::vector<Window> windows_;
  bool use_tf32_;
  std::vector<Call> calls_;
  std::shared_ptr<const Module> module_;
  Traffic traffic_;
};

}  // namespace meshtrain::gpu
