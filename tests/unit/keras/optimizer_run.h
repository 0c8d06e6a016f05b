// Steps of an optimizer on the weights of optimizers.json, by a backend.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends.h"
#include "nn/compile.h"

namespace meshtrain::testing {

// In the order of optimizers.py.
inline const std::vector<std::pair<std::string, Shape>> kWeights = {{"kernel", {4, 3}},
                                                                    {"bias", {5}},
                                                                    {"wide", {2, 5}},
                                                                    {"embeddings", {3, 2}},
                                                                    {"conv", {2, 2, 3, 2}}};

// The variables of an optimizer and the golden's weights, stepped by a backend.
class OptimizerRun {
 public:
  OptimizerRun(const Optimizer& optimizer, DType dtype, Backend backend);
  // Step t (from 1), with gradients times `factor`; `odd` goes into the first element of the third.
  void step(int64_t t, double factor, double odd = 0);
  HostTensor weight(size_t i) const { return runner_->read(static_cast<int>(i)); }
  HostTensor first_slot(size_t i) const { return runner_->read(slots_[i].at(0)); }
  HostTensor scalar(size_t s) const { return runner_->read(scalars_[s]); }
  int64_t iteration() const { return static_cast<int64_t>(runner_->read(iteration_).at(0)); }

 private:
  Graph graph(bool apply_now) const;

  const Optimizer& optimizer_;
  DType dtype_;
  std::vector<Variable> variables_;
  std::vector<std::vector<int>> slots_;  // by weight
  std::vector<int> scalars_;
  int iteration_ = kNone;
  std::unique_ptr<GraphRunner> runner_;
  std::map<bool, int> graphs_;  // by whether they apply what is accumulated
};

}  // namespace meshtrain::testing
