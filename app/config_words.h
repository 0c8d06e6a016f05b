// CONFIG... [KEY=VALUE...], and the flags that stand for keys of the config.
#pragma once

#include <CLI/CLI.hpp>
#include <deque>
#include <string>
#include <vector>

#include "config/load.h"
#include "train/model_source.h"

namespace meshtrain {

// What a subcommand does with a config's data, which decides whether --epochs and --limit-steps can
// act.
enum class Steps { kFit, kEvaluate, kNone };

struct ConfigWords {
  std::vector<std::string> words;  // config files and overrides, in order
  std::string profile;

  // CONFIG... and the flags.
  void add_to(CLI::App& app, Steps steps = Steps::kFit);
  // The same where the words may name a run, or others as `name` and `meaning` say.
  void add_source_to(CLI::App& app, Steps steps);
  void add_named_to(CLI::App& app, Steps steps, const char* name, const std::string& meaning);
  // The flags alone.
  void add_flags(CLI::App& app, Steps steps = Steps::kFit);
  // A flag for `key`, and one that the help lists with the key, under "Config keys".
  CLI::Option* add_flag(CLI::App& app, const char* flag, const char* key,
                        const std::string& meaning);
  void add_key_flag(CLI::App& app, const char* flag, const char* type, const char* key,
                    const char* meaning);

  // The words and flags, for a config that may come from elsewhere.
  LoadOptions overrides() const;
  // The same for a config among the words. `resumes`: --resume was given. Throws ConfigError E140
  // where no file is among them, or something else in a file's place.
  LoadOptions load(bool require_data, bool resumes = false) const;
  // The same for a config with --weights, or a run or a checkpoint.
  ModelSource source(const std::string& weights, bool require_data) const;
  std::string value_of(const std::string& flag) const;  // "" where it is not given

 private:
  struct KeyFlag {
    std::string name, key, value;
  };

  std::vector<std::string> sets_;  // --set
  std::deque<KeyFlag> flags_;      // whose places the parser knows
};

}  // namespace meshtrain
