// meshtrain verify: proofs of the promises, for a config, a run or a checkpoint.
#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "checkpoint/reader.h"
#include "record/run_dir.h"
#include "run_flags.h"
#include "train/resume_target.h"
#include "train/verify_checkpoints.h"
#include "train/verify_meshes.h"
#include "train/verify_resume.h"

namespace meshtrain {
namespace {

struct VerifyOptions {
  ConfigWords target;  // or a run or a checkpoint
  MeshProofOptions meshes;
  std::string scratch;
  bool checksums = false;
};

void show(std::string_view text) {
  out_stream().write(text);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

int show_resume(const std::string& run, const VerifyOptions& options,
                const Invocation& invocation) {
  ConfigWords flags = options.target;
  flags.words.clear();
  const ResumeProof proof =
      verify_resume(run, run_request(invocation, flags.overrides()), options.scratch);
  const bool same = proof.differences.empty();
  out_stream().write(fmt::format(
      "{}: resumed from step {}, step {} is {}\n", run, proof.from, proof.to,
      same ? fmt::format("the same bit for bit: {} tensors", proof.num_tensors) : "NOT the same"));
  for (const std::string& line : proof.differences) {
    out_stream().write("  " + line + "\n");
  }
  return same ? 0 : static_cast<int>(ExitCode::kCheckFailed);
}

int run_verify(const VerifyOptions& options, Invocation& invocation) {
  const std::vector<std::string>& words = options.target.words;
  const std::string first = run_folder(words.front());
  if (!is_folder(first)) {
    MeshProofOptions proof = options.meshes;
    proof.load = options.target.load(true);
    proof.show = show;
    return verify_meshes(proof) ? 0 : static_cast<int>(ExitCode::kCheckFailed);
  }
  if (words.size() > 1) {
    throw ConfigError("E140", {},
                      fmt::format("`{}` after a folder; only a config takes more", words[1]));
  }
  refuse_profile(options.target.profile, first);
  if (!is_run_dir(first) && !is_checkpoint(first) && checkpoint_steps(first).empty()) {
    no_run_in(first);
  }
  const Diagnostics problems = verify_checkpoints(first, show);
  if (problems.has_errors()) {
    show_warnings(problems);
    return static_cast<int>(ExitCode::kCheckpoint);
  }
  return is_run_dir(first) && !options.checksums ? show_resume(first, options, invocation) : 0;
}

}  // namespace

void add_verify(Subcommands& to) {
  auto [app, options, subcommand] = to.add<VerifyOptions>(
      "verify", "Prove a config's equality over meshes, a run's exact resume, a checkpoint's bytes",
      run_verify);
  app.add_option("TARGET", options.target.words,
                 "A config, with overrides: compares some float64 steps on one device, on its mesh "
                 "and on other meshes. A run: checks all checkpoints and its weights, and replays "
                 "the steps between "
                 "the newest two, bit for bit. A checkpoint: checks its checksums")
      ->option_text("[KEY=VALUE...]")
      ->required();
  options.target.add_flags(app, Steps::kNone);
  app.add_option("--steps", options.meshes.steps,
                 "Of a config: training steps of a whole batch to compare; the smaller last batch "
                 "of the epoch, if there is one, is compared too")
      ->type_name("N")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  app.add_option("--tolerance", options.meshes.tolerance,
                 "Of a config: largest difference, relative to numbers above 1")
      ->type_name("X")
      ->check(number_between(0, std::numeric_limits<double>::max()))
      ->capture_default_str();
  app.add_option("--scratch", options.scratch,
                 "Of a run: folder to replay in; default a temporary one")
      ->type_name("DIR");
  app.add_flag("--checksums", options.checksums, "Of a run: checksums only, no replay");
  add_color_flag(app);
  app.footer("Exit codes: 0 equal; 7 not equal; 6 checkpoints damaged, or too few; 3 data gone.");
}

}  // namespace meshtrain
