// Subcommands: `meshtrain SUBCOMMAND CONFIG... [KEY=VALUE...] [--flags]`. Each is a file of
// subcommands/ with a struct of its flags, a function that does the work, and add_NAME(), which
// registers both; subcommands.cc lists them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "config/load.h"
#include "train/restarts.h"
#include "train/run_facts.h"

namespace meshtrain {

// One run of the program, for the subcommand that it runs.
struct Invocation {
  std::vector<std::string> command_line;  // all of it, as given
  // Subcommand, flags and words for processes that this one starts to do its work: without what
  // only concerns starting them.
  std::vector<std::string> given_words;
  Processes processes;  // that do the work; made before it begins
  int num_workers = 0;  // threads that compute; 0: one per core
  bool started =
      false;  // something is on disk: an error can no longer say that nothing was started
  bool result_is_on_stdout = false;  // and nowhere else, or what reads it needs all of it
};

struct Subcommand {
  std::string name;  // "data fetch"
  // Returns the exit code and throws what main() shows.
  std::function<int(Invocation&)> run;
  // Where the processes of a run do the work together: what they are asked, without the name, the
  // version and the words. nullopt, and no function at all: rank 0 does it alone.
  std::function<std::optional<SharedCommand>()> shared = [] { return std::nullopt; };
  bool starts_processes = false;  // itself: it is not to be one of several
  // Where it trains with --log-format json: what it was given. Of a run that ends before its start,
  // stdout then has a line as well.
  std::function<std::optional<LoadOptions>()> json_run = [] { return std::nullopt; };
};

// The subcommands of a parser, and the one that was chosen.
class Subcommands {
 public:
  explicit Subcommands(CLI::App& app) : app_(app) {}
  Subcommands(const Subcommands&) = delete;
  Subcommands& operator=(const Subcommands&) = delete;

  // What add() made: flags are added to `app`, with places in `options`.
  template <typename Options>
  struct Added {
    CLI::App& app;
    Options& options;
    Subcommand& subcommand;
  };

  // `name`: "train", or "data fetch" for one of a group.
  template <typename Options>
  Added<Options> add(const std::string& name, const std::string& meaning,
                     int (*run)(const Options&, Invocation&)) {
    const auto options = std::make_shared<Options>();
    Subcommand& subcommand = *all_.emplace_back(new Subcommand{
        name, [options, run](Invocation& invocation) { return run(*options, invocation); }});
    return {add_app(subcommand, meaning), *options, subcommand};
  }

  const Subcommand& chosen() const { return *chosen_; }  // once parsed

 private:
  CLI::App& add_app(const Subcommand& subcommand, const std::string& meaning);

  CLI::App& app_;
  std::vector<std::unique_ptr<Subcommand>> all_;
  const Subcommand* chosen_ = nullptr;
};

void add_subcommands(Subcommands& to);

// Of flags that only concern starting the processes of a run.
inline constexpr const char* kProcessesGroup = "Processes";
// What was parsed, with each flag and its value as one word, for processes that this one starts:
// without flags of that group; `launch` becomes `train`.
std::vector<std::string> given_words(const CLI::App& app);
// "RUN=runs/a --partial": the positional arguments and flags with these names, where given.
std::string flags_text(const CLI::App& app, std::initializer_list<const char*> names);

}  // namespace meshtrain
