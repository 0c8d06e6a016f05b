#include "record/console.h"

#include <fmt/format.h>

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
  if (options_.quiet) {
    record_verbose_ = 2;  // the finished line is made, and kept until the end
  } else if (verbosity == Verbosity::kSilent || options_.format == LogFormat::kJson) {
    record_verbose_ = 0;
  } else {
    record_verbose_ = verbosity == Verbosity::kBar && options_.format == LogFormat::kKeras ? 1 : 2;
  }
  animates_ = !options_.quiet && verbosity == Verbosity::kAuto && options_.stderr_is_terminal;
  beats_ = !options_.quiet && (verbosity == Verbosity::kAuto || verbosity == Verbosity::kLine) &&
           !options_.stderr_is_terminal;
}

void Console::begin(std::string title, int64_t steps) {
  title_ = std::move(title);
  steps_ = steps;
  start_ = last_beat_ = options_.now();
  const bool header = !title_.empty() && options_.format == LogFormat::kKeras && !options_.quiet;
  if (header && record_verbose_ > 0) {
    options_.out(title_ + "\n");
  }
  if (!title_.empty() && animates_ && !options_.stdout_is_terminal) {
    options_.err(title_ + "\n");
  }
  const TextSink keep = [this](std::string_view text) { result_ = text; };
  const TextSink plain = [this](std::string_view text) {
    options_.out(title_.empty() ? std::string(text) : fmt::format("{} - {}", title_, text));
  };
  record_.emplace(steps, record_verbose_, options_.now,
                  options_.quiet                         ? keep
                  : options_.format == LogFormat::kPlain ? plain
                                                         : options_.out);
  animation_.reset();
  if (animates_) {
    animation_.emplace(steps, 1, options_.now, [this](std::string_view text) {
      options_.err(options_.color ? std::string(text) : without_escapes(text));
    });
  }
}

void Console::step(int64_t step, const std::function<Logs()>& logs) {
  record_->update(step, logs);
  if (animation_) {
    animation_->update(step, logs);
  }
  if (beats_) {
    beat(step, logs);
  }
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

void Console::end(int64_t steps, const Logs& logs) {
  if (animation_) {
    if (options_.stdout_is_terminal) {
      animation_->erase();
    } else {
      animation_->finish(steps, logs);
    }
    animation_.reset();
  }
  record_->finish(steps, logs);
  record_.reset();
}

void Console::on_epoch_begin(const EpochStart& start) {
  begin(start.epochs > 1 ? fmt::format("Epoch {}/{}", start.epoch + 1, start.epochs) : "",
        start.steps);
}
void Console::on_train_step(const TrainPosition& position, const StepRunner& runner) {
  step(position.batch, [&runner] { return runner.logs(); });
}
void Console::on_epoch_end(EpochReport& report) {
  end(report.steps, report.logs);
}

// A validation is part of its epoch's line.
void Console::on_pass_begin(const PassPosition& position) {
  if (position.pass != Pass::kValidation) {
    const char* title = position.pass == Pass::kEvaluation ? "Evaluate" : "Predict";
    begin(options_.format == LogFormat::kPlain ? title : "", position.steps);
  }
}
void Console::on_pass_step(const PassPosition& position, const StepRunner& runner) {
  if (position.pass != Pass::kValidation) {
    const bool has_logs = position.pass == Pass::kEvaluation;
    step(position.step, [&runner, has_logs] { return has_logs ? runner.logs() : Logs(); });
  }
}
void Console::on_pass_end(const PassPosition& position, const EvaluateReport& report) {
  if (position.pass != Pass::kValidation) {
    end(report.steps, report.logs);
  }
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
    options_.err(fmt::format("warning: {}\n", text));
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
