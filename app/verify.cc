// meshtrain verify: proofs of the promises, for a config, a run or a checkpoint.
#include "verify.h"

#include <algorithm>
#include <filesystem>

#include "config/load.h"
#include "train/run_dir.h"

namespace meshtrain {
namespace {

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

int verify(const Arguments& arguments) {
  const std::string& first = arguments.words.front();
  if (!is_folder(first)) {
    return verify_meshes(arguments);
  }
  if (arguments.words.size() > 1) {
    throw ConfigError(
        "E140", {},
        fmt::format("`{}` after a folder; only a config takes more", arguments.words[1]));
  }
  const int code = verify_checkpoints(first, arguments);
  return code == 0 && is_run_dir(first) && !arguments.checksums ? verify_resume(first, arguments)
                                                                : code;
}

}  // namespace

void add_verify(Command command) {
  Arguments& a = command.arguments;
  CLI::App& verb = *command.app.add_subcommand(
      "verify",
      "Prove a config's equality over meshes, a run's exact resume, a checkpoint's bytes");
  verb.add_option("TARGET", a.words,
                  "A config: some steps in float64 on one device, on its mesh and on the other "
                  "meshes of as many devices give the same numbers. A run: all checkpoints are "
                  "whole, and what lies between the newest two comes out the same again, bit for "
                  "bit. A checkpoint: every byte fits its checksum. KEY=VALUE after a config")
      ->required();
  add_key_flags(verb, a);
  verb.add_option("--steps", a.steps, "Of a config: training steps to compare")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  verb.add_option("--tolerance", a.tolerance,
                  "Of a config: largest difference, relative to numbers above 1")
      ->type_name("X")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb.add_option("--scratch", a.scratch, "Of a run: folder to replay in; default a temporary one")
      ->type_name("DIR");
  verb.add_flag("--checksums", a.checksums, "Of a run: checksums only, no replay");
  add_color_flag(verb, a);
  verb.footer("Exit codes: 0 equal; 7 not equal; 6 checkpoints damaged, or too few; 3 data gone.");
  verb.callback([command] { command.action = [command] { return verify(command.arguments); }; });
}

}  // namespace meshtrain
