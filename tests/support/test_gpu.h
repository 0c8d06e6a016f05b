// Suites of whole trainings on the emulated GPU: where $MESHTRAIN_TEST_GPU is set (tests/unit/gpu),
// configs with more than one device have all of them on gpu:0.
#pragma once

#include <cstdlib>
#include <regex>
#include <stdexcept>
#include <string>

#include "backend/gpu/load.h"

namespace meshtrain::test {

// Throws where it is asked for and is not there: a suite on the processor would pass for one on a
// GPU.
inline bool is_on_gpu() {
  static const bool is_on = [] {
    if (std::getenv("MESHTRAIN_TEST_GPU") == nullptr)
      return false;
    std::string reason;
    if (gpu::load_runtime(reason) == nullptr)
      throw std::runtime_error("$MESHTRAIN_TEST_GPU is set, but there is no GPU: " + reason);
    return true;
  }();
  return is_on;
}

// `shape: [2, 4], axis_names: ...` becomes `shape: [2, 4], devices: gpu:0x8, axis_names: ...`.
inline std::string on_test_gpu(const std::string& yaml) {
  static const std::regex kMesh("shape: \\[([0-9]+)(?:, ([0-9]+))?\\], axis_names");
  std::smatch found;
  if (!is_on_gpu() || !std::regex_search(yaml, found, kMesh)) {
    return yaml;
  }
  const long count = std::stol(found[1].str()) * (found[2].matched ? std::stol(found[2].str()) : 1);
  if (count == 1) {
    return yaml;
  }
  return std::string(found.prefix()) +
         std::regex_replace(found.str(), std::regex(", axis_names"),
                            ", devices: 'gpu:0x" + std::to_string(count) + "', axis_names") +
         std::string(found.suffix());
}

}  // namespace meshtrain::test
