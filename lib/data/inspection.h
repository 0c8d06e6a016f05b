// What samples a data set or a file has, for people and programs: `meshtrain data inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/array_stats.h"
#include "data/dataset.h"

namespace meshtrain {

struct InspectedArray {
  std::string name, role;  // "x", "input"; no role in a file
  DType dtype;
  Shape shape;
  int64_t bytes = 0;
  ArrayStats stats;
};

// A part of the config's data, or a file.
struct InspectedPart {
  std::string name, description;
  int64_t samples = 0;
  int64_t batch_size = 0, batches = 0;  // 0 for a file
  std::vector<std::string> class_names;
  std::vector<InspectedArray> arrays;
};

InspectedPart inspect_dataset(const std::string& name, const Dataset& data, int64_t batch_size,
                              bool drops_remainder);
// Throws as read_guessed().
InspectedPart inspect_path(const std::string& path);

std::string inspection_text(const std::vector<InspectedPart>& parts);
std::string inspection_json(const std::vector<InspectedPart>& parts);

}  // namespace meshtrain
