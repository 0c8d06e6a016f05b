#include "engine/head_losses.h"

#include <algorithm>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/metric.h"

namespace meshtrain {
namespace {

// Of the last axis.
bool is_from_logits(const ConfigObject& object) {
  return boolean_or(object, "from_logits", false) && integer_or(object, "axis", -1) == -1;
}

bool is_token_loss(const ConfigObject& loss) {
  return loss.class_name == "SparseCategoricalCrossentropy" && is_from_logits(loss);
}

bool is_token_metric(const ConfigObject& metric, const Shape& y_true, const Shape& y_pred) {
  const std::string name = metric_class(metric, y_true, y_pred);
  return name == "SparseCategoricalAccuracy" ||
         ((name == "SparseCategoricalCrossentropy" || name == "Perplexity") &&
          is_from_logits(metric));
}

}  // namespace

bool reads_token_losses(const CompileConfig& compile, const std::vector<std::string>& outputs,
                        size_t output, const Shape& y_true, const Shape& y_pred) {
  // Losses in a list are those of the outputs in order.
  const auto is_of = [&](const std::vector<OutputObject>& entries, const OutputObject& entry) {
    if (!entry.output.empty()) {
      return entry.output == outputs[output];
    }
    const bool in_order = &entries == &compile.loss && entries.size() == outputs.size();
    return !in_order || &entry == &entries[output];
  };
  int losses = 0;
  for (const OutputObject& entry : compile.loss) {
    if (entry.object.class_name == "Lambda") {  // may name any output
      return false;
    }
    if (is_of(compile.loss, entry)) {
      if (!is_token_loss(entry.object)) {
        return false;
      }
      ++losses;
    }
  }
  for (const auto* entries : {&compile.metrics, &compile.weighted_metrics}) {
    for (const OutputObject& entry : *entries) {
      const bool is_read =
          entry.object.class_name == "Lambda" ||
          (is_of(*entries, entry) && !is_token_metric(entry.object, y_true, y_pred));
      if (is_read) {
        return false;
      }
    }
  }
  return losses == 1;
}

}  // namespace meshtrain
