// Outputs of a model that say which class a sample is of, for people who read predictions.
#pragma once

#include <string>
#include <vector>

#include "data/learned.h"
#include "engine/setup.h"

namespace meshtrain {

struct ClassOutput {
  enum class Kind {
    kNone,   // the output says no class
    kOneOf,  // (batch, classes): the largest value is the class
    kYesNo,  // (batch, 1): class 1 from a probability of one half on
  };
  Kind kind = Kind::kNone;
  bool is_logits = false;          // values become probabilities by softmax or sigmoid
  std::vector<std::string> names;  // in the order of the class numbers; empty: not known
};

// The loss that the config gives an output, or null.
const ConfigObject* loss_of_output(const Setup& setup, size_t output);

// One entry for each output of the model. Names come from `learned`, which may be null.
std::vector<ClassOutput> class_outputs(const Setup& setup, const LearnedPtr& learned);

}  // namespace meshtrain
