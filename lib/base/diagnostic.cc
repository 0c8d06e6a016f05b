#include "base/diagnostic.h"

#include <algorithm>

#include "base/printable.h"
#include "base/text.h"

namespace meshtrain {

std::string_view SourceFile::line(int number) const {
  size_t begin = 0;
  for (int i = 1; i < number; ++i) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) {
      return {};
    }
    ++begin;
  }
  size_t end = std::min(text.find('\n', begin), text.size());
  if (end > begin && text[end - 1] == '\r') {
    --end;
  }
  return std::string_view(text).substr(begin, end - begin);
}

std::string SourceLoc::to_string() const {
  return *this ? fmt::format("{}:{}:{}", file->name, line, column) : std::string();
}

Diagnostic& Diagnostic::with_label(std::string text) {
  label = std::move(text);
  return *this;
}
Diagnostic& Diagnostic::help(std::string_view text) {
  notes.push_back(fmt::format("help: {}", text));
  return *this;
}
Diagnostic& Diagnostic::note(std::string_view text) {
  notes.push_back(fmt::format("note: {}", text));
  return *this;
}

Diagnostic& Diagnostics::error(std::string code, SourceLoc loc, std::string message) {
  list_.push_back({Severity::kError, std::move(code), std::move(message), std::move(loc), {}, {}});
  return list_.back();
}
Diagnostic& Diagnostics::warning(std::string code, SourceLoc loc, std::string message) {
  list_.push_back(
      {Severity::kWarning, std::move(code), std::move(message), std::move(loc), {}, {}});
  return list_.back();
}

void Diagnostics::append(const Diagnostics& other) {
  list_.insert(list_.end(), other.list_.begin(), other.list_.end());
}

int Diagnostics::num_errors() const {
  return static_cast<int>(std::count_if(list_.begin(), list_.end(), [](const Diagnostic& d) {
    return d.severity == Severity::kError;
  }));
}
int Diagnostics::num_warnings() const {
  return static_cast<int>(list_.size()) - num_errors();
}

namespace {

constexpr int kMaxShownColumns = 120;  // longer source lines are cut around the place

// The source line with carets below it.
std::string excerpt(const Diagnostic& d, const std::string& margin) {
  std::string text(d.loc.file->line(d.loc.line));
  int column = d.loc.column;
  if (static_cast<int>(text.size()) > kMaxShownColumns) {
    const int begin = std::max(0, column - 1 - kMaxShownColumns / 2);
    text = text.substr(begin, kMaxShownColumns);
    column -= begin;
  }
  std::replace(text.begin(), text.end(), '\t', ' ');
  text = without_controls(std::move(text));  // each stays one column
  const int room = std::max(1, static_cast<int>(text.size()) - column + 1);
  const int carets = std::clamp(d.loc.length, 1, room);
  return fmt::format("{} |\n{} | {}\n{} | {}{}{}{}\n", margin, d.loc.line, text, margin,
                     std::string(std::max(0, column - 1), ' '), std::string(carets, '^'),
                     d.label.empty() ? "" : " ", d.label);
}

// Names, paths and values of the user stand in all of its text: none may steer the terminal.
std::string render_one(const Diagnostic& d) {
  const char* word = d.severity == Severity::kError ? "error" : "warning";
  std::string out = fmt::format("{}[{}]: {}\n", word, d.code, d.message);
  std::string margin = " ";
  if (d.loc) {
    margin = std::string(fmt::formatted_size("{}", d.loc.line), ' ');
    out += fmt::format("{}--> {}\n", margin, d.loc.to_string());
    if (!d.loc.file->line(d.loc.line).empty()) {
      out += excerpt(d, margin);
    } else if (!d.label.empty()) {
      out += fmt::format("{} = {}\n", margin, d.label);
    }
  } else if (!d.label.empty()) {
    out += fmt::format("{} = {}\n", margin, d.label);
  }
  for (const std::string& note : d.notes) {
    out += fmt::format("{} = {}\n", margin, note);
  }
  for (const SourceUse* use = d.loc.use.get(); use != nullptr; use = use->at.use.get()) {
    out += fmt::format("{} = note: in {} at {}\n", margin, use->what, use->at.to_string());
  }
  return escaped_controls(out);
}

// With the first word and the code in colour.
std::string colored(const std::string& text, Severity severity) {
  const size_t end = text.find(']') + 1;
  return fmt::format("{}{}\x1b[0m{}", severity == Severity::kError ? "\x1b[1;31m" : "\x1b[1;33m",
                     text.substr(0, end), text.substr(end));
}

}  // namespace

std::string Diagnostics::render(bool color) const {
  std::string out;
  for (const Diagnostic& d : list_) {
    const std::string text = render_one(d);
    out += color ? colored(text, d.severity) : text;
    out += '\n';
  }
  return out;
}

ExitCode Diagnostics::exit_code() const {
  for (const Diagnostic& d : list_) {
    if (d.severity != Severity::kError) {
      continue;
    }
    // results cannot be written where they should go
    if (d.code == "E142" || starts_with(d.code, "E42")) {
      return ExitCode::kWriteFailed;
    }
    if (starts_with(d.code, "E21") && d.code != "E211") {  // the mesh and the devices at hand
      return ExitCode::kMesh;
    }
    switch (d.code.size() > 1 ? d.code[1] : '1') {
      case '3':
        return ExitCode::kData;
      case '4':
        return ExitCode::kCheckpoint;
      case '5':
        return d.code == "E520" ? ExitCode::kCheckFailed : ExitCode::kDiverged;
      case '6':  // E60x, E612 to E614: processes that are lost or do not meet
        return d.code == "E611" ? ExitCode::kConfig
               : starts_with(d.code, "E60") || (d.code > "E611" && d.code < "E615")
                   ? ExitCode::kRankLost
                   : ExitCode::kMesh;
      default:
        return ExitCode::kConfig;
    }
  }
  return ExitCode::kOk;
}

void Diagnostics::throw_if_errors() const {
  if (has_errors()) {
    throw ConfigError(*this);
  }
}

ConfigError::ConfigError(Diagnostics diagnostics)
    : Error(diagnostics.exit_code(), diagnostics.render()), diagnostics_(std::move(diagnostics)) {}

namespace {
Diagnostics single(Diagnostic problem) {
  Diagnostics diagnostics;
  diagnostics.error({}, {}, {}) = std::move(problem);
  return diagnostics;
}
}  // namespace

ConfigError::ConfigError(Diagnostic problem) : ConfigError(single(std::move(problem))) {}

ConfigError::ConfigError(std::string code, SourceLoc loc, std::string message)
    : ConfigError(Diagnostic{
          Severity::kError, std::move(code), std::move(message), std::move(loc), {}, {}}) {}

ConfigError& ConfigError::help(std::string_view text) {
  diagnostics_.list_.back().help(text);
  return update();
}
ConfigError& ConfigError::note(std::string_view text) {
  diagnostics_.list_.back().note(text);
  return update();
}
ConfigError& ConfigError::with_label(std::string text) {
  diagnostics_.list_.back().with_label(std::move(text));
  return update();
}

// Makes what() the text of all that was added.
ConfigError& ConfigError::update() {
  Error::operator=(Error(exit_code(), diagnostics_.render()));
  return *this;
}

}  // namespace meshtrain
