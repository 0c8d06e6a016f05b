// meshtrain runs tag: adds tags to a run, or takes them away.
#include "base/text.h"
#include "output.h"
#include "record/run_dir.h"
#include "record/run_list.h"
#include "subcommand.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

struct RunsTagOptions {
  std::string run;
  std::vector<std::string> tags, removed;
};

int run_runs_tag(const RunsTagOptions& options, Invocation&) {
  const std::string run = resolved_run(options.run);
  if (!is_run_dir(run)) {
    no_run_in(options.run);
  }
  for (const std::string& tag : options.tags) {
    check_line("a tag", tag);
    if (trim(tag).empty()) {
      refuse("E140", "a tag is empty", "tags are words");
    }
  }
  RunNotes notes = read_notes(run);
  notes.tags.insert(notes.tags.end(), options.tags.begin(), options.tags.end());
  for (const std::string& tag : options.removed) {
    if (std::erase(notes.tags, tag) == 0) {
      refuse("E140", fmt::format("the run has no tag `{}`", tag),
             notes.tags.empty() ? "it has none" : "its tags: " + join(notes.tags, ", "));
    }
  }
  if (!options.tags.empty() || !options.removed.empty()) {
    write_notes(run, notes);
  }
  out_stream().write(join(read_notes(run).tags, " ") + "\n");
  return 0;
}

}  // namespace

void add_runs_tag(Subcommands& to) {
  auto [app, options, subcommand] = to.add<RunsTagOptions>(
      "runs tag", "Add tags to a run; `runs list --tag` and `compare` show them", run_runs_tag);
  app.add_option("RUN", options.run, "A run")->required();
  app.add_option("TAG", options.tags, "Words to add; without any, the tags are shown");
  app.add_option("--remove", options.removed, "A tag to take away; may be repeated")
      ->type_name("TAG")
      ->allow_extra_args(false);
}

}  // namespace meshtrain
