// The kernels of the interpreter, one family a file; a new op family adds a function here and its
// call in interpreter.cc.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "support/interpreter.h"

namespace meshtrain {

// One node on its shards. `out` tensors are there, zero-filled.
struct NodeRun {
  const Node& node;
  std::span<const HostTensor* const> in;
  std::span<HostTensor> out;
  std::span<const ShardOf> in_shards;
  std::span<const ShardOf> out_shards;
};

using Kernel = std::function<void(const NodeRun&)>;
using KernelTable = std::map<std::string_view, Kernel>;

void add_elementwise_kernels(KernelTable& table);
void add_shape_kernels(KernelTable& table);
void add_reduce_kernels(KernelTable& table);
void add_training_kernels(KernelTable& table);  // lookups, random numbers, optimizers
void add_window_kernels(KernelTable& table);    // convolutions, pools, per-channel sums
void add_warp_kernels(KernelTable& table);
void add_attention_kernels(KernelTable& table);
void add_rnn_kernels(KernelTable& table);
void add_head_kernels(KernelTable& table);

// Walks a shape in row-major order: coordinates of one element after the other.
class Coordinates {
 public:
  explicit Coordinates(const Shape& shape) : shape_(shape), at_(shape.size(), 0) {
    done_ = num_elements(shape) == 0;
  }
  bool done() const { return done_; }
  void next();
  int64_t operator[](size_t dim) const { return at_[dim]; }
  const std::vector<int64_t>& all() const { return at_; }
  size_t rank() const { return at_.size(); }

 private:
  Shape shape_;
  std::vector<int64_t> at_;
  bool done_;
};

// Row-major index of `at` in `shape`.
int64_t index_of(const std::vector<int64_t>& at, const Shape& shape);
// The same when `shape` is broadcast, aligned at the last dimension, to what `at` walks.
int64_t broadcast_index(const std::vector<int64_t>& at, const Shape& shape);

}  // namespace meshtrain
