#include "flags.h"

#include <fmt/format.h>

#include "help.h"

namespace meshtrain {
namespace {

// A flag that stands for a config key.
void add_key_flag(CLI::App& verb, const std::string& flag, std::string& value,
                  const std::string& type, const std::string& key, const std::string& meaning) {
  verb.add_option(flag, value, fmt::format("{} [key: {}]", meaning, key))
      ->type_name(type)
      ->group("Config keys");
}

}  // namespace

void add_config_arguments(CLI::App& verb, Arguments& a, Steps steps) {
  verb.add_option("CONFIG", a.words,
                  "Config files, merged left to right (- is standard input), and "
                  "overrides: key.path=value, ~key, list+=item")
      ->option_text("[KEY=VALUE...]")
      ->required();
  add_key_flags(verb, a, steps);
}

void add_key_flags(CLI::App& verb, Arguments& a, Steps steps) {
  verb.add_option("--set", a.sets, "The same as a bare KEY=VALUE")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb.add_option("--profile", a.profile, "A named block of overrides in the file")
      ->type_name("NAME");
  add_key_flag(verb, "--mesh", a.mesh, "4x2|data=4,model=2", "distribution.device_mesh.shape",
               "Shape of the mesh");
  add_key_flag(verb, "--devices", a.devices, "cpu:8|gpu:0-7|gpu:0x8|64xH100|auto",
               "distribution.device_mesh.devices", "Devices of the mesh");
  add_key_flag(verb, "--batch-size", a.batch_size, "N", "fit.batch_size", "Global batch size");
  if (steps == Steps::kFit) {
    add_key_flag(verb, "--epochs", a.epochs, "N", "fit.epochs", "Number of the last epoch");
  }
  add_key_flag(verb, "--seed", a.seed, "N", "seed", "Seed of every random number");
  add_key_flag(verb, "--name", a.name, "NAME", "name", "Name of the run");
  if (steps == Steps::kFit) {
    add_key_flag(verb, "--limit-steps", a.limit_steps, "N", "fit.limit_steps",
                 "At most N updates per epoch, for smoke runs");
  } else if (steps == Steps::kEvaluate) {
    add_key_flag(verb, "--limit-steps", a.evaluate_steps, "N", "evaluate.steps",
                 "At most N batches, for smoke runs");
  }
}

void add_output_flags(CLI::App& verb, Arguments& a) {
  verb.add_option("--progress", a.progress,
                  "As Keras' verbose 1, 2 and 0; auto: a bar on a terminal, and lines")
      ->type_name("auto|bar|line|none")
      ->check(one_of({"auto", "bar", "line", "none"}))
      ->group("Output");
  verb.add_option("--log-format", a.log_format,
                  "On stdout: Keras' lines, one line per epoch, or one JSON object per event")
      ->type_name("keras|plain|json")
      ->check(one_of({"keras", "plain", "json"}))
      ->group("Output");
  verb.add_flag("-q,--quiet", a.quiet, "Only the final result and errors")->group("Output");
  add_color_flag(verb, a);
}

void add_verbose_flag(CLI::App& verb, Arguments& a) {
  verb.add_flag("-v,--verbose", a.verbosity, "Show the plan before starting")->group("Output");
}

void add_color_flag(CLI::App& verb, Arguments& a) {
  verb.add_option("--color", a.color, "Colours; NO_COLOR and CLICOLOR_FORCE are respected")
      ->type_name("auto|always|never")
      ->check(one_of({"auto", "always", "never"}))
      ->group("Output");
}

void add_format_flag(CLI::App& verb, Arguments& a) {
  verb.add_option("--format", a.format, "Form of the output")
      ->type_name("text|json")
      ->check(one_of({"text", "json"}))
      ->group("Output");
}

void add_weights_flag(CLI::App& verb, Arguments& a) {
  verb.add_option("-w,--weights", a.weights,
                  "Weights: .safetensors or .npz by Keras path, .weights.h5 or .keras; default "
                  "fit.initial_weights")
      ->type_name("FILE");
}

void add_resume_flags(CLI::App& verb, Arguments& a) {
  verb.add_option("--allow", a.allow, "A key that may differ from the checkpoint's all the same")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->group("Resuming");
  verb.add_flag("--reset-cursor", a.reset_cursor, "Begin the running epoch anew")
      ->group("Resuming");
  verb.add_flag("--reset-optimizer", a.reset_optimizer, "Take the weights alone")
      ->group("Resuming");
  verb.add_flag("--partial", a.partial,
                "Of the weights of another model, in a checkpoint or in fit.initial_weights, take "
                "those that fit; the others are drawn, and named in a warning")
      ->group("Resuming");
  verb.add_option("--max-time", a.max_time,
                  "Save and leave before this time is over [key: run.max_time]")
      ->type_name("23h30m")
      ->group("Config keys");
}

void add_engine_flags(CLI::App& verb, Arguments& a) {
  add_dump_ir_flag(verb, a);
  verb.add_flag("--no-cuda-graph", a.no_cuda_graph,
                "On a GPU: start kernel by kernel, to see which one fails");
}

void add_hardware_flags(CLI::App& verb, Arguments& a) {
  add_key_flag(verb, "--hardware", a.hardware, "FILE", "plan.hardware",
               "Devices to estimate for, beside A100, H100, H200, B200 and cpu, or other values of "
               "theirs");
  verb.add_option("--hosts", a.hosts, "Hosts that the devices are in; default as the hardware has")
      ->type_name("N")
      ->check(whole_number(1, 65536));
}

void add_dump_ir_flag(CLI::App& verb, Arguments& a) {
  verb.add_option("--dump-ir", a.dump_ir, "Write the graph after each pass")->type_name("DIR");
}

void add_quiet_flag(CLI::App& verb, Arguments& a, const char* meaning) {
  verb.add_flag("-q,--quiet", a.quiet, meaning)->group("Output");
}

}  // namespace meshtrain
