#include "backend/gpu/command.h"

namespace meshtrain::gpu {

void Traffic::add(const Traffic& other, int64_t times) {
  exchanges += times * other.exchanges;
  gathers += times * other.gathers;
  bytes_sent += times * other.bytes_sent;
  bytes_reduced += times * other.bytes_reduced;
}

Traffic traffic_of(const std::vector<Command>& commands) {
  Traffic out;
  for (const Command& command : commands) {
    if (const auto* exchange = std::get_if<ExchangeSpec>(&command.what)) {
      ++out.exchanges;
      for (const Message& message : exchange->sends)
        out.bytes_sent += message.bytes;
    } else if (const auto* all_reduce = std::get_if<AllReduceSpec>(&command.what)) {
      out.bytes_reduced += all_reduce->bytes();
    } else if (const auto* all_gather = std::get_if<AllGatherSpec>(&command.what)) {
      ++out.gathers;
      out.bytes_sent += all_gather->whole_bytes() - all_gather->bytes;
    } else if (const auto* reduce_scatter = std::get_if<ReduceScatterSpec>(&command.what)) {
      ++out.gathers;
      out.bytes_sent += reduce_scatter->whole_bytes() - reduce_scatter->bytes();
    }
  }
  return out;
}

}  // namespace meshtrain::gpu
