// Whether an output of a model is logits or probabilities, and the losses and metrics that expect
// the other of the two: the mistake that trains badly without an error.
#pragma once

#include <optional>
#include <vector>

#include "nn/model.h"

namespace meshtrain {

enum class OutputScale {
  kUnknown,        // an activation without a claim, a custom scale, an Input
  kLogits,         // a linear map without a bounded activation: any real number
  kProbabilities,  // of softmax, sigmoid and what else ends in 0 to 1
};

struct OutputOrigin {
  OutputScale scale = OutputScale::kUnknown;
  const Layer* layer = nullptr;  // that decides it; null when unknown
};

// The origin of each of model.calls(): layers that only move, drop or pool values are transparent.
std::vector<OutputOrigin> output_origins(const Model& model);

// One output of a model beside its targets; shapes with the batch.
struct CheckedOutput {
  const Model::Call& call;
  OutputOrigin origin;
  Shape y_true, y_pred;
  bool is_trained_as_logits = false;  // its loss takes logits
};

// Whether the loss takes logits: `from_logits: true`, and CTC; else probabilities, or nothing where
// it takes any numbers.
std::optional<bool> takes_logits(const ConfigObject& loss);
// Adds a W123 when the loss expects probabilities and gets logits, or the reverse. `loss` is the
// fitting_loss().
void warn_of_loss_scale(const ConfigObject& loss, const CheckedOutput& output,
                        Diagnostics& diagnostics);
// The same for a metric. Logits are what a loss takes for them: under `mse` the same output may be
// near 0 and 1. A threshold that the config gives is taken as meant.
void warn_of_metric_scale(const ConfigObject& metric, const CheckedOutput& output,
                          Diagnostics& diagnostics);
// Adds a W128 when a loss or a metric tells classes apart, and the output has one: it is the same
// for every sample.
void warn_of_single_class(const ConfigObject& object, const CheckedOutput& output,
                          Diagnostics& diagnostics);
// Adds a W124 for an output that is the same for every sample: softmax over a single value.
void warn_of_constant_output(const CheckedOutput& output, Diagnostics& diagnostics);

}  // namespace meshtrain
