// What the sources that read files share: where the config names them, and errors of several files
// at once.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "config/object.h"
#include "data/rows.h"

namespace meshtrain {

// An array of the dataset and what the config says where it is.
struct Wanted {
  std::string array;  // name in the dataset: "x", or of the model's input
  std::string text;   // path, or name in the archive
  SourceLoc loc;
  bool is_default = false;
};

// Argument `arg`, `x` or `y`, of a source: a text, a list of texts, or a dict by input or output
// name; nothing where it is null.
std::vector<Wanted> wanted_arrays(const ConfigObject& source, const std::string& arg);

// A path of the config from its folder.
std::string resolve(const std::string& base_dir, const std::string& path);

// Collects the problems of several files, so that all are shown together.
class Reads {
 public:
  // The result of `read`, or an empty tensor and a problem at `loc`.
  template <class F>
  HostTensor array(const SourceLoc& loc, F&& read) {
    HostTensor tensor;
    run(loc, [&] {
      tensor = read();
      if (tensor.shape().empty()) {
        throw ConfigError("E304", loc, "a single number has no dimension of samples");
      }
    });
    return tensor;
  }

  template <class F>
  void run(const SourceLoc& loc, F&& function) {
    try {
      function();
    } catch (const ConfigError& error) {
      for (Diagnostic problem : error.diagnostics().list()) {
        problem.loc = problem.loc ? problem.loc : loc;
        Diagnostic& added = findings_.error(problem.code, problem.loc, problem.message);
        added.label = problem.label;
        added.notes = problem.notes;
      }
    } catch (const FileError& error) {
      findings_.error("E300", loc, error.what());
    }
  }

  void finish() const { findings_.throw_if_errors(); }

 private:
  Diagnostics findings_;
};

// An array of weights as the trainer takes them: float32.
HostTensor as_weights(HostTensor tensor);

}  // namespace meshtrain
