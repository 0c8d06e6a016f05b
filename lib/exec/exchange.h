// Exchange: the transfers between processes at one point of a program, packed into one message per
// pair of processes. Sender and receiver add the parts of a message in the same order.
#pragma once

#include <map>
#include <vector>

#include "backend/kernel_spec.h"

namespace meshtrain {

class Exchange {
 public:
  // Sends `part` of this process's memory to `peer`.
  void send(int peer, const View& part);

  // Where a part from `peer` is received.
  struct Slot {
    int peer = 0;
    int64_t offset = 0;
  };
  // `direct`: receive in place there, when `peer` sends nothing else; null: anywhere.
  Slot receive(int peer, int64_t bytes, std::byte* direct = nullptr);

  // Some process communicates here: this one must take part, so that all count exchanges alike.
  void expect() { is_expected_ = true; }
  bool is_expected() const { return is_expected_ || !sends_.empty() || !receives_.empty(); }

  // Adds the kernels that pack and exchange; none when no process communicates.
  void make(KernelSpecs& specs);
  // Where the slot was received; call after make().
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
