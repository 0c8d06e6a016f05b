#include "backend/gpu/dependencies.h"

#include <algorithm>

namespace meshtrain::gpu {

MemoryOrder::Ranges::iterator MemoryOrder::cut(const std::byte* at) {
  const auto next = ranges_.lower_bound(at);
  if (next == ranges_.begin())
    return next;
  const auto range = std::prev(next);
  if (range->second.end <= at)
    return next;
  Range tail = range->second;
  steps_ += static_cast<int64_t>(tail.readers.size());
  range->second.end = at;
  return ranges_.emplace_hint(next, at, std::move(tail));
}

void MemoryOrder::read(const Access& access, std::vector<int>& out) {
  auto range = cut(access.begin);
  cut(access.end);
  // Memory without an access becomes ranges without a writer.
  for (const std::byte* at = access.begin; at < access.end; ++steps_) {
    const bool is_known = range != ranges_.end() && range->first == at;
    if (!is_known) {
      const std::byte* end =
          range == ranges_.end() ? access.end : std::min(range->first, access.end);
      range = ranges_.emplace_hint(range, at, Range{end, -1, {}});
    }
    Range& found = range->second;
    if (found.writer >= 0 && found.writer != next_)
      out.push_back(found.writer);
    if (found.readers.empty() || found.readers.back() != next_)
      found.readers.push_back(next_);
    at = found.end;
    ++range;
  }
}

void MemoryOrder::write(const Access& access, std::vector<int>& out) {
  auto range = cut(access.begin);
  cut(access.end);
  while (range != ranges_.end() && range->first < access.end) {
    const Range& found = range->second;
    const auto is_other = [this](int command) { return command != next_; };
    const auto before = out.size();
    std::copy_if(found.readers.begin(), found.readers.end(), std::back_inserter(out), is_other);
    if (out.size() == before && found.writer >= 0 && is_other(found.writer))
      out.push_back(found.writer);
    steps_ += 1 + static_cast<int64_t>(found.readers.size());
    range = ranges_.erase(range);
  }
  ranges_.emplace_hint(range, access.begin, Range{access.end, next_, {}});
}

std::vector<int> MemoryOrder::add(const std::vector<Access>& accesses) {
  std::vector<int> out;
  for (const bool is_write : {false, true}) {
    for (const Access& access : accesses) {
      if (access.is_write == is_write && access.begin < access.end)
        is_write ? write(access, out) : read(access, out);
    }
  }
  ++next_;
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

int PathReduction::first_word(int node) {
  return std::max(node / kWord - kReach / kWord, 0);
}

std::vector<int> PathReduction::add(const std::vector<int>& after) {
  const int node = static_cast<int>(reached_.size()), base = first_word(node);
  std::vector<uint64_t> reached(static_cast<size_t>(node / kWord - base + 1));
  std::vector<int> kept;
  // From the latest: what is not reached by a later one is reached by none.
  for (size_t i = after.size(); i-- > 0;) {
    const int to = after[i], word = to / kWord - base;
    if (word >= 0 && (reached[static_cast<size_t>(word)] >> (to % kWord) & 1u) != 0)
      continue;
    kept.push_back(to);
    if (word < 0)
      continue;
    reached[static_cast<size_t>(word)] |= uint64_t{1} << (to % kWord);
    const std::vector<uint64_t>& from = reached_[static_cast<size_t>(to)];
    const int skipped = base - first_word(to);
    for (size_t w = static_cast<size_t>(skipped); w < from.size(); ++w)
      reached[w - static_cast<size_t>(skipped)] |= from[w];
  }
  // Nodes that no later one can look back to need no memory.
  if (node >= 2 * kReach)
    reached_[static_cast<size_t>(node - 2 * kReach)] = {};
  reached_.push_back(std::move(reached));
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace meshtrain::gpu
