#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "ir/ops/optimizer.h"
#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

// Elements per row of features: what follows the first `num_dims` dimensions.
int64_t row_size(const HostTensor& tensor, size_t num_dims) {
  int64_t size = 1;
  for (size_t i = num_dims; i < tensor.shape().size(); ++i) {
    size *= tensor.shape()[i];
  }
  return size;
}

void gather_rows(const NodeRun& run) {
  const HostTensor& table = *run.in[0];
  const HostTensor& ids = *run.in[1];
  const int64_t width = row_size(table, 1);
  const int64_t global_rows = run.in_shards[0].global_shape[0];
  for (int64_t i = 0; i < ids.size(); ++i) {
    const auto id = std::clamp<int64_t>(static_cast<int64_t>(ids.at(i)), 0, global_rows - 1);
    const int64_t row = id - run.in_shards[0].start[0];
    if (row < 0 || row >= table.shape()[0]) {
      continue;  // another shard has it; this one adds zero
    }
    for (int64_t j = 0; j < width; ++j) {
      run.out[0].set(i * width + j, table.at(row * width + j));
    }
  }
}

void scatter_add_rows(const NodeRun& run) {
  const HostTensor& ids = *run.in[1];
  const int64_t width = row_size(*run.in[0], ids.shape().size());
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t row = static_cast<int64_t>(ids.at(i)) - run.out_shards[0].start[0];
    if (row < 0 || row >= run.out[0].shape()[0]) {
      continue;
    }
    for (int64_t j = 0; j < width; ++j) {
      run.out[0].set(row * width + j,
                     run.out[0].at(row * width + j) + run.in[0]->at(i * width + j));
    }
  }
}

void one_hot(const NodeRun& run) {
  const int64_t classes = run.out[0].shape().back();
  for (int64_t i = 0; i < run.in[0]->size(); ++i) {
    const int64_t id = static_cast<int64_t>(run.in[0]->at(i)) - run.out_shards[0].start.back();
    if (id >= 0 && id < classes) {
      run.out[0].set(i * classes + id, 1);
    }
  }
}

// The random bits of an element of a shard; `noise_shape` is global, 1 where elements share a
// number.
uint32_t element_bits(const Node& node, double step, const Coordinates& at, const ShardOf& shard,
                      const Shape& noise_shape) {
  std::vector<int64_t> global(at.rank());
  for (size_t dim = 0; dim < at.rank(); ++dim) {
    global[dim] = noise_shape[dim] == 1 ? 0 : at[dim] + shard.start[dim];
  }
  return philox_bits(static_cast<uint64_t>(node.attr_int("seed")),
                     static_cast<uint32_t>(node.attr_int("stream")),
                     static_cast<uint32_t>(static_cast<int64_t>(step)),
                     static_cast<uint64_t>(index_of(global, noise_shape)));
}

void random_bits(const NodeRun& run) {
  int64_t index = 0;
  for (Coordinates at(run.out[0].shape()); !at.done(); at.next()) {
    run.out[0].set(index++, element_bits(run.node, run.in[0]->at(0), at, run.out_shards[0],
                                         run.out_shards[0].global_shape));
  }
}

void dropout(const NodeRun& run) {
  const double rate = run.node.attr_double("rate");
  const uint32_t threshold = philox_threshold(rate);
  HostTensor scale(run.out[0].dtype(), {});
  scale.set(0, 1 / (1 - rate));
  int64_t index = 0;
  for (Coordinates at(run.out[0].shape()); !at.done(); at.next(), ++index) {
    const uint32_t bits = element_bits(run.node, run.in[1]->at(0), at, run.out_shards[0],
                                       run.node.attr_ints("noise_shape"));
    run.out[0].set(index, bits < threshold ? 0 : run.in[0]->at(index) * scale.at(0));
  }
}

// One element's step: `tensors` are param, grad and slots. Overwrites
// param and slots.
void update_element(const Node& node, std::vector<double>& tensors, double rate) {
  const std::string& kind = node.attr_string("kind");
  double& param = tensors[0];
  const double grad = tensors[1];
  if (kind == "sgd") {
    param -= rate * grad;
  } else if (kind == "momentum") {
    const double momentum = node.attr_double("momentum");
    double& velocity = tensors[2];
    velocity = momentum * velocity - rate * grad;
    param += node.attr_int("nesterov") != 0 ? momentum * velocity - rate * grad : velocity;
  } else if (kind == "rmsprop") {
    const double rho = node.attr_double("rho");
    const double momentum = node.attr_double("momentum");
    double& velocity = tensors[2];
    velocity = rho * velocity + (1 - rho) * grad * grad;
    double denominator = velocity + node.attr_double("epsilon");
    if (node.attr_int("centered") != 0) {
      double& average = tensors.back();
      average = rho * average + (1 - rho) * grad;
      denominator -= average * average;
    }
    double increment = rate * grad / std::sqrt(denominator);
    if (momentum > 0) {
      tensors[3] = momentum * tensors[3] + increment;
      increment = tensors[3];
    }
    param -= increment;
  } else if (kind == "adam") {
    double& m = tensors[2];
    double& v = tensors[3];
    m += (grad - m) * (1 - node.attr_double("beta_1"));
    v += (grad * grad - v) * (1 - node.attr_double("beta_2"));
    double second = v;
    if (node.attr_int("amsgrad") != 0) {
      second = tensors[4] = std::max(tensors[4], v);
    }
    param -= rate * m / (std::sqrt(second) + node.attr_double("epsilon"));
  } else {
    throw InternalError("the interpreter knows no optimizer kind " + kind);
  }
}

void optimizer_update(const NodeRun& run) {
  const OptimizerOperands operands = optimizer_operands(run.node);
  const size_t num_tensors = 2 + static_cast<size_t>(operands.num_slots);
  const double rate = run.in[num_tensors]->at(0);
  std::vector<double> tensors(num_tensors);
  for (int64_t i = 0; i < run.in[0]->size(); ++i) {
    for (size_t t = 0; t < num_tensors; ++t) {
      tensors[t] = run.in[t]->at(i);
    }
    if (operands.has_decay) {
      tensors[0] -= tensors[0] * run.in[num_tensors + 1]->at(0);
    }
    update_element(run.node, tensors, rate);
    run.out[0].set(i, tensors[0]);
    for (size_t slot = 1; slot < run.out.size(); ++slot) {
      run.out[slot].set(i, tensors[slot + 1]);
    }
  }
}

}  // namespace

void add_training_kernels(KernelTable& table) {
  table["gather_rows"] = gather_rows;
  table["scatter_add_rows"] = scatter_add_rows;
  table["one_hot"] = one_hot;
  table["random_bits"] = random_bits;
  table["dropout"] = dropout;
  table["optimizer_update"] = optimizer_update;
}

}  // namespace meshtrain
