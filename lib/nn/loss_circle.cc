// Circle loss over all pairs of the global batch (Sun et al. 2020; Keras 3 losses/losses.py).
#include "nn/arguments.h"
#include "nn/loss_table.h"

namespace meshtrain {
namespace {

// ln of the sum of exp(x) over the marked entries of each row; 0 for a row without any. Everything
// is finite, so that gradients of unmarked entries are 0 and not NaN.
ValueId masked_log_sum(Builder& b, ValueId x, ValueId marked, ValueId has_any) {
  const ValueId zero = constant_like(b, x, 0);
  const ValueId lowest = constant_like(b, x, -1e30);
  const ValueId largest = b.reduce_max(b.select(marked, x, lowest), {1});
  const ValueId shift = b.expand_dims(b.select(has_any, largest, zero), 1);
  const ValueId terms = b.exp(b.select(marked, b.sub(x, shift), zero));
  const ValueId sum = b.reduce_sum(b.select(marked, terms, zero), {1});
  const ValueId safe = b.select(has_any, sum, constant_like(b, x, 1));
  return b.add(b.log(safe), b.squeeze(shift, 1));
}

ValueId has_marked(Builder& b, ValueId marked, DType dtype) {
  return b.binary("gt", b.reduce_sum(b.cast(marked, dtype), {1}), b.constant(0, dtype));
}

// y: labels (B,) or (B, 1); p: embeddings (B, D), of length 1 as Keras' text asks. Rows that lack a
// pair of either kind have loss 0 and do not count.
LossValues circle(Builder& b, LossArgs args, ValueId y, ValueId p) {
  const double gamma = args.number("gamma");
  const double margin = args.number("margin");
  const DType dtype = b.dtype(p);
  const ValueId labels = class_ids(b, y, p);
  const ValueId same =
      b.binary("eq", b.expand_dims(labels, 1), b.expand_dims(labels, 0));  // (B, B)
  ValueId positive = same;
  if (args.boolean("remove_diagonal")) {
    const Shape pairs = b.shape(same);
    const ValueId off_diagonal =
        b.binary("ne", b.iota(pairs, 0, DType::kInt32), b.iota(pairs, 1, DType::kInt32));
    positive = b.binary("logical_and", same, off_diagonal);
  }
  const ValueId negative = b.unary("logical_not", same);
  const ValueId distance = b.maximum(one_minus(b, b.einsum("id,jd->ij", {p, p})), 0.0);

  // Weights grow with the distance from the optimum; those of negatives end at 0.
  const ValueId of_positive = b.mul(b.mul(b.add(distance, margin), b.sub(distance, margin)), gamma);
  const ValueId negative_weight =
      b.maximum(b.sub(constant_like(b, distance, 1 + margin), distance), 0.0);
  const ValueId of_negative =
      b.mul(b.mul(negative_weight, b.sub(constant_like(b, distance, 1 - margin), distance)), gamma);

  const ValueId has_positive = has_marked(b, positive, dtype);
  const ValueId has_negative = has_marked(b, negative, dtype);
  const ValueId sum = b.add(masked_log_sum(b, of_positive, positive, has_positive),
                            masked_log_sum(b, of_negative, negative, has_negative));
  const ValueId zero = constant_like(b, sum, 0);
  LossValues out;
  out.values =
      b.select(b.binary("logical_and", has_positive, has_negative), b.unary("softplus", sum), zero);
  out.mask = b.binary("gt", out.values, zero);
  return out;
}

}  // namespace

LossTable circle_losses() {
  return {{"circle", circle, TargetKind::kSampleLabels}};
}

}  // namespace meshtrain
