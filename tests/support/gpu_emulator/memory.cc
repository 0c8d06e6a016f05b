#include "support/gpu_emulator/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace meshtrain::gpu {
namespace {

constexpr size_t kPage = 4096;
constexpr int64_t kAlignment = 256;
constexpr std::byte kUnwritten{0xFF};  // NaN in every format, and a large or negative number

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (const Blocks* blocks : {&blocks_, &freed_}) {
    for (const auto& [begin, block] : *blocks)
      ::munmap(block.mapped, block.mapped_bytes);
  }
}

std::byte* DeviceMemory::allocate(int64_t bytes) {
  const int64_t rounded = (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded > free_bytes())
    return nullptr;
  const size_t pages = (static_cast<size_t>(rounded) + kPage - 1) / kPage * kPage;
  Block block{rounded, nullptr, pages + 2 * kPage};
  void* mapped = ::mmap(nullptr, block.mapped_bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    return nullptr;
  block.mapped = static_cast<std::byte*>(mapped);
  if (::mprotect(block.mapped + kPage, pages, PROT_READ | PROT_WRITE) != 0) {
    ::munmap(mapped, block.mapped_bytes);
    return nullptr;
  }
  std::byte* begin = block.mapped + kPage + pages - rounded;  // ends where the last page begins
  blocks_.emplace(begin, block);
  used_bytes_ += rounded;
  return begin;
}

bool DeviceMemory::free(std::byte* memory) {
  const auto found = blocks_.find(memory);
  if (found == blocks_.end())
    return false;
  const Block& block = found->second;
  ::mmap(block.mapped, block.mapped_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  used_bytes_ -= block.bytes;
  freed_.insert(blocks_.extract(found));
  return true;
}

bool DeviceMemory::contains(const std::byte* begin, const std::byte* end) const {
  return begin >= end || find(blocks_, begin, end);
}

bool DeviceMemory::find(const Blocks& blocks, const std::byte* begin, const std::byte* end) {
  auto found = blocks.upper_bound(const_cast<std::byte*>(begin));
  if (found == blocks.begin())
    return false;
  --found;
  return end <= found->first + found->second.bytes;
}

namespace {

// The places where the number of covering ranges changes, summed: sorted, not overlapping.
struct Cover {
  std::vector<std::pair<std::byte*, std::byte*>> ranges;

  explicit Cover(const std::vector<Access>& accesses, bool writes_only) {
    for (const Access& access : accesses) {
      if (access.begin < access.end && (access.is_write || !writes_only)) {
        ranges.emplace_back(const_cast<std::byte*>(access.begin),
                            const_cast<std::byte*>(access.end));
      }
    }
    std::sort(ranges.begin(), ranges.end());
    size_t kept = 0;
    for (const auto& range : ranges) {
      if (kept > 0 && range.first <= ranges[kept - 1].second) {
        ranges[kept - 1].second = std::max(ranges[kept - 1].second, range.second);
      } else {
        ranges[kept++] = range;
      }
    }
    ranges.resize(kept);
  }

  // Calls uncovered(begin, end) for every part of [begin, end) outside of the ranges.
  template <class F>
  void gaps(std::byte* begin, std::byte* end, F&& uncovered) const {
    for (const auto& range : ranges) {
      if (range.second <= begin || begin >= end)
        continue;
      if (range.first >= end)
        break;
      if (range.first > begin)
        uncovered(begin, range.first);
      begin = range.second;
    }
    if (begin < end)
      uncovered(begin, end);
  }
};

}  // namespace

Watch::Watch(const DeviceMemory& memory, const std::vector<Access>& accesses) {
  const Cover touched(accesses, false), written(accesses, true);
  for (const auto& [begin, block] : memory.blocks()) {
    touched.gaps(begin, begin + block.bytes, [&](std::byte* from, std::byte* to) {
      ranges_.push_back({from, to, true});
    });
  }
  for (const auto& [begin, end] : touched.ranges) {
    written.gaps(begin, end, [&](std::byte* from, std::byte* to) {
      ranges_.push_back({from, to, false});
    });
  }
  for (const Range& range : ranges_) {
    kept_.insert(kept_.end(), range.begin, range.end);
    if (range.is_hidden)
      std::memset(range.begin, std::to_integer<int>(kUnwritten),
                  static_cast<size_t>(range.end - range.begin));
  }
}

std::string Watch::end() {
  std::string problem;
  const std::byte* kept = kept_.data();
  for (const Range& range : ranges_) {
    const auto size = range.end - range.begin;
    const std::byte* changed = range.end;
    if (range.is_hidden) {
      changed = std::find_if(range.begin, range.end, [](std::byte b) { return b != kUnwritten; });
      std::memcpy(range.begin, kept, static_cast<size_t>(size));
    } else if (std::memcmp(range.begin, kept, static_cast<size_t>(size)) != 0) {
      changed = std::mismatch(range.begin, range.end, kept).first;
    }
    if (changed != range.end && problem.empty()) {
      problem = fmt::format("writes at {}, {} bytes into a part of {} bytes that it {}",
                            static_cast<const void*>(changed), changed - range.begin, size,
                            range.is_hidden ? "does not name" : "only reads");
    }
    kept += size;
  }
  return problem;
}

}  // namespace meshtrain::gpu
