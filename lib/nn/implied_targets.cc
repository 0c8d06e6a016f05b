#include "nn/implied_targets.h"

#include <algorithm>

#include "nn/compile.h"
#include "nn/loss_functions.h"

namespace meshtrain {
namespace {

// How many of loss and metrics do not take targets of this shape.
int64_t count_misfits(const ComparedOutput& output, const Shape& y_true, DType floatx,
                      const NamedShapes& outputs) {
  Diagnostics found;
  if (output.loss != nullptr) {
    check_loss(fitting_loss(*output.loss, y_true, output.y_pred), y_true, output.y_pred, found,
               outputs);
  }
  for (const ConfigObject* metric : output.metrics) {
    make_metric(*metric, y_true, output.y_pred, floatx, found, outputs);
  }
  return std::count_if(found.list().begin(), found.list().end(), [](const Diagnostic& problem) {
    return problem.code == "E123" || problem.code == "E132";
  });
}

ValueType targets_of(const ConfigObject& loss, const Shape& y_pred, DType floatx) {
  return {implied_target_shape(loss, y_pred), loss_takes_class_ids(loss) ? DType::kInt32 : floatx};
}

bool leaves_open(const ConfigObject* loss) {
  return loss == nullptr || loss->class_name == "crossentropy" ||
         loss_targets(loss->class_name) == TargetKind::kAny;
}

}  // namespace

ValueType implied_targets(const ComparedOutput& output, DType floatx, const NamedShapes& outputs) {
  const Shape& y_pred = output.y_pred;
  if (!leaves_open(output.loss)) {
    return targets_of(*output.loss, y_pred, floatx);
  }
  std::vector<ValueType> candidates = {{y_pred, floatx}};
  for (size_t rank = y_pred.size(); rank-- > 1;) {
    const Shape ids(y_pred.begin(), y_pred.begin() + static_cast<std::ptrdiff_t>(rank));
    if (rank + 1 == y_pred.size() || rank == 1) {
      candidates.push_back({ids, DType::kInt32});
    }
  }
  std::vector<int64_t> misfits;
  for (const ValueType& candidate : candidates) {
    misfits.push_back(count_misfits(output, candidate.shape, floatx, outputs));
  }
  return candidates[static_cast<size_t>(std::min_element(misfits.begin(), misfits.end()) -
                                        misfits.begin())];
}

}  // namespace meshtrain
