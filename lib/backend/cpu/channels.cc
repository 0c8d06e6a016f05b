// Per-channel sums over tensors whose last dimension is the channel.
#include <algorithm>

#include "backend/cpu/conv_region.h"
#include "backend/cpu/half_arrays.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/reduce.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kElementsOfSegment = 8192;
constexpr int64_t kMostSegments = 32;  // of a job, so that their sum is cheap

// The sums of segments of rows, one (2, channels) each.
class SegmentSums final : public Kernel {
 public:
  struct Segment {
    const std::byte* u;
    const std::byte* v;
    int64_t rows;
    std::byte* out;
  };

  SegmentSums(DType dtype, int64_t channels, std::vector<Segment> segments)
      : channels_(channels),
        item_(static_cast<int64_t>(dtype_size(dtype))),
        segments_(std::move(segments)),
        loop_(kernels().channel_sums[type_index(dtype)]) {
    MESHTRAIN_CHECK(loop_ != nullptr, "no sums of {}", dtype_name(dtype));
  }
  int64_t units() const override { return static_cast<int64_t>(segments_.size()); }
  double cost() const override {
    double elements = 0;
    for (const Segment& segment : segments_)
      elements += static_cast<double>(segment.rows * channels_);
    return elements * 0.2;
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    const auto bytes = [&](int64_t i) { return segments_[i].rows * channels_ * item_; };
    for (int64_t i = begin; i < end; ++i)
      add_access(out, segments_[i].u, bytes(i), false);
    for (int64_t i = begin; i < end && segments_[i].v != segments_[i].u; ++i)
      add_access(out, segments_[i].v, bytes(i), false);
    for (int64_t i = begin; i < end; ++i)
      add_access(out, segments_[i].out, 2 * channels_ * 8, true);
  }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    for (int64_t i = begin; i < end; ++i) {
      const Segment& segment = segments_[i];
      loop_(reinterpret_cast<double*>(segment.out), segment.u, segment.v, segment.rows, channels_);
    }
  }

 private:
  int64_t channels_, item_;
  std::vector<Segment> segments_;
  void (*loop_)(double*, const void*, const void*, int64_t, int64_t);
};

KernelList make_sums(const ChannelSumsSpec& spec, ScratchAllocator& scratch) {
  const auto& [dtype, rows, channels, jobs] = spec;
  const int64_t row_bytes = channels * static_cast<int64_t>(dtype_size(dtype));
  const int64_t parts = static_cast<int64_t>(jobs[0].parts.size());
  const int64_t cuts =
      std::clamp<int64_t>(std::min(rows * channels / kElementsOfSegment, kMostSegments / parts), 1,
                          std::max<int64_t>(rows, 1));
  std::vector<SegmentSums::Segment> segments;
  KernelList sums;
  for (const ChannelSumsJob& job : jobs) {
    const int64_t count = cuts * static_cast<int64_t>(job.parts.size());
    std::byte* to = job.out;
    if (count > 1) {
      to = scratch.take(count * 2 * channels * 8);
      for (KernelPtr& sum : make_reduce(
               Reduction::kSum, contiguous_view(to, DType::kFloat64, {count, 2 * channels}),
               {true, false}, contiguous_view(job.out, DType::kFloat64, {2 * channels}), scratch)) {
        sums.push_back(std::move(sum));
      }
    }
    for (const ChannelSumsJob::Part& part : job.parts) {
      for (int64_t i = 0; i < cuts; ++i, to += 2 * channels * 8) {
        const int64_t first = rows * i / cuts, last = rows * (i + 1) / cuts;
        segments.push_back(
            {part.u + first * row_bytes, part.v + first * row_bytes, last - first, to});
      }
    }
  }
  KernelList list;
  list.push_back(std::make_unique<SegmentSums>(dtype, channels, std::move(segments)));
  for (KernelPtr& sum : sums)
    list.push_back(std::move(sum));
  return list;
}

KernelList make_half_sums(const ChannelSumsSpec& spec, ScratchAllocator& scratch) {
  HalfArrays parts(spec.dtype, spec.rows * spec.channels);
  for (const ChannelSumsJob& job : spec.jobs) {
    for (const ChannelSumsJob::Part& part : job.parts) {
      parts.add(part.u);
      parts.add(part.v);
    }
  }
  parts.take_scratch(scratch);
  ChannelSumsSpec wide = computed(spec);
  for (ChannelSumsJob& job : wide.jobs) {
    for (ChannelSumsJob::Part& part : job.parts)
      part = {parts.wide(part.u), parts.wide(part.v)};
  }
  KernelList list;
  list.push_back(parts.widen());
  for (KernelPtr& kernel : make_sums(wide, scratch))
    list.push_back(std::move(kernel));
  return list;
}

}  // namespace

void CpuLowering::make(const ChannelSumsSpec& spec) {
  add(is_half(spec.dtype) ? make_half_sums(spec, scratch_) : make_sums(spec, scratch_));
}

}  // namespace meshtrain::cpu
