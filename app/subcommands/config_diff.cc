// meshtrain config diff: where two configs, or those of two runs, mean something else.
#include <fmt/format.h>

#include "base/text.h"
#include "config/config_changes.h"
#include "output.h"
#include "record/events.h"
#include "subcommand.h"
#include "train/model_source.h"

namespace meshtrain {
namespace {

struct ConfigDiffOptions {
  std::string before, after;
  std::string format = "text";
};

std::string meaning_of(const std::string& file_or_run) {
  LoadOptions load;
  load.files = {file_or_run};
  load.require_data = false;
  return show_config(model_source(std::move(load), "").load, false);
}

std::string as_json(const std::vector<ConfigChange>& changes) {
  std::string list;
  for (const ConfigChange& change : changes) {
    const auto value = [](const std::string& text) {
      return text.empty() ? std::string("null") : json_string(text);
    };
    list += fmt::format(R"({}{{"key":{},"before":{},"after":{}}})", list.empty() ? "" : ",",
                        json_string(change.key), value(change.before), value(change.after));
  }
  return fmt::format(R"({{"changes":[{}]}})"
                     "\n",
                     list);
}

int run_config_diff(const ConfigDiffOptions& options, Invocation&) {
  const std::vector<ConfigChange> changes =
      config_changes(meaning_of(options.before), meaning_of(options.after));
  out_stream().write(options.format == "json" ? as_json(changes) : changes_text(changes));
  return changes.empty() ? 0 : static_cast<int>(ExitCode::kCheckFailed);
}

}  // namespace

void add_config_diff(Subcommands& to) {
  auto [app, options, subcommand] = to.add<ConfigDiffOptions>(
      "config diff", "Where two configs mean something else, defaults included", run_config_diff);
  app.add_option("BEFORE", options.before, "A config, or a run")->required();
  app.add_option("AFTER", options.after, "Another one")->required();
  add_format_flag(app, options.format);
  app.footer("Exit codes: 0 they mean the same; 7 they differ.");
}

}  // namespace meshtrain
