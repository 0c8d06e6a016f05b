// Whether the step needs the logits of an output at all.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace meshtrain {

// True when the loss of output `output` is sparse cross-entropy from logits, and losses and metrics
// read no more of that output than token_losses() has (nn/head_loss.h). Shapes have the batch.
bool reads_token_losses(const CompileConfig& compile, const std::vector<std::string>& outputs,
                        size_t output, const Shape& y_true, const Shape& y_pred);

}  // namespace meshtrain
