#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "help.h"
#include "subcommand.h"

namespace meshtrain {

// In the order of `meshtrain --help`; of a group, where its first one stands.
#define MESHTRAIN_SUBCOMMANDS(ADD) \
  ADD(train)                       \
  ADD(launch)                      \
  ADD(evaluate)                    \
  ADD(predict)                     \
  ADD(generate)                    \
  ADD(validate)                    \
  ADD(plan)                        \
  ADD(suggest)                     \
  ADD(explain)                     \
  ADD(summary)                     \
  ADD(completion)                  \
  ADD(config_diff)                 \
  ADD(config_show)                 \
  ADD(data_fetch)                  \
  ADD(data_inspect)                \
  ADD(data_tokenize)               \
  ADD(devices)                     \
  ADD(doctor)                      \
  ADD(export)                      \
  ADD(init)                        \
  ADD(inspect)                     \
  ADD(import)                      \
  ADD(report)                      \
  ADD(resume)                      \
  ADD(sweep)                       \
  ADD(compare)                     \
  ADD(runs_list)                   \
  ADD(runs_rm)                     \
  ADD(runs_prune)                  \
  ADD(runs_tag)                    \
  ADD(runs_note)                   \
  ADD(schema)                      \
  ADD(verify)                      \
  ADD(watch)                       \
  ADD(version)                     \
  ADD(bench_comm)

#define MESHTRAIN_DECLARE(name) void add_##name(Subcommands& to);
MESHTRAIN_SUBCOMMANDS(MESHTRAIN_DECLARE)

namespace {

struct Group {
  const char *name, *meaning;
};
constexpr Group kGroups[] = {{"config", "Show the merged config, compare two"},
                             {"data", "Data sets: download, look into them, tokenize texts"},
                             {"runs", "Runs in a folder: list, tag, remove"},
                             {"bench", "Measure this machine, or these processes"}};

// The app of a group, made when its first subcommand is added.
CLI::App& group_of(CLI::App& app, const std::string& name) {
  const auto made = app.get_subcommands([&](CLI::App* each) { return each->get_name() == name; });
  if (!made.empty()) {
    return *made.front();
  }
  const auto group = std::find_if(std::begin(kGroups), std::end(kGroups),
                                  [&](const Group& entry) { return name == entry.name; });
  MESHTRAIN_CHECK(group != std::end(kGroups), "no group of subcommands `{}`", name);
  CLI::App& added = *app.add_subcommand(name, group->meaning);
  added.require_subcommand(1)->group("Subcommands");
  return added;
}

}  // namespace

CLI::App& Subcommands::add_app(const Subcommand& subcommand, const std::string& meaning) {
  const std::vector<std::string> words = split(subcommand.name, ' ');
  CLI::App& parent = words.size() == 1 ? app_ : group_of(app_, words.front());
  CLI::App& added = *parent.add_subcommand(words.back(), meaning);
  added.group("Subcommands");
  added.callback([this, &subcommand] { chosen_ = &subcommand; });
  return added;
}

void add_subcommands(Subcommands& to) {
#define MESHTRAIN_ADD(name) add_##name(to);
  MESHTRAIN_SUBCOMMANDS(MESHTRAIN_ADD)
}

std::vector<std::string> given_words(const CLI::App& app) {
  std::vector<std::string> words, out;
  for (const CLI::App* chosen = &app; chosen != &innermost(app);) {
    chosen = chosen->get_subcommands().front();
    out.push_back(chosen->get_name() == "launch" ? "train" : chosen->get_name());
  }
  for (const CLI::Option* option : innermost(app).get_options()) {
    if (option->get_positional()) {
      words.insert(words.end(), option->results().begin(), option->results().end());
      continue;
    }
    if (option->get_group() == kProcessesGroup) {
      continue;
    }
    for (const std::string& value : option->results()) {
      out.push_back("--" + option->get_lnames().front() + "=" + value);
    }
  }
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

std::string flags_text(const CLI::App& app, std::initializer_list<const char*> names) {
  std::vector<std::string> words;
  for (const char* name : names) {
    const CLI::Option* option = app.get_option(name);
    if (option->count() > 0) {
      const bool is_switch = option->get_type_size() == 0 && option->get_option_text().empty();
      words.push_back(is_switch ? name : fmt::format("{}={}", name, join(option->results(), ",")));
    }
  }
  return join(words, " ");
}

}  // namespace meshtrain
