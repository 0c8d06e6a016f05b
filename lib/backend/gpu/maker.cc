#include "backend/gpu/maker.h"

#include <algorithm>

namespace meshtrain::gpu {
namespace {

// Communications that may be under way before the memory that their step took besides is needed
// again: whoever writes to it earlier would wait for them.
constexpr int64_t kInFlight = 4;

}  // namespace

GpuMaker::GpuMaker(std::function<std::byte*(int64_t bytes)> allocate)
    : allocate_(std::move(allocate)) {}

void GpuMaker::begin_step(std::string_view path) {
  path_ = path;
  for (Block& block : blocks_) {
    if (block.is_used && communicates_)
      block.free_at = communications_ + kInFlight;
    block.is_used = false;
  }
  communicates_ = false;
}

std::byte* GpuMaker::scratch(int64_t bytes) {
  Block* best = nullptr;
  for (Block& block : blocks_) {
    const bool fits = !block.is_used && block.free_at <= communications_ && block.bytes >= bytes;
    if (fits && (best == nullptr || block.bytes < best->bytes))
      best = &block;
  }
  if (best == nullptr) {
    const int64_t size = std::max<int64_t>(bytes, 256);
    blocks_.push_back({allocate_(size), size, false, 0});
    best = &blocks_.back();
  }
  best->is_used = true;
  return best->memory;
}

void GpuMaker::exchange(const std::vector<Message>& sends, const std::vector<Message>& receives) {
  Exchange exchange;
  std::vector<Access> accesses;
  const auto add_all = [&](const std::vector<Message>& from, std::vector<Message>& to, bool write) {
    for (const Message& message : from) {
      if (message.bytes == 0)
        continue;
      to.push_back(message);
      accesses.push_back({message.data, message.data + message.bytes, write});
    }
  };
  add_all(sends, exchange.sends, false);
  add_all(receives, exchange.receives, true);
  if (!accesses.empty())
    add_communication(std::move(exchange), std::move(accesses));
}

void GpuMaker::all_reduce(Reduction reduction, DType dtype, std::byte* data, int64_t elements,
                          const std::vector<int>& ranks) {
  const AllReduce all_reduce{reduction, dtype, data, elements, ranks};
  if (elements > 0 && ranks.size() > 1)
    add_communication(all_reduce, {{data, data + all_reduce.bytes(), true}});
}

void GpuMaker::all_gather(const std::byte* from, std::byte* to, int64_t bytes,
                          const std::vector<int>& ranks) {
  MESHTRAIN_CHECK(ranks.size() > 1, "{}: an all-gather of one process", path_);
  const AllGather all_gather{from, to, bytes, ranks};
  if (bytes > 0)
    add_communication(all_gather,
                      {{from, from + bytes, false}, {to, to + all_gather.whole_bytes(), true}});
}

void GpuMaker::reduce_scatter(Reduction reduction, DType dtype, const std::byte* from,
                              std::byte* to, int64_t elements, const std::vector<int>& ranks) {
  MESHTRAIN_CHECK(ranks.size() > 1, "{}: a reduce-scatter of one process", path_);
  const ReduceScatter reduce_scatter{reduction, dtype, from, to, elements, ranks};
  if (elements > 0)
    add_communication(reduce_scatter, {{from, from + reduce_scatter.whole_bytes(), false},
                                       {to, to + reduce_scatter.bytes(), true}});
}

template <class What>
void GpuMaker::add_communication(What what, std::vector<Access> accesses) {
  ++communications_;
  communicates_ = true;
  commands_.push_back({std::move(what), std::move(accesses), path_});
}

void GpuMaker::add(Launch launch, const std::vector<Use>& uses) {
  std::vector<Access> accesses;
  for (const Use& use : uses)
    accesses.push_back({use.data, use.data + use.bytes, use.is_write});
  add(std::move(launch), std::move(accesses));
}

void GpuMaker::add(Launch launch, std::vector<Access> accesses) {
  commands_.push_back({std::move(launch), std::move(accesses), path_});
}

}  // namespace meshtrain::gpu
