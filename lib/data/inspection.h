// What samples a data set or a file has, for people and programs: `meshtrain data inspect`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/array_stats.h"
#include "data/dataset.h"
#include "data/table_profile.h"

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
  std::optional<TableProfile> table = {};  // of tables: their columns
  std::optional<TextProfile> text = {};
  std::vector<std::string> first = {};                       // two samples, as text
  std::map<std::string, std::vector<std::string>> ids = {};  // column -> texts in order of ids
};

InspectedPart inspect_dataset(const std::string& name, const Dataset& data, int64_t batch_size,
                              bool drops_remainder);
// Profiles the columns of a csv's files, whatever part of them the source takes; nothing for
// others.
std::optional<TableProfile> profile_source(const ConfigObject& source, const DataConfig& data);

// Throws as read_guessed().
InspectedPart inspect_path(const std::string& path);

std::string inspection_text(const std::vector<InspectedPart>& parts);
std::string inspection_json(const std::vector<InspectedPart>& parts);

}  // namespace meshtrain
