// Two engines of one model, on different meshes, that do the same steps.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace meshtrain {

class EngineComparison {
 public:
  using BatchRows = std::vector<std::vector<int64_t>>;  // the samples of each batch

  // `tolerance`: largest difference, relative to numbers above 1.
  EngineComparison(Engine& one, Engine& mesh, double tolerance)
      : one_(one), mesh_(mesh), tolerance_(tolerance) {}

  // Returns the first thing that differs, in words; empty when all agree.
  std::string run(const Dataset& train, const BatchRows& batches);

  double largest() const { return largest_; }
  const std::string& largest_at() const { return largest_at_; }

 private:
  double difference(double a, double b, const std::string& what);
  std::string number(const std::string& what, double a, double b, const std::string& when);
  std::string variables(const std::string& when);
  std::string tensor(const std::string& path, const HostTensor& a, const HostTensor& b,
                     const std::string& when);

  Engine &one_, &mesh_;
  double tolerance_;
  double largest_ = 0;
  std::string largest_at_;
};

}  // namespace meshtrain
