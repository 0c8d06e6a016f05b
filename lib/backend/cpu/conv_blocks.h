// Converts kernels of convolutions between the layout of models, (cells..., channels / groups,
// filters), and the blocks of a primitive. A block is for instance 16 channels by 16 filters,
// padded with zeros.
#pragma once

#include "backend/cpu/conv_primitive.h"

namespace meshtrain::cpu {

// Offsets of elements in blocked kernels: the sum of the offsets of cell, channel and filter.
class KernelBlocks {
 public:
  // Indices with adjacent blocked offsets; `used` of them exist, the rest is padding.
  struct Run {
    int64_t index, used, place, size;
  };

  // `desc`: blocked, of the dimensions that plain_kernel(shape) has.
  KernelBlocks(const ConvShape& shape, const dnnl::memory::desc& desc);

  int64_t plain_bytes() const;
  int64_t blocked_bytes() const { return bytes_; }
  // Parts that may be moved apart.
  int64_t parts() const { return static_cast<int64_t>(cells_.size()) * num_blocks_; }
  void block(int64_t part, const float* plain, float* blocked) const;
  // Adds up `count` blocked kernels, which follow each other, in this order.
  void sum(int64_t part, const float* blocked, int64_t count, float* plain) const;

 private:
  // Runs of one side of the square of channels and filters by single indices of the other.
  template <class Move>
  void for_runs(int64_t part, const Move& move) const;

  int64_t bytes_ = 0;
  int64_t row_ = 1, cell_ = 1;  // elements of a row of filters and of a cell, plain
  bool along_filters_ = true;   // which of the two has runs
  std::vector<Run> channels_, filters_;
  std::vector<int64_t> cells_;          // their places
  int64_t block_ = 1, num_blocks_ = 1;  // entries of channels_ to a part
};

struct KernelMove {
  const std::byte* from;
  std::byte* to;
};
// Plain to blocked.
KernelPtr make_block_kernels(std::shared_ptr<const KernelBlocks> blocks,
                             std::vector<KernelMove> moves);
// From `count` blocked kernels each to their sum, plain.
KernelPtr make_sum_kernels(std::shared_ptr<const KernelBlocks> blocks, int64_t count,
                           std::vector<KernelMove> moves);

}  // namespace meshtrain::cpu
