#include "run_facts.h"

#include <fmt/format.h>

#include <optional>

#include "base/build_id.h"
#include "base/text.h"
#include "checkpoint/restore.h"
#include "engine/distribution.h"
#include "given_run.h"

namespace meshtrain {
namespace {

// The config that the verb reads from files; none where it has it from elsewhere.
std::optional<LoadOptions> config_options(const Arguments& arguments, std::string_view verb) {
  if (verb == "evaluate" || verb == "predict") {
    return given_run(arguments, verb == "evaluate").options;
  }
  return verb == "train" ? std::optional(load_options(arguments, true)) : std::nullopt;
}

DeviceRequest devices_of(const Config& config, int processes) {
  Diagnostics diagnostics;
  const Distribution distribution = make_distribution(config, processes, diagnostics);
  diagnostics.throw_if_errors();
  return distribution.devices;
}

// As the command line would have it. Only what changes the run: how much is shown where may differ.
std::string flags_text(const Arguments& a) {
  std::string text;
  const auto add = [&](const char* flag, const std::string& value) {
    text += value.empty() ? "" : fmt::format("{}{}={}", text.empty() ? "" : " ", flag, value);
  };
  const auto add_switch = [&](const char* flag, bool on) {
    text += on ? fmt::format("{}{}", text.empty() ? "" : " ", flag) : "";
  };
  add("RUN", a.target);
  add("--run-dir", a.run_dir);
  add("--resume", a.resume);
  add("--allow", join(a.allow, ","));
  add_switch("--reset-cursor", a.reset_cursor);
  add_switch("--reset-optimizer", a.reset_optimizer);
  add_switch("--partial", a.partial);
  add("--weights", a.weights);
  add("--input", a.input);
  add("--output", a.output);
  return text;
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

std::vector<Fact> run_facts(const Arguments& arguments, std::string_view verb, int processes) {
  std::vector<Fact> facts = {{"version", kVersion},
                             {"build", build_id()},
                             {"verb", std::string(verb)},
                             {"flags", flags_text(arguments)}};
  if (const auto options = config_options(arguments, verb)) {
    const Config config = load_config(*options);
    facts.push_back({"config", show_config(*options, false), config_difference});
    const DeviceRequest devices = devices_of(config, processes);
    facts.push_back({"devices", devices.is_gpu ? "gpu" : "cpu"});
  } else {  // of another place, with these changes
    LoadOptions changes = override_options(arguments);
    std::vector<std::string> words = changes.overrides;
    for (const auto& [key, value] : changes.flags) {
      words.push_back(key + "=" + value);
    }
    facts.push_back({"changes", join(words, " ")});
  }
  return facts;
}

bool wants_gpu(const Arguments& arguments, std::string_view verb, int processes) {
  const auto options = config_options(arguments, verb);
  return !options || devices_of(load_config(*options), processes).is_gpu;
}

}  // namespace meshtrain
