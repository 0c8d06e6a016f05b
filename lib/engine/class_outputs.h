// Outputs of a model that say which class a sample is of, for people who read predictions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/learned.h"
#include "engine/setup.h"

namespace meshtrain {

struct ClassOutput {
  enum class Kind {
    kNone,   // the output says no class
    kOneOf,  // (batch, ..., classes): the largest value is the class
    kYesNo,  // (batch, ..., 1): class 1 from a probability of one half on
    kEach,   // (batch, labels): each is a yes or no of its own
  };
  Kind kind = Kind::kNone;
  bool is_logits = false;          // values become probabilities by softmax or sigmoid
  std::vector<std::string> names;  // of classes by number, or of labels; empty: not known
  int64_t per_sample = 1;          // steps or pixels of a sample, each of which has a class

  // Whether each sample is of one class.
  bool is_of_samples() const {
    return (kind == Kind::kOneOf || kind == Kind::kYesNo) && per_sample == 1;
  }
};

// The loss that is computed of an output (fitting_loss()), if the config gives one.
std::optional<ConfigObject> loss_of_output(const Setup& setup, size_t output);

// One entry for each output of the model. Names are `model.class_names`, where they are as many as
// the classes of the only output, else come from `learned`, which may be null.
std::vector<ClassOutput> class_outputs(const Setup& setup, const LearnedPtr& learned);

// W127 where `model.class_names` are not as many.
void warn_of_class_names(const Setup& setup, Diagnostics& diagnostics);

}  // namespace meshtrain
