#include "engine/run_steps.h"

#include <algorithm>

#include "engine/epoch_plan.h"
#include "engine/run_data.h"
#include "engine/state_batches.h"

namespace meshtrain {
namespace {

class StepList {
 public:
  void add(StepKind kind, int64_t batch) {
    const StepBatch step{kind, batch};
    if (std::find(list_.begin(), list_.end(), step) == list_.end())
      list_.push_back(step);
  }
  std::vector<StepBatch> take() { return std::move(list_); }

 private:
  std::vector<StepBatch> list_;
};

// Whether one of the epochs trains on batch `index` of a pass. From the pass in which fit begins
// all passes are alike.
bool trains_on(const FitConfig& fit, int64_t num_batches, int64_t index) {
  const int64_t wanted = fit.steps_per_epoch;
  const int64_t epochs_per_pass = wanted > 0 ? (num_batches + wanted - 1) / wanted : 1;
  const int64_t end = std::min<int64_t>(fit.epochs, fit.initial_epoch + epochs_per_pass);
  for (int64_t epoch = fit.initial_epoch; epoch < end; ++epoch) {
    const EpochPlan plan = plan_epoch(fit, num_batches, epoch);
    if (index >= plan.first_batch && index < plan.first_batch + plan.steps)
      return true;
  }
  return false;
}

void add_training(const Config& config, int64_t samples, int64_t most, StepList& list) {
  FitConfig fit = config.fit;
  fit.batch_size.value = std::min(fit.batch_size.value, most);
  const int64_t batch = fit.batch_size;
  const bool accumulates = Optimizer(config.compile.optimizer).accumulation_steps() > 1;
  const int64_t full = samples / batch, rest = samples % batch;
  const int64_t num_batches =
      count_batches(samples, batch, config.data.remainder == Remainder::kDrop);
  const auto add = [&](int64_t size) {
    list.add(StepKind::kTrain, size);
    if (accumulates)
      list.add(StepKind::kAccumulate, size);
  };
  if (full > 0 && trains_on(fit, num_batches, 0))
    add(batch);
  if (rest > 0 && num_batches > full && trains_on(fit, num_batches, full))
    add(rest);
}

// `steps` 0: all batches.
void add_tests(int64_t samples, int64_t batch, int64_t steps, bool drops_last, StepList& list) {
  const int64_t full = samples / batch, rest = samples % batch;
  if (full > 0)
    list.add(StepKind::kTest, batch);
  if (rest > 0 && !drops_last && (steps == 0 || steps > full))
    list.add(StepKind::kTest, rest);
}

}  // namespace

std::vector<StepBatch> steps_of_run(const Config& config, const RunSamples& samples, int64_t most) {
  const FitConfig& fit = config.fit;
  const bool drops_last = drops_last_test(config);
  StepList list;
  if (samples.train > 0)
    add_training(config, samples.train, most, list);
  if (samples.validation > 0) {
    add_tests(samples.validation, std::min(validation_batch_size(fit), most), fit.validation_steps,
              drops_last, list);
  }
  if (samples.evaluated > 0) {
    add_tests(samples.evaluated, std::min(evaluated_batch_size(config), most),
              config.evaluate.steps, drops_last, list);
  }
  return list.take();
}

}  // namespace meshtrain
