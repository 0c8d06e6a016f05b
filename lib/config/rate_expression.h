// The `schedule` of LearningRateScheduler: an expression that is not evaluated with the others but
// before each epoch, with the names `epoch` (from 0) and `lr` (the rate before), and `pi`.
//
//   schedule: =lr if epoch < 10 else lr * exp(-0.1)
#pragma once

#include <cstdint>
#include <string>

#include "config/expression.h"
#include "config/yaml.h"

namespace meshtrain {

class RateExpression {
 public:
  explicit RateExpression(std::string text) : text_(std::move(text)) {}

  // Throws ExprError when it cannot be evaluated, or gives no finite number that is 0 or more.
  double operator()(int64_t epoch, double rate) const;

 private:
  std::string text_;
};

// Makes the schedules in `callbacks` of `root` plain texts that stand for themselves: the `=` goes,
// the values of other names take their place. E132 for what cannot be evaluated.
void bind_rate_expressions(YamlNode& root, Expressions& expressions, Diagnostics& diagnostics);

}  // namespace meshtrain
