// Problems found in what the user wrote, collected and shown together with the line itself:
//
//   error[E101]: unknown key `layoutmap` in `distribution`
//     --> mlp.yaml:10:3
//      |
//   10 |   layoutmap:
//      |   ^^^^^^^^^ did you mean `layout_map`?
//      = keys here: type, batch_dim_name, device_mesh, layout_map
//
// Families of codes: E1xx config and command line, E2xx layout and mesh, E3xx data, E4xx checkpoint
// and weights, E5xx numbers, E6xx ranks, hosts and the system; Wxxx warnings of the same families.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace meshtrain {

// A text that positions point into: a file, or something that stands for one ("command line").
struct SourceFile {
  std::string name;
  std::string text;

  // Line `number` (from 1) without its end; empty when there is none.
  std::string_view line(int number) const;
};

struct SourceUse;

// A place in a SourceFile; line and column count from 1, line 0 means "no place". `length` is the
// number of columns that belong to it.
struct SourceLoc {
  std::shared_ptr<const SourceFile> file;
  int line = 0;
  int column = 0;
  int length = 1;
  std::shared_ptr<const SourceUse> use = nullptr;  // of the block around the place, if any

  explicit operator bool() const { return file != nullptr && line > 0; }
  std::string to_string() const;  // "mlp.yaml:10:3", or "" without a place
};

// One use of a block: its text stands at one place and means something at each of its uses.
struct SourceUse {
  std::string what;  // "block `Residual`, used as `stage_0`"
  SourceLoc at;      // whose own `use` is that of the block around
};

enum class Severity { kWarning, kError };

struct Diagnostic {
  Severity severity = Severity::kError;
  std::string code;     // "E101"
  std::string message;  // one line, no full stop
  SourceLoc loc;
  std::string label;               // beside the carets: "did you mean `x`?"
  std::vector<std::string> notes;  // each becomes a "= ..." line: "help: ...", "note: ..."

  Diagnostic& with_label(std::string text);
  Diagnostic& help(std::string_view text);  // "help: " + text
  Diagnostic& note(std::string_view text);  // "note: " + text
};

// All findings of one stage, in order.
class Diagnostics {
 public:
  // Returned references are valid until the next call.
  Diagnostic& error(std::string code, SourceLoc loc, std::string message);
  Diagnostic& warning(std::string code, SourceLoc loc, std::string message);

  void append(const Diagnostics& other);
  bool has_errors() const { return num_errors() > 0; }
  int num_errors() const;
  int num_warnings() const;
  const std::vector<Diagnostic>& list() const { return list_; }

  // The text of all findings as shown on stderr, each followed by an empty line.
  std::string render(bool color = false) const;
  // By the first error: E2 (config) for E1xx and most E2xx, 4 for E21x, 3 for E3xx, 6 for E4xx, ...
  ExitCode exit_code() const;
  // Throws ConfigError when there is an error.
  void throw_if_errors() const;

 private:
  friend class ConfigError;

  std::vector<Diagnostic> list_;
};

// Shown by main() as Diagnostics::render() plus "N errors; nothing was started".
class ConfigError : public Error {
 public:
  explicit ConfigError(Diagnostics diagnostics);
  explicit ConfigError(Diagnostic problem);
  // One problem: throw ConfigError("E400", {}, "no checkpoint").help("...").
  ConfigError(std::string code, SourceLoc loc, std::string message);

  // Each adds to the last problem.
  ConfigError& help(std::string_view text);
  ConfigError& note(std::string_view text);
  ConfigError& with_label(std::string text);

  const Diagnostics& diagnostics() const { return diagnostics_; }

 private:
  ConfigError& update();

  Diagnostics diagnostics_;
};

}  // namespace meshtrain
