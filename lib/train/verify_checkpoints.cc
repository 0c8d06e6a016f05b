#include "train/verify_checkpoints.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "base/text.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "record/run_dir.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// The checkpoint itself, or all of a run, newest first.
std::vector<std::string> checkpoints_of(const std::string& given) {
  std::string path = given;
  std::error_code error;
  if (fs::is_symlink(path, error)) {
    path = fs::canonical(path, error).string();
  }
  std::string folder = is_run_dir(path) ? path + "/checkpoints" : path;
  std::vector<std::string> out;
  for (const int64_t step : checkpoint_steps(folder)) {
    out.push_back(folder + "/" + checkpoint_name(step));
  }
  if (out.empty() && folder != path) {
    throw ConfigError("E400", {}, fmt::format("there is no checkpoint in `{}`", folder));
  }
  return out.empty() ? std::vector<std::string>{path} : out;
}

}  // namespace

Diagnostics verify_checkpoints(const std::string& folder,
                               const std::function<void(std::string_view)>& show) {
  Diagnostics problems;
  for (const std::string& path : checkpoints_of(folder)) {
    try {
      const CheckpointReader reader(path);
      reader.verify();
      show(fmt::format("{}: good, step {}, {} tensors in {} files, {}\n", path,
                       reader.manifest().step, reader.manifest().tensors.size(),
                       reader.manifest().files.size() + 1, format_bytes(reader.num_bytes())));
    } catch (const ConfigError& error) {
      if (std::error_code gone; path != folder && !fs::exists(path, gone)) {
        continue;  // the run continues and keeps newer ones
      }
      show(fmt::format("{}: {}\n", path, is_only_not_read(error) ? "not read" : "damaged"));
      problems.append(error.diagnostics());
    }
  }
  return problems;
}

}  // namespace meshtrain
