// meshtrain compare: runs beside each other.
#include <limits>

#include "base/file.h"
#include "output.h"
#include "subcommand.h"
#include "train/comparison.h"

namespace meshtrain {
namespace {

struct CompareOptions {
  std::vector<std::string> paths;
  std::string format = "table", output, sort;
  double tolerance = -1;  // negative: not checked
};

TableFormat table_format(const std::string& name) {
  return name == "csv"        ? TableFormat::kCsv
         : name == "json"     ? TableFormat::kJson
         : name == "markdown" ? TableFormat::kMarkdown
         : name == "html"     ? TableFormat::kHtml
                              : TableFormat::kText;
}

// The findings go to stderr: stdout is the table.
int show_check(const Comparison& comparison, double tolerance) {
  const EqualityCheck check = check_equal(comparison, tolerance);
  for (const std::string& line : check.differences) {
    err_stream().write("not equal: " + line + "\n");
  }
  for (const std::string& line : check.missing) {
    err_stream().write("no loss: " + line + "\n");
  }
  const bool is_equal = check.differences.empty() && check.missing.empty();
  err_stream().write(fmt::format(
      "{}: {} runs in {} groups that differ in the mesh alone; largest difference of a loss "
      "{:.2g}, "
      "allowed {:.2g}\n",
      is_equal ? "equal" : "NOT equal", check.runs, check.groups, check.largest, tolerance));
  return is_equal ? 0 : static_cast<int>(ExitCode::kCheckFailed);
}

int run_compare(const CompareOptions& options, Invocation&) {
  Comparison comparison = compare_runs(options.paths);
  if (!options.sort.empty()) {
    sort_runs(comparison, options.sort);
  }
  const std::string text = comparison_text(comparison, table_format(options.format));
  if (options.output.empty() || options.output == "-") {
    out_stream().write(text);
  } else {
    write_file_atomic(options.output, text);
  }
  return options.tolerance < 0 ? 0 : show_check(comparison, options.tolerance);
}

}  // namespace

void add_compare(Subcommands& to) {
  auto [app, options, subcommand] = to.add<CompareOptions>(
      "compare", "A row for each run: what differs, last and best logs, time, memory", run_compare);
  app.add_option("RUN", options.paths, "Runs, folders of runs, or sweeps")->required();
  app.add_option("--format", options.format, "Form of the output; html has the curves, too")
      ->type_name("table|csv|json|markdown|html")
      ->check(one_of({"table", "csv", "json", "markdown", "html"}))
      ->group("Output");
  app.add_option("-o,--output", options.output, "Where to, instead of stdout")
      ->type_name("FILE")
      ->group("Output");
  app.add_option("--sort", options.sort,
                 "Rows by a log, a key or ms_per_step; as --sort=-accuracy the largest first")
      ->type_name("NAME")
      ->group("Output");
  app.add_option("--check-equal", options.tolerance,
                 "Exit with 7 unless runs that differ in their mesh alone have the same last "
                 "losses, but for this relative difference")
      ->type_name("1e-5")
      ->check(number_between(0, std::numeric_limits<double>::max()));
  add_color_flag(app);
  app.footer(
      "ms/step is the median of the epochs without validation, memory what a device needs for a\n"
      "step as planned; best and at: the log that the run monitors, and its epoch.");
}

}  // namespace meshtrain
