// Exchange: what goes between processes at one point of a program, packed into one message per pair
// of processes. Both ends add the parts of a message in the same order.
#pragma once

#include <map>
#include <vector>

#include "backend/kernel_spec.h"

namespace meshtrain {

class Exchange {
 public:
  // `part` of this process's memory for `peer`.
  void send(int peer, const View& part);

  // Where a part that comes from `peer` will be.
  struct Slot {
    int peer = 0;
    int64_t offset = 0;
  };
  // `direct`: where it may arrive at once if nothing else comes from there; null: anywhere.
  Slot receive(int peer, int64_t bytes, std::byte* direct = nullptr);

  // Some process sends something here, if not this one: all take part, so that all count alike.
  void expect() { is_expected_ = true; }
  bool is_expected() const { return is_expected_ || !sends_.empty() || !receives_.empty(); }

  // Makes the kernels that pack and exchange; nothing where no process sends anything.
  void make(KernelSpecs& specs);
  // After make().
  std::byte* address(const Slot& slot) const { return receives_.at(slot.peer).data + slot.offset; }

 private:
  struct Outgoing {
    std::vector<View> parts;
    int64_t bytes = 0;
  };
  struct Incoming {
    int64_t bytes = 0;
    int parts = 0;
    std::byte* direct = nullptr;
    std::byte* data = nullptr;
  };
  std::byte* pack(const Outgoing& outgoing, KernelSpecs& specs) const;

  std::map<int, Outgoing> sends_;
  std::map<int, Incoming> receives_;
  bool is_expected_ = false;
};

}  // namespace meshtrain
