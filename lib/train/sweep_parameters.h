// What varies in a sweep, and how its values are combined.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "config/yaml.h"

namespace meshtrain {

constexpr int64_t kMostSweepMembers = 100000;

// Keys of the config and their values as the command line has them, in the order given.
using SweepValues = std::vector<std::pair<std::string, std::string>>;

// A key and what it may be: texts, or a range to draw from.
struct SweepParameter {
  std::string key;
  SourceLoc loc;
  std::vector<std::string> choices;
  double low = 0, high = 0;
  bool is_range = false, is_log = false, is_integer = false;
};

// The key that a name stands for, as flags of `train` do: `mesh`, `devices`, `batch_size`,
// `epochs`; other keys themselves.
std::string whole_key(const std::string& key);
// Keys with their values, of a map that is `owner` in messages.
SweepValues values_of(const YamlNode& map, const char* owner, Diagnostics& diagnostics);

// An entry of `parameters`: a list, or a range where `may_be_range`.
SweepParameter parameter_of(const YamlNode& node, bool may_be_range, Diagnostics& diagnostics);
// "KEY=VALUE,VALUE" of the flag `name`; of --random also "KEY=log:1e-4..1e-1".
SweepParameter parameter_of_flag(const char* name, const std::string& word,
                                 Diagnostics& diagnostics);

// Every combination; the last key varies fastest. Throws ConfigError E113 above kMostSweepMembers.
std::vector<SweepValues> grid_of(const std::vector<SweepParameter>& parameters);
// The first value of each, the second of each, ...
std::vector<SweepValues> zip_of(const std::vector<SweepParameter>& parameters,
                                Diagnostics& diagnostics);
// A value is a function of seed, trial and key: more trials or parameters leave the others as they
// are.
std::vector<SweepValues> random_of(const std::vector<SweepParameter>& parameters, int64_t trials,
                                   int64_t seed);

}  // namespace meshtrain
