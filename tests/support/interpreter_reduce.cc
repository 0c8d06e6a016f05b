#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ir/ops/einsum.h"
#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

double combined(Combine combine, double a, double b) {
  if (combine == Combine::kSum) {
    return a + b;
  }
  const bool first = combine == Combine::kMax ? a > b : a < b;
  return std::isnan(a) || first ? a : b;
}

Kernel reduction(Combine combine) {
  return [combine](const NodeRun& run) {
    const double infinity = std::numeric_limits<double>::infinity();
    const double start = combine == Combine::kSum   ? 0.0
                         : combine == Combine::kMax ? -infinity
                                                    : infinity;
    const std::vector<int64_t>& axes = run.node.attr_ints("axes");
    Shape kept = run.in[0]->shape();
    for (int64_t axis : axes) {
      kept[axis] = 1;
    }
    std::vector<double> totals(run.out[0].size(), start);  // in double, whatever the dtype
    int64_t index = 0;
    for (Coordinates at(run.in[0]->shape()); !at.done(); at.next()) {
      double& total = totals[broadcast_index(at.all(), kept)];
      total = combined(combine, total, run.in[0]->at(index++));
    }
    for (size_t i = 0; i < totals.size(); ++i) {
      run.out[0].set(static_cast<int64_t>(i), totals[i]);
    }
  };
}

void argmax(const NodeRun& run) {
  const auto axis = static_cast<size_t>(run.node.attr_int("axis"));
  const Shape& shape = run.in[0]->shape();
  int64_t index = 0;
  for (Coordinates at(run.out[0].shape()); !at.done(); at.next()) {
    std::vector<int64_t> from = at.all();
    from.insert(from.begin() + static_cast<ptrdiff_t>(axis), 0);
    int64_t best = 0;
    double largest = run.in[0]->at(index_of(from, shape));
    for (from[axis] = 1; from[axis] < shape[axis]; ++from[axis]) {
      const double x = run.in[0]->at(index_of(from, shape));
      if (x > largest) {
        largest = x;
        best = from[axis];
      }
    }
    run.out[0].set(index++, static_cast<double>(best));
  }
}

void cumsum(const NodeRun& run) {
  const auto axis = static_cast<size_t>(run.node.attr_int("axis"));
  const Shape& shape = run.in[0]->shape();
  int64_t index = 0;
  for (Coordinates at(shape); !at.done(); at.next()) {
    std::vector<int64_t> from = at.all();
    double total = 0;
    for (from[axis] = 0; from[axis] <= at[axis]; ++from[axis]) {
      total += run.in[0]->at(index_of(from, shape));
    }
    run.out[0].set(index++, total);
  }
}

void top_k(const NodeRun& run) {
  const int64_t size = run.in[0]->shape().back();
  const int64_t k = run.node.attr_int("k");
  std::vector<int64_t> order(size);
  for (int64_t row = 0; row < run.in[0]->size() / size; ++row) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return run.in[0]->at(row * size + a) > run.in[0]->at(row * size + b);
    });
    for (int64_t i = 0; i < k; ++i) {
      run.out[0].set(row * k + i, run.in[0]->at(row * size + order[i]));
      run.out[1].set(row * k + i, static_cast<double>(order[i]));
    }
  }
}

void einsum(const NodeRun& run) {
  const EinsumEquation equation = parse_einsum(run.node.attr_string("equation"));
  std::string letters;
  Shape sizes;
  for (size_t t = 0; t < run.in.size(); ++t) {
    for (size_t i = 0; i < equation.operands[t].size(); ++i) {
      if (letters.find(equation.operands[t][i]) == std::string::npos) {
        letters += equation.operands[t][i];
        sizes.push_back(run.in[t]->shape()[i]);
      }
    }
  }
  const auto index = [&](const std::string& tensor, const Shape& shape, const Coordinates& at) {
    int64_t out = 0;
    for (size_t i = 0; i < tensor.size(); ++i) {
      out = out * shape[i] + at[letters.find(tensor[i])];
    }
    return out;
  };
  std::vector<double> totals(run.out[0].size(), 0.0);
  for (Coordinates at(sizes); !at.done(); at.next()) {
    double product = 1;
    for (size_t t = 0; t < run.in.size(); ++t) {
      product *= run.in[t]->at(index(equation.operands[t], run.in[t]->shape(), at));
    }
    totals[index(equation.result, run.out[0].shape(), at)] += product;
  }
  for (size_t i = 0; i < totals.size(); ++i) {
    run.out[0].set(static_cast<int64_t>(i), totals[i]);
  }
}

}  // namespace

void add_reduce_kernels(KernelTable& table) {
  table["reduce_sum"] = reduction(Combine::kSum);
  table["reduce_max"] = reduction(Combine::kMax);
  table["reduce_min"] = reduction(Combine::kMin);
  table["argmax"] = argmax;
  table["cumsum"] = cumsum;
  table["top_k"] = top_k;
  table["einsum"] = einsum;
}

}  // namespace meshtrain
