#include "exec/exchange.h"

namespace meshtrain {
void Exchange::send(int peer, const View& part) {
  Outgoing& to = sends_[peer];
  to.parts.push_back(part);
  to.bytes += part.num_bytes();
}

Exchange::Slot Exchange::receive(int peer, int64_t bytes, std::byte* direct) {
  Incoming& from = receives_[peer];
  const Slot slot{peer, from.bytes};
  from.direct = from.parts == 0 ? direct : nullptr;
  ++from.parts;
  from.bytes += bytes;
  return slot;
}

std::byte* Exchange::pack(const Outgoing& outgoing, KernelSpecs& specs) const {
  if (outgoing.parts.size() == 1 && is_contiguous(outgoing.parts[0]))
    return outgoing.parts[0].data;
  std::byte* const packed = add_scratch(specs, outgoing.bytes);
  std::byte* to = packed;
  for (const View& part : outgoing.parts) {
    specs.emplace_back(CopySpec{part, contiguous_view(to, part.dtype, part.shape)});
    to += part.num_bytes();
  }
  return packed;
}

void Exchange::make(KernelSpecs& specs) {
  if (!is_expected())
    return;
  std::vector<Message> sends, receives;
  specs.emplace_back(BeginGroup{});
  for (const auto& [peer, outgoing] : sends_)
    sends.push_back({peer, pack(outgoing, specs), outgoing.bytes});
  specs.emplace_back(EndGroup{});
  for (auto& [peer, incoming] : receives_) {
    incoming.data =
        incoming.direct != nullptr ? incoming.direct : add_scratch(specs, incoming.bytes);
    receives.push_back({peer, incoming.data, incoming.bytes});
  }
  specs.emplace_back(ExchangeSpec{sends, receives});
}

}  // namespace meshtrain
