// Plans: prepared calls as one CUDA graph, or one after the other on a stream.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/prepared.h"

namespace meshtrain::cuda {

class Planner {
 public:
  explicit Planner(Core& core) : makers_(core) {}
  std::unique_ptr<gpu::Plan> make(const std::vector<gpu::Command>& commands,
                                  const std::vector<gpu::Window>& windows, int first, int steps);

 private:
  Makers makers_;
  std::map<std::string, std::weak_ptr<const Prepared>> prepared_;  // by checksum of fingerprints
};

}  // namespace meshtrain::cuda
