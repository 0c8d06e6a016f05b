// meshtrain report: report.html of a run, made anew at any time.
#include <fmt/format.h>

#include "base/file.h"
#include "cli.h"
#include "record/report/run_report.h"

namespace meshtrain {
namespace {}  // namespace

int run_report(const Arguments& arguments) {
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

}  // namespace meshtrain
