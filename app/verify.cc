// meshtrain verify: proofs of the promises, for a config, a run or a checkpoint.
#include "verify.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/reader.h"
#include "config/load.h"
#include "record/run_dir.h"
#include "resume.h"

namespace meshtrain {
namespace {

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace

int run_verify(const Arguments& arguments) {
  const std::string& first = arguments.words.front();
  if (!is_folder(first)) {
    return verify_meshes(arguments);
  }
  if (arguments.words.size() > 1) {
    throw ConfigError(
        "E140", {},
        fmt::format("`{}` after a folder; only a config takes more", arguments.words[1]));
  }
  refuse_profile(arguments, first);
  if (!is_run_dir(first) && !is_checkpoint(first) && checkpoint_steps(first).empty()) {
    no_run_in(first);
  }
  const int code = verify_checkpoints(first, arguments);
  return code == 0 && is_run_dir(first) && !arguments.checksums ? verify_resume(first, arguments)
                                                                : code;
}

}  // namespace meshtrain
