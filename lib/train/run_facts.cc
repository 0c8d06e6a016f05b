#include "train/run_facts.h"

#include <fmt/format.h>

#include "base/build_id.h"
#include "base/text.h"
#include "config/config_changes.h"
#include "engine/distribution.h"

namespace meshtrain {
namespace {

DeviceRequest devices_of(const Config& config, int processes) {
  Diagnostics diagnostics;
  const Distribution distribution = make_distribution(config, processes, diagnostics);
  diagnostics.throw_if_errors();
  return distribution.devices;
}

std::vector<std::string> config_difference(const std::string& first, const std::string& other) {
  std::vector<std::string> lines;
  for (const ConfigChange& change : config_changes(first, other)) {
    lines.push_back(fmt::format("{} is {}, on rank 0 {}", change.key,
                                change.after.empty() ? "not set" : change.after,
                                change.before.empty() ? "not set" : change.before));
  }
  return lines.empty() ? std::vector<std::string>{"another text"} : lines;
}

}  // namespace

std::vector<Fact> run_facts(const SharedCommand& command, int processes) {
  std::vector<Fact> facts = {{"version", command.version},
                             {"build", build_id()},
                             {"subcommand", command.name},
                             {"flags", command.flags}};
  const LoadOptions options = command.load();
  if (command.has_config) {
    const Config config = load_config(options);
    facts.push_back({"config", show_config(options, false), config_difference});
    const DeviceRequest devices = devices_of(config, processes);
    facts.push_back({"devices", devices.is_gpu ? "gpu" : "cpu"});
  } else {
    std::vector<std::string> words = options.overrides;
    for (const auto& [key, value] : options.flags) {
      words.push_back(key + "=" + value);
    }
    facts.push_back({"changes", join(words, " ")});
  }
  return facts;
}

bool wants_gpu(const SharedCommand& command, int processes) {
  return !command.has_config || devices_of(load_config(command.load()), processes).is_gpu;
}

}  // namespace meshtrain
