// meshtrain report: report.html of a run, made anew at any time.
#include "base/file.h"
#include "config/run_files.h"
#include "output.h"
#include "record/report/run_report.h"
#include "subcommand.h"
#include "train/resume_target.h"

namespace meshtrain {
namespace {

struct ReportOptions {
  std::string run, output;
};

int run_report(const ReportOptions& options, Invocation&) {
  const std::string folder = run_folder(options.run);
  const std::string path =
      options.output.empty() ? folder + "/" + run_files::kReport : options.output;
  const std::string html = report_html(read_run_record(folder));
  if (path == "-") {
    out_stream().write(html);
  } else {
    write_file_atomic(path, html);
    out_stream().write(path + "\n");
  }
  return 0;
}

}  // namespace

void add_report(Subcommands& to) {
  auto [app, options, subcommand] = to.add<ReportOptions>(
      "report", "Write report.html of a run: curves, time line, layouts, config in one file",
      run_report);
  app.add_option("RUN", options.run, "A run, finished or not")->required();
  app.add_option("-o,--output", options.output,
                 "Where to, instead of RUN/report.html; - for stdout")
      ->type_name("FILE");
  add_color_flag(app);
}

}  // namespace meshtrain
