// HashIndex: small integers (places in some list) found by the hash of what stands there. The
// caller keeps the things themselves and compares them; nothing here depends on the order of the
// table, so that results are the same in every run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace meshtrain {

class HashIndex {
 public:
  static constexpr int kAbsent = -1;

  explicit HashIndex(size_t expected = 0) {
    size_t slots = kLeastSlots;
    while (slots < 2 * expected) {
      slots *= 2;
    }
    slots_.resize(slots);
  }

  // An id that was added under `hash` and that `is_same(id)` accepts; kAbsent when there is none.
  template <class IsSame>
  int find(uint64_t hash, IsSame is_same) const {
    for (size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.id == kAbsent || (slot.hash == hash && is_same(slot.id))) {
        return slot.id;
      }
    }
  }

  void add(uint64_t hash, int id) {
    if (2 * ++size_ > slots_.size()) {
      grow();
    }
    place({hash, id});
  }

 private:
  static constexpr size_t kLeastSlots = 16;
  struct Slot {
    uint64_t hash = 0;
    int id = kAbsent;
  };

  size_t mask() const { return slots_.size() - 1; }

  void place(Slot slot) {
    size_t at = slot.hash & mask();
    while (slots_[at].id != kAbsent) {
      at = (at + 1) & mask();
    }
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
    for (const Slot& slot : old) {
      if (slot.id != kAbsent) {
        place(slot);
      }
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace meshtrain
