#include "run_writer.h"

#include <fmt/format.h>

#include "record/report/run_report.h"
#include "train/trainer.h"

namespace meshtrain {

RunWriter::RunWriter(const Arguments& arguments, const Config& config, RunDir& run,
                     Console& console)
    : writes_(arguments.processes.is_first()),
      quiet_(arguments.quiet),
      run_(run),
      console_(console),
      events_(config.run.log_steps, config.dtype_policy.value == "float64") {
  if (!writes_) {
    return;
  }
  events_.add_sink([this](std::string_view line) { run_.metrics().append(line); });
  if (arguments.log_format == "json") {
    events_.add_sink([this](std::string_view line) { print_event(line); });
  }
}

void RunWriter::print_event(std::string_view line) {
  if (!quiet_) {
    out_stream().write(fmt::format("{}\n", line));
  } else if (line.find(R"({"event":"epoch")") == 0 || line.find(R"({"event":"evaluate")") == 0) {
    result_ = fmt::format("{}{}}}\n", line.substr(0, line.size() - 1), which_run_);
  }
}

void RunWriter::start(const RunInfo& info, const std::vector<std::string>& command_line) {
  meta_.emplace(run_.file("meta.json"), info, command_line);
  log_.emplace(run_.file("log.txt"),
               [this](const std::string& text) { console_.on_warning(text); });
  log_->start(info);
  which_run_ =
      fmt::format(R"(,"name":{},"run_dir":{})", json_string(info.name), json_string(info.run_dir));
  events_.start(info);
}

void RunWriter::observe(Trainer& trainer) {
  if (writes_) {
    trainer.add_hook(events_);
    trainer.add_hook(*log_);
    trainer.add_hook(console_);
  }
}

void RunWriter::saved(const std::string& text) {
  if (writes_) {
    log_->saved(text);
  }
}

void RunWriter::warn(const std::string& text) {
  if (!writes_) {
    return;
  }
  console_.on_warning(text);
  if (log_) {
    log_->on_warning(text);
  }
}

void RunWriter::end(int exit_code, const std::string& message) {
  if (!writes_) {
    return;
  }
  events_.end(exit_code, message);
  log_->end(exit_code, message);
  try {
    meta_->end(exit_code, message);
    write_report(run_.path());
  } catch (const std::exception& error) {
    console_.on_warning(error.what());
  }
}

void RunWriter::close() {
  out_stream().write(result_);
  run_.metrics().close();
}

}  // namespace meshtrain
