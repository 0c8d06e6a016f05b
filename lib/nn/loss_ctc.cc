// Connectionist temporal classification (Graves et al. 2006; Keras 3 losses/losses.py, whose JAX
// form is optax'). The forward recursion is written out step by step: the graph grows with the
// number of time steps.
#include "nn/activations.h"
#include "nn/loss_table.h"

namespace meshtrain {
namespace {

constexpr double kLogZero = -1e5;  // Keras' stand-in for ln 0

ValueId log_add(Builder& b, ValueId x, ValueId y) {
  const ValueId apart = b.unary("abs", b.sub(x, y));
  return b.add(b.maximum(x, y), b.unary("softplus", b.neg(apart)));
}

// States after a step: `blank` (B, L + 1), before each label and after the last; `label` (B, L).
struct Forward {
  ValueId blank, label;
};

// blank[:, 1:] may also be reached from `from` (B, L).
ValueId enter_blanks(Builder& b, ValueId blank, ValueId from) {
  const int64_t size = b.shape(blank)[1];
  const ValueId first = b.slice(blank, 1, 0, 1);
  return b.concat({first, log_add(b, b.slice(blank, 1, 1, size), from)}, 1);
}

// 0 where the next label is another, kLogZero where it is the same: (B, L).
ValueId repeat_penalty(Builder& b, ValueId labels, DType dtype) {
  const int64_t count = b.shape(labels)[1];
  if (count == 1) {
    return b.constant(0, dtype, b.shape(labels));
  }
  const ValueId repeats =
      b.binary("eq", b.slice(labels, 1, 0, count - 1), b.slice(labels, 1, 1, count));
  return b.mul(b.pad(b.cast(repeats, dtype), 1, 0, 1), kLogZero);
}

// y: labels (B, L), 0 = blank and padding; p: logits (B, T, K).
LossValues ctc(Builder& b, LossArgs, ValueId y, ValueId p) {
  const DType dtype = b.dtype(p);
  const ValueId labels = b.cast(y, DType::kInt32);
  const int64_t batch = b.shape(labels)[0];
  const int64_t count = b.shape(labels)[1];
  const int64_t steps = b.shape(p)[1];

  const ValueId log_p = log_softmax(b, p, {2});
  const ValueId of_blank = b.squeeze(b.slice(log_p, 2, 0, 1), 2);  // (B, T)
  const ValueId targets = b.one_hot(labels, b.shape(p)[2], dtype);
  const ValueId of_label = b.einsum("btk,bnk->btn", {log_p, targets});
  const ValueId if_repeated = repeat_penalty(b, labels, dtype);
  const ValueId if_other = b.sub(constant_like(b, if_repeated, kLogZero), if_repeated);

  Forward now{b.pad(b.constant(0, dtype, {batch, 1}), 1, 0, count, kLogZero),
              b.constant(kLogZero, dtype, {batch, count})};
  for (int64_t t = 0; t < steps; ++t) {
    const ValueId blank_t = b.slice(of_blank, 1, t, t + 1);                // (B, 1)
    const ValueId label_t = b.squeeze(b.slice(of_label, 1, t, t + 1), 1);  // (B, L)
    const ValueId ready = enter_blanks(b, now.blank, b.add(now.label, if_repeated));
    Forward next;
    next.label = b.add(log_add(b, b.slice(ready, 1, 0, count), now.label), label_t);
    next.blank = enter_blanks(b, b.add(ready, blank_t), b.add(b.add(now.label, blank_t), if_other));
    now = next;
  }
  const ValueId last = enter_blanks(b, now.blank, now.label);
  const ValueId is_label = b.binary("ne", labels, b.constant(0, DType::kInt32));
  const ValueId length = b.cast(b.reduce_sum(b.cast(is_label, dtype), {1}), DType::kInt32);
  const ValueId at_length = b.one_hot(length, count + 1, dtype);
  return {b.neg(b.reduce_sum(b.mul(last, at_length), {1}))};
}

}  // namespace

LossTable ctc_losses() {
  return {{"ctc", ctc, TargetKind::kLabelSequence, Expects::kLogits}};
}

}  // namespace meshtrain
