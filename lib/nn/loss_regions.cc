// Dice and Tversky: overlap of regions, over the whole batch unless `axis` says otherwise. Source:
// Keras 3 losses/losses.py; Salehi et al. 2017.
#include <algorithm>
#include <numeric>

#include "nn/arguments.h"
#include "nn/loss_table.h"

namespace meshtrain {
namespace {

// The argument `axis` (null = all), ascending from 0.
std::vector<int64_t> summed_axes(const Builder& b, LossArgs args, ValueId p) {
  const auto rank = static_cast<int64_t>(b.shape(p).size());
  if (!args.has("axis")) {
    std::vector<int64_t> all(static_cast<size_t>(rank));
    std::iota(all.begin(), all.end(), int64_t{0});
    return all;
  }
  std::vector<int64_t> axes = integers_of(args.arg("axis"));
  for (int64_t& axis : axes) {
    axis = normal_axis(axis, b.shape(p).size());
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

LossValues dice(Builder& b, LossArgs args, ValueId y, ValueId p) {
  const std::vector<int64_t> axes = summed_axes(b, args, p);
  const ValueId both = b.reduce_sum(b.mul(y, p), axes);
  const ValueId sizes = b.add(b.reduce_sum(y, axes), b.reduce_sum(p, axes));
  return {one_minus(b, b.div(b.mul(both, 2.0), b.add(sizes, kEpsilon)))};
}

// alpha weighs false alarms and beta misses, as in Keras 3.16; 3.15 has them exchanged.
LossValues tversky(Builder& b, LossArgs args, ValueId y, ValueId p) {
  const std::vector<int64_t> axes = summed_axes(b, args, p);
  const ValueId both = b.reduce_sum(b.mul(y, p), axes);
  const ValueId missed = b.reduce_sum(b.mul(y, one_minus(b, p)), axes);
  const ValueId extra = b.reduce_sum(b.mul(one_minus(b, y), p), axes);
  const ValueId all =
      b.add(both, b.add(b.mul(extra, args.number("alpha")), b.mul(missed, args.number("beta"))));
  return {one_minus(b, b.div(both, b.add(all, kEpsilon)))};
}

}  // namespace

LossTable region_losses() {
  return {{"dice", dice, TargetKind::kLikeOutput, Expects::kProbabilities},
          {"tversky", tversky, TargetKind::kLikeOutput, Expects::kProbabilities}};
}

}  // namespace meshtrain
