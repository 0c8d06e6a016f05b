// meshtrain report: report.html of a run, made anew at any time.
#include <fmt/format.h>

#include "base/file.h"
#include "cli.h"
#include "train/report/run_report.h"

namespace meshtrain {
namespace {

int report(const Arguments& arguments) {
  std::string folder = arguments.target;
  while (folder.size() > 1 && folder.back() == '/') {
    folder.pop_back();
  }
  const std::string path = arguments.output.empty() ? folder + "/report.html" : arguments.output;
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

void add_report(Command command) {
  Arguments& a = command.arguments;
  CLI::App& verb = *command.app.add_subcommand(
      "report", "Write report.html of a run: curves, time line, layouts, config in one file");
  verb.add_option("RUN", a.target, "A run, finished or not")->required();
  verb.add_option("--output", a.output, "Where to, instead of RUN/report.html; - for stdout")
      ->type_name("FILE");
  add_color_flag(verb, a);
  verb.callback([command] { command.action = [command] { return report(command.arguments); }; });
}

}  // namespace meshtrain
