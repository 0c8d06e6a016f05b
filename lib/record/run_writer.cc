#include "record/run_writer.h"

#include <fmt/format.h>

#include "config/run_files.h"
#include "record/report/run_report.h"
#include "record/run_summary.h"

namespace meshtrain {

RunWriter::RunWriter(Options options, const Config& config, RunDir& run, Console& console)
    : options_(std::move(options)),
      run_(run),
      console_(console),
      events_(config.run.log_steps, config.dtype_policy.value == "float64") {
  if (!options_.writes) {
    return;
  }
  events_.add_sink([this](std::string_view line) { run_.metrics().append(line); });
  if (options_.prints_events) {
    events_.add_sink([this](std::string_view line) { print_event(line); });
  }
}

void RunWriter::print_event(std::string_view line) {
  if (!options_.quiet) {
    options_.out(fmt::format("{}\n", line));
  } else if (line.find(R"({"event":"epoch")") == 0 || line.find(R"({"event":"evaluate")") == 0 ||
             (line.find(R"({"event":"end")") == 0 &&
              line.find(R"("exit_code":0)") == std::string_view::npos)) {
    result_ = line;
  }
}

void RunWriter::start(const RunInfo& info, const std::vector<std::string>& command_line) {
  meta_.emplace(run_.file(run_files::kMeta), info, command_line);
  log_.emplace(run_.file(run_files::kLog),
               [this](const std::string& text) { console_.on_warning(text); });
  log_->start(info);
  console_.set_work(info.work);
  events_.start(info);
}

std::vector<Hook*> RunWriter::hooks() {
  return options_.writes ? std::vector<Hook*>{&events_, &*log_, &console_} : std::vector<Hook*>();
}

void RunWriter::saved(const std::string& text) {
  if (options_.writes) {
    log_->saved(text);
  }
}

void RunWriter::warn(const std::string& text) {
  if (!options_.writes) {
    return;
  }
  console_.on_warning(text);
  if (log_) {
    record_warning(text);
  }
}

void RunWriter::record_warning(const std::string& text) {
  if (options_.writes) {
    events_.on_warning(text);
    log_->on_warning(text);
  }
}

void RunWriter::end(int exit_code, const std::string& message) {
  if (!options_.writes) {
    return;
  }
  events_.end(exit_code, message);
  log_->end(exit_code, message);
  if (exit_code != 0 && options_.prints_events && options_.quiet) {
    print_result();
  }
  try {
    meta_->end(exit_code, message, log_->stopped());
    if (!is_run_dir(run_.path())) {
      console_.on_warning(
          fmt::format("`{}` was removed while the run trained: there is no report, and the folder "
                      "is no run any "
                      "more",
                      run_.file(run_files::kMetrics)));
      return;
    }
    write_report(run_.path());
  } catch (const std::exception& error) {
    console_.on_warning(error.what());
  }
}

void RunWriter::print_result() {
  if (!result_.empty()) {
    options_.out(result_line(result_, summarize_run(read_run_record(run_.path()))) + "\n");
  }
  result_.clear();
}

void RunWriter::close() {
  print_result();
  run_.metrics().close();
}

}  // namespace meshtrain
