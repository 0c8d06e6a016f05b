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

// What argument `name`, such as `x` or `y`, says: a text, a list of texts, or a dict by input or
// output name; nothing where it is null.
std::vector<Wanted> wanted_arrays(const ConfigValue& value, const std::string& name);

// Whether `y` names the samples again, by their names or as `y: x`: the targets are the samples
// then, after data.transform.
bool are_own_targets(const ConfigValue& x, const ConfigValue& y);
// The arrays of the targets that are to be read: those of `y`, or none where they are the samples.
std::vector<Wanted> wanted_targets(const ConfigValue& x, const ConfigValue& y);

// A path of the config from its folder.
std::string resolve(const std::string& base_dir, const std::string& path);

// The files that a path argument names: a path, a pattern of glob(7) whose matches are sorted by
// name, or a list of either. A file whose own name is the pattern comes first. Throws ConfigError
// E300 for a pattern without a match; whether a plain path exists is left to who reads it.
struct NamedFile {
  std::string path;
  SourceLoc loc;
};
std::vector<NamedFile> find_files(const ConfigValue& paths, const std::string& base_dir);
std::vector<NamedFile> find_files(const std::string& path, const SourceLoc& loc,
                                  const std::string& base_dir);

// How an argument is shown: "data/train_*.npz", or "a.npz (and 2 more)".
std::string shown_paths(const ConfigValue& paths);

// The rows of several files one after the other, as one array. Throws ConfigError E304 for a file
// whose samples have another shape, or E303 another type, than the first one's.
struct FileArray {
  std::string path;
  RowsPtr rows;
};
RowsPtr join_files(std::vector<FileArray> files, const SourceLoc& loc);

// Collects the problems of several files, so that all are shown together.
class Reads {
 public:
  // The rows that `read` gives, or no rows and a problem at `loc`.
  template <class F>
  RowsPtr rows(const SourceLoc& loc, F&& read) {
    RowsPtr rows = make_rows({});
    run(loc, [&] { rows = read(); });
    return rows;
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

}  // namespace meshtrain
