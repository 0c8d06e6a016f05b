#include "backend/gpu/lowering.h"

#include <algorithm>

namespace meshtrain::gpu {
namespace {

// Communications that may be under way before the memory that their step took besides is needed
// again: an earlier writer would wait for them.
constexpr int64_t kInFlight = 4;

}  // namespace

GpuLowering::GpuLowering(std::function<std::byte*(int64_t bytes)> allocate)
    : allocate_(std::move(allocate)) {}

void GpuLowering::lower(KernelSpecs specs) {
  for (KernelSpec& spec : specs)
    lower(std::move(spec));
}

void GpuLowering::lower(KernelSpec spec) {
  names_.resolve(spec);
  std::visit([this](const auto& one) { make(one); }, spec);
}

void GpuLowering::make(const StepSpec& spec) {
  path_ = spec.path;
  last_reads_ = spec.last_reads;
  names_.clear();
  for (Block& block : blocks_) {
    if (block.is_used && communicates_)
      block.free_at = communications_ + kInFlight;
    block.is_used = false;
  }
  communicates_ = false;
}

void GpuLowering::make(const ScratchSpec& spec) {
  names_.add(spec, scratch(spec.bytes));
}

// Commands say what they touch, and wait for nothing else.
void GpuLowering::make(const BeginGroup&) {}
void GpuLowering::make(const EndGroup&) {}

std::byte* GpuLowering::scratch(int64_t bytes) {
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

void GpuLowering::make(const ExchangeSpec& spec) {
  ExchangeSpec exchange;
  std::vector<Access> accesses;
  const auto add_all = [&](const std::vector<Message>& from, std::vector<Message>& to, bool write) {
    for (const Message& message : from) {
      if (message.bytes == 0)
        continue;
      to.push_back(message);
      accesses.push_back({message.data, message.data + message.bytes, write});
    }
  };
  add_all(spec.sends, exchange.sends, false);
  add_all(spec.receives, exchange.receives, true);
  if (!accesses.empty())
    add_communication(std::move(exchange), std::move(accesses));
}

void GpuLowering::make(const AllReduceSpec& spec) {
  if (spec.elements > 0 && spec.ranks.size() > 1)
    add_communication(spec, {{spec.data, spec.data + spec.bytes(), true}});
}

void GpuLowering::make(const AllGatherSpec& spec) {
  MESHTRAIN_CHECK(spec.ranks.size() > 1, "{}: an all-gather of one process", path_);
  if (spec.bytes > 0)
    add_communication(spec, {{spec.from, spec.from + spec.bytes, false},
                             {spec.to, spec.to + spec.whole_bytes(), true}});
}

void GpuLowering::make(const ReduceScatterSpec& spec) {
  MESHTRAIN_CHECK(spec.ranks.size() > 1, "{}: a reduce-scatter of one process", path_);
  if (spec.elements > 0)
    add_communication(spec, {{spec.from, spec.from + spec.whole_bytes(), false},
                             {spec.to, spec.to + spec.bytes(), true}});
}

template <class What>
void GpuLowering::add_communication(What what, std::vector<Access> accesses) {
  ++communications_;
  communicates_ = true;
  commands_.push_back({std::move(what), std::move(accesses), path_});
}

void GpuLowering::add(Launch launch, const std::vector<Use>& uses) {
  std::vector<Access> accesses;
  for (const Use& use : uses)
    accesses.push_back({use.data, use.data + use.bytes, use.is_write});
  add(std::move(launch), std::move(accesses));
}

void GpuLowering::add(Launch launch, std::vector<Access> accesses) {
  commands_.push_back({std::move(launch), std::move(accesses), path_});
}

}  // namespace meshtrain::gpu
