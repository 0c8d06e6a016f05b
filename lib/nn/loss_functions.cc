// The table of the losses and what surrounds each of them: dtypes, ranks, weights.
#include "nn/loss_functions.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "nn/arguments.h"
#include "nn/loss_table.h"

namespace meshtrain {
namespace {

const std::map<std::string_view, LossEntry>& loss_table() {
  static const std::map<std::string_view, LossEntry> kTable = [] {
    std::map<std::string_view, LossEntry> table;
    for (const auto& family : {regression_losses, crossentropy_losses, region_losses, circle_losses,
                               ctc_losses, lambda_losses}) {
      for (const LossEntry& entry : family()) {
        MESHTRAIN_CHECK(class_of_key(Category::kLoss, entry.key) != nullptr, "{} is not declared",
                        entry.key);
        table.emplace(entry.key, entry);
      }
    }
    return table;
  }();
  return kTable;
}

const LossEntry& entry_of(std::string_view class_name) {
  const auto found = loss_table().find(name_key(class_name));
  MESHTRAIN_CHECK(found != loss_table().end(), "no loss function {}", class_name);
  return found->second;
}

// Which of the two gets an inserted or loses its last dimension.
struct RankRepair {
  bool expand_x = false, expand_y = false, squeeze_x = false, squeeze_y = false;
};

RankRepair rank_repair(const Shape& x, const Shape& y) {
  RankRepair repair;
  if (x.size() == y.size() + 1 && x.back() == 1) {
    (y.size() == 1 ? repair.expand_y : repair.squeeze_x) = true;
  } else if (y.size() == x.size() + 1 && y.back() == 1) {
    (x.size() == 1 ? repair.expand_x : repair.squeeze_y) = true;
  }
  return repair;
}

}  // namespace

int64_t class_axis(const Builder& b, LossArgs args, ValueId p) {
  return normal_axis(args.integer("axis"), b.shape(p).size());
}

ValueId class_ids(Builder& b, ValueId y, ValueId p) {
  return b.cast(squeezed_ids(b, y, p), DType::kInt32);
}

ValueId squeezed_ids(Builder& b, ValueId y, ValueId p) {
  const bool has_one = last_axis(b, y) == last_axis(b, p) && b.shape(y).back() == 1;
  return has_one ? b.squeeze(y, -1) : y;
}

bool is_loss_function(std::string_view class_name) {
  return loss_table().contains(name_key(class_name));
}

TargetKind loss_targets(std::string_view class_name) {
  return entry_of(class_name).targets;
}

Expects loss_expects(std::string_view class_name) {
  return entry_of(class_name).expects;
}

LossValues loss_values(Builder& b, std::string_view class_name, const ConfigObject* args,
                       ValueId y_true, ValueId y_pred, DType dtype) {
  const LossEntry& entry = entry_of(class_name);
  ValueId y = y_true;
  ValueId p = b.cast(y_pred, dtype);
  if (entry.targets == TargetKind::kLikeOutput || entry.targets == TargetKind::kAny) {
    y = b.cast(y, dtype);
    to_same_rank(b, y, p);
  }
  return entry.function(b, all_arguments(Category::kLoss, entry.key, args), y, p);
}

std::string class_by_shapes(const std::string& what, const Shape& y_true, const Shape& y_pred) {
  const int64_t classes = y_pred.empty() ? 1 : y_pred.back();
  if (classes == 1) {
    return "Binary" + what;
  }
  const bool sparse = y_true.size() < y_pred.size() || (!y_true.empty() && y_true.back() == 1);
  return sparse ? "SparseCategorical" + what : "Categorical" + what;
}

void to_same_rank(Builder& b, ValueId& x, ValueId& y) {
  const RankRepair repair = rank_repair(b.shape(x), b.shape(y));
  const int x_rank = static_cast<int>(b.shape(x).size());
  const int y_rank = static_cast<int>(b.shape(y).size());
  x = repair.expand_x ? b.expand_dims(x, x_rank) : repair.squeeze_x ? b.squeeze(x, x_rank - 1) : x;
  y = repair.expand_y ? b.expand_dims(y, y_rank) : repair.squeeze_y ? b.squeeze(y, y_rank - 1) : y;
}

void to_same_rank(Shape& x, Shape& y) {
  const RankRepair repair = rank_repair(x, y);
  for (auto [shape, expand, squeeze] : {std::tuple(&x, repair.expand_x, repair.squeeze_x),
                                        std::tuple(&y, repair.expand_y, repair.squeeze_y)}) {
    if (expand) {
      shape->push_back(1);
    } else if (squeeze) {
      shape->pop_back();
    }
  }
}

Shape with_known_sizes(Shape shape, const Shape& like) {
  for (size_t i = 1; i < std::min(shape.size(), like.size()); ++i) {
    shape[i] = shape[i] == kUnknownDim ? like[i] : shape[i];
  }
  return shape;
}

void align_weight(Builder& b, ValueId& values, ValueId& weight) {
  to_same_rank(b, values, weight);
  while (b.shape(weight).size() < b.shape(values).size() && !b.shape(weight).empty()) {
    weight = b.expand_dims(weight, static_cast<int>(b.shape(weight).size()));
  }
}

ValueId aligned_mask(Builder& b, ValueId mask, ValueId values) {
  const Shape shape = b.shape(values);
  Shape aligned = b.shape(mask);
  if (shape.size() < 2 || shape[1] != aligned[1]) {  // one for each sample
    mask = b.cast(b.reduce_max(b.cast(mask, DType::kInt32), {1}), DType::kBool);
    aligned.pop_back();
  }
  if (shape.size() < 2) {
    return mask;
  }
  aligned.resize(shape.size(), 1);
  return b.broadcast_to(b.reshape(mask, aligned), shape);
}

ValueId divide_no_nan(Builder& b, ValueId total, ValueId count) {
  const ValueId zero = constant_like(b, total, 0);
  const ValueId is_zero = b.binary("eq", count, zero);
  const ValueId safe = b.select(is_zero, constant_like(b, total, 1), count);
  return b.select(is_zero, zero, b.div(total, safe));
}

}  // namespace meshtrain
