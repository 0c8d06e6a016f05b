// What is common to callbacks that watch a log: its best value, and what is better.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/step_graph.h"
#include "train/callbacks/callback.h"

namespace meshtrain {

// Whether larger values of a log ("val_accuracy") are better: the loss's are not, a metric knows;
// nothing for other names.
std::optional<bool> larger_is_better(const StepGraphs& graphs, const std::string& log);

class Monitor {
 public:
  // `best`: the value to beat; none: the first is the best.
  Monitor(const MonitorOptions& options, double min_delta, const CallbackContext& context,
          std::optional<double> best = {});

  const std::string& name() const { return name_; }
  const std::optional<double>& best() const { return best_; }
  void set_best(std::optional<double> value) { best_ = value; }
  void forget_best() { best_ = first_best_; }
  // Adds the best value and what it is the best of to a callback's state; takes it from there.
  // load() is false, and the best value stays, where it is of another log or direction.
  void save(nlohmann::json& state) const;
  bool load(const nlohmann::json& state);
  // Whether `value` is better than `reference` by more than min_delta, in the precision that Keras
  // compares in. Everything is better than nothing.
  bool improves_on(double value, const std::optional<double>& reference) const;
  // The value in `logs`, or null; the first time that it is missing `missing` is the warning.
  const double* find(const Logs& logs, const std::string& missing);

 private:
  const CallbackContext& context_;
  std::string name_;
  bool larger_ = false;
  double delta_ = 0;  // of the value, before it is compared
  std::optional<double> best_, first_best_;
  bool warned_ = false;
};

// "accuracy,loss,val_loss"
std::string log_names(const Logs& logs);

}  // namespace meshtrain
