#include "record/console.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace meshtrain {
namespace {

constexpr double kBeatSeconds = 60;

std::string without_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Console::Console(ConsoleOptions options) : options_(std::move(options)) {
  const Verbosity verbosity = options_.verbosity;
  options_.out = [this, out = std::move(options_.out)](std::string_view text) {
    last_record_ = options_.now();
    out(text);
  };
  animates_ = !options_.quiet && verbosity == Verbosity::kAuto && options_.stderr_is_terminal;
  shows_end_only_ =
      animates_ && options_.stdout_is_terminal && options_.format == LogFormat::kKeras;
  if (options_.quiet) {
    record_verbose_ = 2;  // the finished line is made, and kept until the end
  } else if (verbosity == Verbosity::kSilent || options_.format == LogFormat::kJson) {
    record_verbose_ = 0;
  } else {
    const bool is_bar = verbosity == Verbosity::kBar && options_.format == LogFormat::kKeras;
    record_verbose_ = is_bar || shows_end_only_ ? 1 : 2;
  }
  beats_ = !options_.quiet && (verbosity == Verbosity::kAuto || verbosity == Verbosity::kLine) &&
           !options_.stderr_is_terminal;
}

void Console::begin(std::string title, int64_t steps, int64_t done) {
  title_ = std::move(title);
  steps_ = steps;
  start_ = last_beat_ = options_.now();
  const bool header = !title_.empty() && options_.format == LogFormat::kKeras && !options_.quiet;
  if (header && record_verbose_ > 0) {
    options_.out(title_ + "\n");
  }
  const bool has_copy = animates_ && !options_.stdout_is_terminal && !options_.stdout_is_pipe;
  if (!title_.empty() && has_copy) {
    options_.err(title_ + "\n");
  }
  const TextSink keep = [this](std::string_view text) { result_ = text; };
  const TextSink plain = [this](std::string_view text) {
    options_.out(title_.empty() ? std::string(text) : fmt::format("{} - {}", title_, text));
  };
  const TextSink end = [this](std::string_view text) { write_painted(options_.out, text); };
  record_.emplace(steps, record_verbose_, options_.now,
                  options_.quiet                         ? keep
                  : options_.format == LogFormat::kPlain ? plain
                  : shows_end_only_                      ? end
                                                         : options_.out,
                  done);
  copy_.reset();
  if (has_copy) {
    copy_.emplace(
        steps, 1, options_.now,
        [this](std::string_view text) { write_painted(options_.err, text); }, done);
  }
}

// The record of a terminal without colours is plain, too.
void Console::write_painted(const TextSink& sink, std::string_view text) const {
  sink(options_.color ? std::string(text) : without_escapes(text));
}

void Console::animate(const std::string& label, int64_t steps, int64_t done,
                      const std::string& text, const BatchWork& work) {
  animation_.reset();
  if (animates_) {
    animation_.emplace(label, steps, done,
                       MovingBarOptions{options_.now, options_.err, options_.columns,
                                        options_.color, options_.has_escapes, work});
    if (!options_.stdout_is_pipe) {
      animation_->begin(text);
    }
  }
}

// With `| tee` the record reaches the terminal a little later: a bar that is drawn before would be
// in its way.
bool Console::waits_for_reader() const {
  constexpr double kReaderSeconds = 0.2;
  return options_.stdout_is_pipe &&
         (options_.now() - last_record_ < kReaderSeconds || !options_.pipe_is_empty());
}

void Console::step(int64_t step, const std::function<Logs()>& logs) {
  shows_end_only_ ? record_->skip(step) : record_->update(step, logs);
  if (copy_) {
    copy_->skip(step);
  }
  if (animation_ && !waits_for_reader()) {
    animation_->update(step, seconds_of_later_epochs(), logs);
  }
  if (beats_) {
    beat(step, logs);
  }
}

// Nothing where none follow, or nothing is known about them.
std::optional<double> Console::seconds_of_later_epochs() const {
  const int64_t later = epoch_.epochs - epoch_.epoch - 1;
  if (title_.empty() || later <= 0) {
    return std::nullopt;
  }
  const double each = epoch_seconds_ > 0
                          ? epoch_seconds_
                          : animation_->seconds_per_step(last_step_) * static_cast<double>(steps_);
  return each > 0 ? std::optional(each * static_cast<double>(later)) : std::nullopt;
}

void Console::beat(int64_t step, const std::function<Logs()>& logs) {
  const double now = options_.now();
  if (now - last_beat_ < kBeatSeconds) {
    return;
  }
  last_beat_ = now;
  options_.err(fmt::format("{}step {}/{} after {:.0f}s{}\n", title_.empty() ? "" : title_ + ", ",
                           step, steps_, now - start_, metrics_text(logs(), true)));
}

void Console::end(int64_t steps, const Logs& logs, const std::string& rates) {
  animation_.reset();
  if (copy_) {
    copy_->finish(steps, logs, rates);
    copy_.reset();
  }
  record_->finish(steps, logs, rates);
  record_.reset();
}

void Console::on_epoch_begin(const EpochStart& start) {
  epoch_ = start;
  begin(start.epochs > 1 ? fmt::format("Epoch {}/{}", start.epoch + 1, start.epochs) : "",
        start.steps, start.done);
  animate("", start.steps, start.done, has_stepped_ ? "" : "first step", work_);
}
void Console::on_train_step(const TrainPosition& position, const StepRunner& runner) {
  has_stepped_ = true;
  last_step_ = position.batch;
  step(position.batch, [&runner] { return runner.logs(); });
}
void Console::on_epoch_end(EpochReport& report) {
  epoch_seconds_ = epoch_.done == 0 ? options_.now() - start_ : epoch_seconds_;
  end(report.steps, report.logs, rates_text(work_, report.seconds_per_step()));
}

// A validation is part of its epoch's line; while it runs it has a bar.
void Console::on_pass_begin(const PassPosition& position) {
  if (position.pass == Pass::kValidation) {
    animate("validation", position.steps, 0, "");
    return;
  }
  const char* title = position.pass == Pass::kEvaluation ? "Evaluate" : "Predict";
  begin(options_.format == LogFormat::kPlain ? title : "", position.steps);
  epoch_ = {};
  animate("", position.steps, 0, "");
}
void Console::on_pass_step(const PassPosition& position, const StepRunner& runner) {
  const auto logs = [&runner, has_logs = position.pass == Pass::kEvaluation] {
    return has_logs ? runner.logs() : Logs();
  };
  if (position.pass != Pass::kValidation) {
    step(position.step, logs);
  } else if (animation_ && !waits_for_reader()) {
    animation_->update(position.step, std::nullopt, logs);
  }
}
void Console::on_pass_end(const PassPosition& position, const EvaluateReport& report) {
  if (position.pass != Pass::kValidation) {
    end(report.steps, report.logs);
    return;
  }
  animation_.reset();
  if (!position.is_within_epoch()) {
    return;
  }
  if (options_.format != LogFormat::kJson) {
    print(fmt::format("step {}{}\n", position.at.step,
                      metrics_text(validation_logs(report.logs), false)));
  }
  animate("", steps_, position.at.batch, "", work_);
}

void Console::on_stop(const StopReport& report) {
  interrupt();
  if (!options_.quiet) {
    options_.err(stop_text(report) + "\n");
  }
}

void Console::on_warning(const std::string& text) {
  interrupt();
  if (!options_.quiet) {
    options_.err(fmt::format("warning: {}\n", escaped_controls(text)));
  }
}

// To the record, whose bar it interrupts as it does in Keras; the animation makes room.
void Console::print(const std::string& text) {
  interrupt();
  if (options_.quiet) {
    return;
  }
  (options_.format == LogFormat::kJson ? options_.err : options_.out)(text);
}

void Console::finish() {
  if (options_.quiet && options_.format != LogFormat::kJson) {
    options_.out(result_);
  }
}

void Console::interrupt() {
  if (animation_) {
    animation_->erase();
  }
}

}  // namespace meshtrain
