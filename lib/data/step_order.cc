#include "data/step_order.h"

#include <algorithm>

#include "base/head_tail.h"

namespace meshtrain {
namespace {

// Copies rows of `steps` steps. `is_back`: from the order, else to it.
void copy_steps(const std::byte* from, std::byte* to, size_t rows, size_t row_bytes, int64_t steps,
                int64_t shards, bool is_back) {
  const size_t bytes = row_bytes / static_cast<size_t>(steps);
  for (size_t row = 0; row < rows; ++row, from += row_bytes, to += row_bytes) {
    for (int64_t place = 0; place < steps; ++place) {
      const auto step = static_cast<size_t>(head_tail_step(place, steps, shards));
      const auto at = static_cast<size_t>(place);
      std::copy_n(from + (is_back ? at : step) * bytes, bytes, to + (is_back ? step : at) * bytes);
    }
  }
}

class OrderedRows final : public Rows {
 public:
  OrderedRows(RowsPtr rows, int64_t shards) : rows_(std::move(rows)), shards_(shards) {}

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return rows_->shape(); }
  Cost cost() const override { return rows_->cost(); }
  RowsPtr in_pass(int64_t pass) const override {
    RowsPtr rows = rows_->in_pass(pass);
    return rows ? std::make_shared<OrderedRows>(std::move(rows), shards_) : nullptr;
  }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    std::vector<std::byte> own(order.size() * row_bytes());
    rows_->read(order, own.data());
    copy_steps(own.data(), to, order.size(), row_bytes(), shape()[1], shards_, /*is_back=*/false);
  }

 private:
  RowsPtr rows_;
  int64_t shards_;
};

}  // namespace

void order_steps(Dataset& dataset, int64_t shards, const SourceLoc& loc) {
  const Shape& first = dataset.inputs.at(0).rows->shape();
  const int64_t steps = first.size() > 1 ? first[1] : 1;
  if (steps % (2 * shards) != 0) {
    throw ConfigError(
        "E113", loc,
        fmt::format("`head_tail: {}` cuts samples in {} chunks of the same length; "
                    "those of `{}` have {} step{}",
                    shards, 2 * shards, dataset.inputs[0].name, steps, steps == 1 ? "" : "s"))
        .help(fmt::format("a number of steps that is divisible by {}", 2 * shards));
  }
  const auto order = [&](const std::string& name, RowsPtr& rows) {
    const Shape& shape = rows->shape();
    if (shape.size() < 2 || shape[1] != steps) {
      throw ConfigError("E324", loc,
                        fmt::format("`head_tail` is for data with the same steps in all arrays: "
                                    "samples of `{}` are {}, not ({}, ...)",
                                    name, shape_string(without_first(shape)), steps))
          .help("leave `head_tail` out");
    }
    rows = std::make_shared<OrderedRows>(std::move(rows), shards);
  };
  for (std::vector<Dataset::Array>* arrays : {&dataset.inputs, &dataset.targets}) {
    for (Dataset::Array& array : *arrays) {
      order(array.name, array.rows);
    }
  }
  if (dataset.sample_weight && dataset.sample_weight->shape().size() > 1) {
    order("sample_weight", dataset.sample_weight);
  }
}

HostTensor restore_steps(HostTensor outputs, int64_t shards) {
  if (shards == 1) {
    return outputs;
  }
  HostTensor out(outputs.dtype(), outputs.shape());
  const auto rows = static_cast<size_t>(outputs.shape()[0]);
  copy_steps(outputs.bytes(), out.bytes(), rows, rows == 0 ? 0 : outputs.num_bytes() / rows,
             outputs.shape()[1], shards, /*is_back=*/true);
  return out;
}

}  // namespace meshtrain
