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
  // Begins to compile what make() will need for these commands.
  void begin_compile(const std::vector<gpu::Command>& commands);
  std::unique_ptr<gpu::Plan> make(const std::vector<gpu::Command>& commands,
                                  const std::vector<gpu::Window>& windows, int first, int steps);

 private:
  Makers makers_;
  // By checksum of fingerprints.
  std::map<std::string, std::weak_ptr<const Prepared>> prepared_;
  std::map<std::string, std::unique_ptr<Prepared>> begun_;  // until make() is called
};

}  // namespace meshtrain::cuda
