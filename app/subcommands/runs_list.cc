// meshtrain runs list: what runs a folder has.
#include <filesystem>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "output.h"
#include "record/progress.h"
#include "record/run_list.h"
#include "record/run_summary.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct RunsListOptions {
  std::string folder, format = "text", tag;
};

nlohmann::ordered_json json_of(const RunSummary& run, const RunNotes& notes) {
  nlohmann::ordered_json logs = nlohmann::ordered_json::object();
  for (const auto& [name, value] : run.logs) {
    logs[name] = value;
  }
  return {{"folder", run.folder}, {"name", run.name},   {"state", run_state(run)},
          {"epochs", run.epochs}, {"logs", logs},       {"bytes", run_bytes(run.folder)},
          {"tags", notes.tags},   {"note", notes.note}, {"last_written", last_written(run.folder)}};
}

int run_runs_list(const RunsListOptions& options, Invocation&) {
  std::error_code error;
  const std::string root = options.folder.empty() ? "runs" : options.folder;
  if (!options.folder.empty() && !std::filesystem::is_directory(root, error)) {
    throw ConfigError("E400", {}, fmt::format("there is no folder `{}`", root));
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows = {
      {"run", "state", "epochs", "last logs", "size", "tags", "note"}};
  int64_t bytes = 0;
  for (const std::string& folder : find_runs(root)) {
    const RunSummary run = summarize_run(read_run_record(folder));
    const RunNotes notes = read_notes(folder);
    if (!options.tag.empty() &&
        std::find(notes.tags.begin(), notes.tags.end(), options.tag) == notes.tags.end()) {
      continue;
    }
    all.push_back(json_of(run, notes));
    const std::string logs = metrics_text(run.logs, true);
    const int64_t size = run_bytes(folder);
    bytes += size;
    rows.push_back({folder, run_state(run), std::to_string(run.epochs),
                    logs.empty() ? "-" : logs.substr(3), format_bytes(size),
                    notes.tags.empty() ? "-" : join(notes.tags, " "), notes.note});
  }
  if (options.format == "json") {
    out_stream().write(json_text(all, 1, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } else if (rows.size() == 1) {
    err_stream().write(fmt::format("no runs in `{}`{}\n", root,
                                   options.tag.empty() ? "" : " have the tag " + options.tag));
  } else {
    out_stream().write(aligned_columns(rows, {2, 4}));
    err_stream().write(fmt::format("{} runs, {}\n", rows.size() - 1, format_bytes(bytes)));
  }
  return 0;
}

}  // namespace

void add_runs_list(Subcommands& to) {
  auto [app, options, subcommand] = to.add<RunsListOptions>(
      "runs list", "The runs of a folder: state, logs, size, tags", run_runs_list);
  app.add_option("FOLDER", options.folder, "Where to look, also below; default runs");
  app.add_option("--tag", options.tag, "Only those with this tag")->type_name("TAG");
  add_format_flag(app, options.format);
}

}  // namespace meshtrain
