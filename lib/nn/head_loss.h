// Losses of tokens without whole logits: where the predictions are a product without a bias that
// nothing but the loss and its metrics reads, the op linear_cross_entropy computes both.
#pragma once

#include <optional>

#include "config/object.h"
#include "ir/builder.h"

namespace meshtrain {

struct TokenLosses {
  ValueId losses = kNone;  // one a token: sparse categorical cross-entropy from logits
  ValueId hits = kNone;    // 1 where the target is the first of the largest logits, else 0
};

// Whether such a loss, or metric, reads no more of its output than TokenLosses has. Shapes have the
// batch.
bool is_token_loss(const ConfigObject& loss);
bool is_token_metric(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred);

// Adds linear_cross_entropy for predictions that are such a product, and says whether they are.
// `y`: class ids of whole numbers. Nothing may have read the predictions yet.
bool add_token_losses(Builder& b, ValueId y, ValueId predictions);
// What add_token_losses() added for these predictions, if it did.
std::optional<TokenLosses> token_losses(Builder& b, ValueId predictions);

}  // namespace meshtrain
