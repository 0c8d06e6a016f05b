// meshtrain runs note: a note about a run.
#include "output.h"
#include "record/run_dir.h"
#include "record/run_list.h"
#include "subcommand.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

struct RunsNoteOptions {
  std::string run;
  std::optional<std::string> note;
};

int run_runs_note(const RunsNoteOptions& options, Invocation&) {
  const std::string run = resolved_run(options.run);
  if (!is_run_dir(run)) {
    no_run_in(options.run);
  }
  if (options.note) {
    check_line("the note", *options.note);
    RunNotes notes = read_notes(run);
    notes.note = *options.note;
    write_notes(run, notes);
  }
  out_stream().write(read_notes(run).note + "\n");
  return 0;
}

}  // namespace

void add_runs_note(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<RunsNoteOptions>("runs note", "Write a note about a run, or show it", run_runs_note);
  app.add_option("RUN", options.run, "A run")->required();
  app.add_option("TEXT", options.note, "The note, in place of an earlier one; \"\" removes it");
}

}  // namespace meshtrain
