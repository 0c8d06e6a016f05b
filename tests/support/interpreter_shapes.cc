#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

// Every element of the result from the operand's element at coordinates that `source` computes.
void move_elements(const NodeRun& run,
                   const std::function<std::vector<int64_t>(const Coordinates&)>& source) {
  int64_t index = 0;
  for (Coordinates at(run.out[0].shape()); !at.done(); at.next()) {
    run.out[0].set(index++, run.in[0]->at(index_of(source(at), run.in[0]->shape())));
  }
}

void broadcast(const NodeRun& run) {
  int64_t index = 0;
  for (Coordinates at(run.out[0].shape()); !at.done(); at.next()) {
    run.out[0].set(index++, run.in[0]->at(broadcast_index(at.all(), run.in[0]->shape())));
  }
}

void transpose(const NodeRun& run) {
  const std::vector<int64_t>& permutation = run.node.attr_ints("permutation");
  move_elements(run, [&](const Coordinates& at) {
    std::vector<int64_t> from(at.rank());
    for (size_t i = 0; i < at.rank(); ++i) {
      from[permutation[i]] = at[i];
    }
    return from;
  });
}

void reshape(const NodeRun& run) {
  for (int64_t i = 0; i < run.out[0].size(); ++i) {
    run.out[0].set(i, run.in[0]->at(i));
  }
}

void slice(const NodeRun& run) {
  const auto axis = static_cast<size_t>(run.node.attr_int("axis"));
  move_elements(run, [&](const Coordinates& at) {
    std::vector<int64_t> from = at.all();
    from[axis] = run.node.attr_int("begin") + from[axis] * run.node.attr_int("stride");
    return from;
  });
}

void pad(const NodeRun& run) {
  const auto axis = static_cast<size_t>(run.node.attr_int("axis"));
  int64_t index = 0;
  for (Coordinates at(run.out[0].shape()); !at.done(); at.next()) {
    std::vector<int64_t> from = at.all();
    from[axis] -= run.node.attr_int("before");
    const bool inside = from[axis] >= 0 && from[axis] < run.in[0]->shape()[axis];
    run.out[0].set(index++, inside ? run.in[0]->at(index_of(from, run.in[0]->shape()))
                                   : run.node.attr_double("value"));
  }
}

void concat(const NodeRun& run) {
  const auto axis = static_cast<size_t>(run.node.attr_int("axis"));
  int64_t begin = 0;
  for (const HostTensor* part : run.in) {
    int64_t index = 0;
    for (Coordinates at(part->shape()); !at.done(); at.next()) {
      std::vector<int64_t> to = at.all();
      to[axis] += begin;
      run.out[0].set(index_of(to, run.out[0].shape()), part->at(index++));
    }
    begin += part->shape()[axis];
  }
}

void reverse(const NodeRun& run) {
  const auto axis = static_cast<size_t>(run.node.attr_int("axis"));
  move_elements(run, [&](const Coordinates& at) {
    std::vector<int64_t> from = at.all();
    from[axis] = run.in[0]->shape()[axis] - 1 - from[axis];
    return from;
  });
}

void constant(const NodeRun& run) {
  for (int64_t i = 0; i < run.out[0].size(); ++i) {
    run.out[0].set(i, run.node.attr_double("value"));
  }
}

void iota(const NodeRun& run) {
  const auto axis = static_cast<size_t>(run.node.attr_int("axis"));
  int64_t index = 0;
  for (Coordinates at(run.out[0].shape()); !at.done(); at.next()) {
    run.out[0].set(index++, static_cast<double>(at[axis] + run.out_shards[0].start[axis]));
  }
}

}  // namespace

void add_shape_kernels(KernelTable& table) {
  table["broadcast"] = broadcast;
  table["transpose"] = transpose;
  table["reshape"] = reshape;
  table["stop_gradient"] = reshape;
  table["slice"] = slice;
  table["pad"] = pad;
  table["concat"] = concat;
  table["reverse"] = reverse;
  table["constant"] = constant;
  table["iota"] = iota;
}

}  // namespace meshtrain
