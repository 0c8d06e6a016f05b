// Convolutions, pools and per-channel sums.
#include <cmath>
#include <limits>

#include "ir/ops/window.h"
#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

// Index into x of channel `channel` at cell `cell` of the window of output `output` (n, place...);
// kNone outside of x.
int64_t cell_index(const Window& window, const Shape& x, const Coordinates& output,
                   const Coordinates& cell, int64_t channel) {
  int64_t index = output[0];
  for (size_t d = 0; d < window.strides.size(); ++d) {
    const int64_t place =
        output[d + 1] * window.strides[d] + cell[d] * window.dilations[d] - window.pads_before[d];
    if (place < 0 || place >= x[d + 1]) {
      return kNone;
    }
    index = index * x[d + 1] + place;
  }
  return index * x.back() + channel;
}

// Calls with the indices into x, kernel and y of every product of a convolution.
template <class F>
void for_each_product(const Node& node, const Shape& x, const Shape& kernel, const Shape& y,
                      F&& f) {
  const Window window = window_of(node.attrs);
  const size_t dims = x.size() - 2;
  const int64_t channels = kernel[dims];
  const int64_t filters = y.back() / (x.back() / channels);  // of a group
  int64_t y_index = 0;
  const Shape cells(kernel.begin(), kernel.end() - 1);  // and channels
  for (Coordinates at(y); !at.done(); at.next(), ++y_index) {
    const int64_t filter = at[dims + 1];
    int64_t kernel_index = filter;
    for (Coordinates cell(cells); !cell.done(); cell.next(), kernel_index += y.back()) {
      const int64_t channel = filter / filters * channels + cell[dims];
      const int64_t x_index = cell_index(window, x, at, cell, channel);
      if (x_index != kNone) {
        f(x_index, kernel_index, y_index);
      }
    }
  }
}

void store(HostTensor& out, const std::vector<double>& totals) {
  for (size_t i = 0; i < totals.size(); ++i) {
    out.set(static_cast<int64_t>(i), totals[i]);
  }
}

void conv(const NodeRun& run) {
  const HostTensor &x = *run.in[0], &kernel = *run.in[1];
  std::vector<double> y(run.out[0].size(), 0.0);
  for_each_product(run.node, x.shape(), kernel.shape(), run.out[0].shape(),
                   [&](int64_t i, int64_t j, int64_t k) { y[k] += x.at(i) * kernel.at(j); });
  store(run.out[0], y);
}

void conv_dgrad(const NodeRun& run) {
  const HostTensor &dy = *run.in[0], &kernel = *run.in[1];
  std::vector<double> dx(run.out[0].size(), 0.0);
  for_each_product(run.node, run.out[0].shape(), kernel.shape(), dy.shape(),
                   [&](int64_t i, int64_t j, int64_t k) { dx[i] += dy.at(k) * kernel.at(j); });
  store(run.out[0], dx);
}

void conv_wgrad(const NodeRun& run) {
  const HostTensor &x = *run.in[0], &dy = *run.in[1];
  std::vector<double> dw(run.out[0].size(), 0.0);
  for_each_product(run.node, x.shape(), run.out[0].shape(), dy.shape(),
                   [&](int64_t i, int64_t j, int64_t k) { dw[j] += x.at(i) * dy.at(k); });
  store(run.out[0], dw);
}

// The indices into x of the cells of each window, in row-major order: f(index of y, cells).
template <class F>
void for_each_window(const Node& node, const Shape& x, const Shape& y, F&& f) {
  const Window window = window_of(node.attrs);
  const size_t dims = x.size() - 2;
  int64_t y_index = 0;
  for (Coordinates at(y); !at.done(); at.next()) {
    std::vector<int64_t> cells;
    for (Coordinates cell(node.attr_ints("size")); !cell.done(); cell.next()) {
      const int64_t index = cell_index(window, x, at, cell, at[dims + 1]);
      if (index != kNone) {
        cells.push_back(index);
      }
    }
    f(y_index++, cells);
  }
}

// The first largest, or the first NaN; kNone among none.
int64_t largest_cell(const HostTensor& x, const std::vector<int64_t>& cells) {
  int64_t best = kNone;
  for (int64_t cell : cells) {
    const bool is_better = best == kNone || x.at(cell) > x.at(best) || std::isnan(x.at(cell));
    if (is_better && !(best != kNone && std::isnan(x.at(best)))) {
      best = cell;
    }
  }
  return best;
}

void max_pool(const NodeRun& run) {
  const HostTensor& x = *run.in[0];
  for_each_window(run.node, x.shape(), run.out[0].shape(),
                  [&](int64_t index, const std::vector<int64_t>& cells) {
                    const int64_t best = largest_cell(x, cells);
                    run.out[0].set(index, best == kNone ? -std::numeric_limits<double>::infinity()
                                                        : x.at(best));
                  });
}

void max_pool_grad(const NodeRun& run) {
  const HostTensor &x = *run.in[0], &dy = *run.in[1];
  std::vector<double> dx(x.size(), 0.0);
  for_each_window(run.node, x.shape(), dy.shape(),
                  [&](int64_t index, const std::vector<int64_t>& cells) {
                    const int64_t best = largest_cell(x, cells);
                    if (best != kNone) {
                      dx[best] += dy.at(index);
                    }
                  });
  store(run.out[0], dx);
}

void avg_pool(const NodeRun& run) {
  const HostTensor& x = *run.in[0];
  for_each_window(run.node, x.shape(), run.out[0].shape(),
                  [&](int64_t index, const std::vector<int64_t>& cells) {
                    double total = 0;
                    for (int64_t cell : cells) {
                      total += x.at(cell);
                    }
                    const double count = static_cast<double>(cells.size());
                    run.out[0].set(index, cells.empty() ? 0 : total / count);
                  });
}

void avg_pool_grad(const NodeRun& run) {
  const HostTensor& dy = *run.in[0];
  std::vector<double> dx(run.out[0].size(), 0.0);
  for_each_window(run.node, run.out[0].shape(), dy.shape(),
                  [&](int64_t index, const std::vector<int64_t>& cells) {
                    for (int64_t cell : cells) {
                      dx[cell] += dy.at(index) / static_cast<double>(cells.size());
                    }
                  });
  store(run.out[0], dx);
}

// moments has one operand: both.
void channel_sums(const NodeRun& run) {
  const HostTensor &u = *run.in.front(), &v = *run.in.back();
  const int64_t channels = u.shape().back();
  std::vector<double> sums(2 * channels, 0.0);
  for (int64_t i = 0; i < u.size(); ++i) {
    sums[i % channels] += u.at(i);
    sums[channels + i % channels] += u.at(i) * v.at(i);
  }
  store(run.out[0], sums);
}

void channel_affine(const NodeRun& run) {
  const HostTensor &x = *run.in[0], &a = *run.in[1], &b = *run.in[2];
  const int64_t channels = a.size();
  for (int64_t i = 0; i < x.size(); ++i) {
    run.out[0].set(i, x.at(i) * a.at(i % channels) + b.at(i % channels));
  }
}

}  // namespace

void add_window_kernels(KernelTable& table) {
  table["conv"] = conv;
  table["conv_dgrad"] = conv_dgrad;
  table["conv_wgrad"] = conv_wgrad;
  table["max_pool"] = max_pool;
  table["max_pool_grad"] = max_pool_grad;
  table["avg_pool"] = avg_pool;
  table["avg_pool_grad"] = avg_pool_grad;
  table["moments"] = channel_sums;
  table["channel_sums"] = channel_sums;
  table["channel_affine"] = channel_affine;
}

}  // namespace meshtrain
