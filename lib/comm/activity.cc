#include "comm/activity.h"

namespace meshtrain {

Activity::Values Activity::read() const {
  Values values;
  uint64_t done = 0;
  do {
    done = done_.load(std::memory_order_acquire);
    values.step = step_.load(std::memory_order_acquire);
    values.epoch = epoch_.load(std::memory_order_acquire);
    values.phase = phase_.load(std::memory_order_acquire);
    values.sequence = sequence_.load(std::memory_order_acquire);
    values.signature = signature_.load(std::memory_order_acquire);
    values.collective = collective_.load(std::memory_order_acquire);
    values.inside = inside_.load(std::memory_order_acquire);
    values.awaited = awaited_.load(std::memory_order_acquire);
    values.awaited_steps = awaited_steps_.load(std::memory_order_acquire);
    values.entries = entries_.load(std::memory_order_acquire);
    values.loss_step = loss_step_.load(std::memory_order_acquire);
    values.loss_hash = loss_hash_.load(std::memory_order_acquire);
  } while (begun_.load(std::memory_order_acquire) != done);
  values.changes = done;
  return values;
}

}  // namespace meshtrain
