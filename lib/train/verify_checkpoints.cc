#include "train/verify_checkpoints.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "base/text.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "config/run_files.h"
#include "record/run_dir.h"
#include "tensor/safetensors.h"

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

// Compares the weights of a run that came to its end with their checksum.
void verify_weights(const std::string& run, const std::function<void(std::string_view)>& show,
                    Diagnostics& problems) {
  const std::string path = run + "/" + run_files::kWeights;
  std::error_code error;
  if (!is_run_dir(run) || !fs::exists(path, error)) {
    return;
  }
  try {
    const SafetensorsFile file = read_safetensors(path);
    int64_t bytes = 0;
    for (const NamedTensor& entry : file.tensors) {
      bytes += static_cast<int64_t>(entry.tensor.num_bytes());
    }
    show(fmt::format("{}: {}, {} tensors, {}\n", path,
                     has_checksum(file.metadata) ? "good" : "no checksum, as of older versions",
                     file.tensors.size(), format_bytes(bytes)));
  } catch (const ConfigError& problem) {
    show(fmt::format("{}: damaged\n", path));
    problems.append(problem.diagnostics());
  }
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
  verify_weights(folder, show, problems);
  return problems;
}

}  // namespace meshtrain
