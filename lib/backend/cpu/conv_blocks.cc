#include "backend/cpu/conv_blocks.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/conv_region.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kRun = 16;
constexpr double kBytesPerNanosecond = 8;

// Returns the offset of each index i of dimension d, padding included (the formula of oneDNN's
// guide, "Understanding Memory Formats": inner blocks from the last to the first, then the
// strides).
std::vector<int64_t> places_of(const dnnl_memory_desc_t& desc, int d) {
  const dnnl_blocking_desc_t& blocking = desc.format_desc.blocking;
  std::vector<int64_t> places(static_cast<size_t>(desc.padded_dims[d]));
  for (int64_t i = 0; i < desc.padded_dims[d]; ++i) {
    int64_t rest = i, step = 1;
    for (int b = blocking.inner_nblks; b-- > 0; step *= blocking.inner_blks[b]) {
      if (blocking.inner_idxs[b] != d)
        continue;
      places[i] += rest % blocking.inner_blks[b] * step;
      rest /= blocking.inner_blks[b];
    }
    places[i] += rest * blocking.strides[d];
  }
  return places;
}

struct Entry {
  int64_t index;  // plain, -1: padding
  int64_t place;
};

std::vector<KernelBlocks::Run> runs_of(const std::vector<Entry>& entries, int64_t longest) {
  std::vector<KernelBlocks::Run> runs;
  for (const Entry& e : entries) {
    if (!runs.empty()) {
      KernelBlocks::Run& last = runs.back();
      const bool goes_on = e.index < 0 || (last.used == last.size && last.used > 0 &&
                                           e.index == last.index + last.size);
      if (goes_on && last.size < longest && e.place == last.place + last.size) {
        ++last.size;
        last.used += e.index < 0 ? 0 : 1;
        continue;
      }
    }
    runs.push_back({e.index, e.index < 0 ? 0 : 1, e.place, 1});
  }
  return runs;
}

}  // namespace

KernelBlocks::KernelBlocks(const ConvShape& shape, const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& d = desc.data;
  MESHTRAIN_CHECK(d.format_kind == dnnl_blocked && d.offset0 == 0 && d.extra.flags == 0,
                  "a kernel that does not lie in blocks");
  bytes_ = static_cast<int64_t>(desc.get_size());
  row_ = shape.filters;
  cell_ = shape.channels / shape.groups * row_;
  int dim = 0;
  const int64_t of_group = shape.filters / shape.groups;
  const std::vector<int64_t> groups =
      shape.groups > 1 ? places_of(d, dim++) : std::vector<int64_t>{0};
  const std::vector<int64_t> group_filters = places_of(d, dim++), channels = places_of(d, dim++);
  std::vector<Entry> filter_entries, channel_entries;
  for (int64_t g = 0; g < static_cast<int64_t>(groups.size()); ++g) {
    for (int64_t f = 0; f < static_cast<int64_t>(group_filters.size()); ++f) {
      const bool is_real = g < shape.groups && f < of_group;
      filter_entries.push_back({is_real ? g * of_group + f : -1, groups[g] + group_filters[f]});
    }
  }
  for (int64_t c = 0; c < static_cast<int64_t>(channels.size()); ++c)
    channel_entries.push_back({c < shape.channels / shape.groups ? c : -1, channels[c]});
  filters_ = runs_of(filter_entries, kRun);
  channels_ = runs_of(channel_entries, kRun);
  along_filters_ = filters_[0].size >= channels_[0].size;
  (along_filters_ ? channels_ : filters_) =
      runs_of(along_filters_ ? channel_entries : filter_entries, 1);
  cells_ = {0};
  for (; dim < d.ndims; ++dim) {
    std::vector<int64_t> all;
    for (int64_t before : cells_) {
      for (int64_t place : places_of(d, dim))
        all.push_back(before + place);
    }
    cells_ = std::move(all);
  }
  block_ = along_filters_ ? kRun : 1;
  num_blocks_ = ceil_div(static_cast<int64_t>(channels_.size()), block_);
}

int64_t KernelBlocks::plain_bytes() const {
  return static_cast<int64_t>(cells_.size() * sizeof(float)) * cell_;
}

// move(plain offset, step from one element of the run to the next there, used elements, place,
// size of the run); the offset of padding means nothing.
template <class Move>
void KernelBlocks::for_runs(int64_t part, const Move& move) const {
  const size_t cell = static_cast<size_t>(part / num_blocks_);
  const size_t begin = static_cast<size_t>(part % num_blocks_ * block_);
  const size_t end = std::min(begin + static_cast<size_t>(block_), channels_.size());
  const int64_t plain = static_cast<int64_t>(cell) * cell_, place = cells_[cell];
  for (const Run& f : filters_) {
    for (size_t i = begin; i < end; ++i) {
      const Run& c = channels_[i];
      const Run& run = along_filters_ ? f : c;
      const int64_t other = along_filters_ ? c.used : f.used;
      move(plain + c.index * row_ + f.index, along_filters_ ? 1 : row_, run.used * other,
           place + c.place + f.place, run.size);
    }
  }
}

void KernelBlocks::block(int64_t part, const float* plain, float* blocked) const {
  for_runs(part, [&](int64_t offset, int64_t step, int64_t used, int64_t place, int64_t size) {
    float* to = blocked + place;
    if (used == 0) {
      std::fill_n(to, size, 0.0f);
      return;
    }
    const float* from = plain + offset;
    if (used == kRun && step == 1) {
      std::memcpy(to, from, kRun * sizeof(float));
      return;
    }
    for (int64_t i = 0; i < used; ++i)
      to[i] = from[i * step];
    std::fill(to + used, to + size, 0.0f);
  });
}

void KernelBlocks::sum(int64_t part, const float* blocked, int64_t count, float* plain) const {
  const int64_t next = bytes_ / static_cast<int64_t>(sizeof(float));
  for_runs(part, [&](int64_t offset, int64_t step, int64_t used, int64_t place, int64_t size) {
    if (used == 0)
      return;
    float total[kRun] = {};
    const float* from = blocked + place;
    if (size == kRun) {
      std::memcpy(total, from, sizeof(total));
      for (int64_t k = 1; k < count; ++k) {
        for (int64_t i = 0; i < kRun; ++i)
          total[i] += from[k * next + i];
      }
    } else {
      for (int64_t k = 0; k < count; ++k) {
        for (int64_t i = 0; i < used; ++i)
          total[i] = k == 0 ? from[i] : total[i] + from[k * next + i];
      }
    }
    for (int64_t i = 0; i < used; ++i)
      plain[offset + i * step] = total[i];
  });
}

namespace {

// count = 0: plain to blocked, otherwise the sum of so many.
class MoveKernels final : public Kernel {
 public:
  MoveKernels(std::shared_ptr<const KernelBlocks> blocks, int64_t count,
              std::vector<KernelMove> moves)
      : blocks_(std::move(blocks)), count_(count), moves_(std::move(moves)) {}

  int64_t units() const override { return static_cast<int64_t>(moves_.size()) * blocks_->parts(); }
  double cost() const override {
    const int64_t bytes = blocks_->plain_bytes() + to_read();
    return static_cast<double>(bytes * static_cast<int64_t>(moves_.size())) / kBytesPerNanosecond;
  }
  // Units interleave, but no two write to the same address.
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    for (int64_t m = begin / blocks_->parts(); m <= (end - 1) / blocks_->parts(); ++m) {
      out.push_back({moves_[m].from, moves_[m].from + to_read(), false});
      const int64_t written = count_ == 0 ? blocks_->blocked_bytes() : blocks_->plain_bytes();
      out.push_back({moves_[m].to, moves_[m].to + written, true});
    }
  }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const KernelMove& move = moves_[unit / blocks_->parts()];
      const int64_t part = unit % blocks_->parts();
      const float* from = reinterpret_cast<const float*>(move.from);
      float* to = reinterpret_cast<float*>(move.to);
      if (count_ == 0) {
        blocks_->block(part, from, to);
      } else {
        blocks_->sum(part, from, count_, to);
      }
    }
  }

 private:
  int64_t to_read() const {
    return count_ == 0 ? blocks_->plain_bytes() : count_ * blocks_->blocked_bytes();
  }

  std::shared_ptr<const KernelBlocks> blocks_;
  int64_t count_;
  std::vector<KernelMove> moves_;
};

}  // namespace

KernelPtr make_block_kernels(std::shared_ptr<const KernelBlocks> blocks,
                             std::vector<KernelMove> moves) {
  return std::make_unique<MoveKernels>(std::move(blocks), 0, std::move(moves));
}

KernelPtr make_sum_kernels(std::shared_ptr<const KernelBlocks> blocks, int64_t count,
                           std::vector<KernelMove> moves) {
  return std::make_unique<MoveKernels>(std::move(blocks), count, std::move(moves));
}

}  // namespace meshtrain::cpu
