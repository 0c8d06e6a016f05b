// meshtrain verify: proofs of the promises, for a config, a run or a checkpoint.
#include "verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/reader.h"
#include "config/load.h"
#include "record/run_dir.h"
#include "run_request.h"
#include "train/resume_target.h"
#include "train/verify_resume.h"

namespace meshtrain {
namespace {

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

int show_resume(const std::string& run, const Arguments& given) {
  Arguments arguments = given;
  arguments.words.clear();
  const ResumeProof proof =
      verify_resume(run, run_request(arguments, override_options(arguments)), arguments.scratch);
  const bool same = proof.differences.empty();
  out_stream().write(fmt::format(
      "{}: resumed from step {}, step {} is {}\n", run, proof.from, proof.to,
      same ? fmt::format("the same bit for bit: {} tensors", proof.num_tensors) : "NOT the same"));
  for (const std::string& line : proof.differences) {
    out_stream().write("  " + line + "\n");
  }
  return same ? 0 : static_cast<int>(ExitCode::kCheckFailed);
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
  return code == 0 && is_run_dir(first) && !arguments.checksums ? show_resume(first, arguments)
                                                                : code;
}

}  // namespace meshtrain
