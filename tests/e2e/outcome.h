// What a run leaves that must not depend on how often it was stopped.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/json.h"
#include "command.h"

namespace meshtrain {

struct Outcome {
  std::string weights;                        // bytes of weights.safetensors
  std::string epochs;                         // number and logs of each, a line per epoch
  std::map<std::string, std::string> shards;  // of the newest checkpoint: weights, slots, counters
  bool operator==(const Outcome&) const = default;
};

// Of the run in the folder `run`, which saved checkpoints.
inline Outcome outcome_of(const std::string& run) {
  namespace fs = std::filesystem;
  const auto read = [](const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  Outcome out;
  out.weights = read(run + "/weights.safetensors");
  for (const std::string& line : lines_of(read(run + "/metrics.jsonl"))) {
    const nlohmann::json event = parse_json(line);
    if (event.at("event") == "epoch") {
      out.epochs += json_text(event.at("epoch")) + " " + json_text(event.at("logs")) + "\n";
    }
  }
  std::string newest;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints")) {
    const std::string name = entry.path().filename().string();
    if (std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      newest = std::max(newest, entry.path().string());
    }
  }
  REQUIRE(!newest.empty());
  for (const auto& entry : fs::recursive_directory_iterator(newest)) {
    if (entry.path().extension() == ".safetensors") {
      out.shards[fs::relative(entry.path(), newest).string()] = read(entry.path().string());
    }
  }
  return out;
}

// Sorted.
inline std::vector<std::string> names_below(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace meshtrain
