// Flags that several verbs have.
#pragma once

#include <CLI/CLI.hpp>

#include "cli.h"

namespace meshtrain {

// What a verb does with a config's data, which decides whether --epochs and --limit-steps can act.
enum class Steps { kFit, kEvaluate, kNone };

// CONFIG... [KEY=VALUE...] and the flags that stand for config keys.
void add_config_arguments(CLI::App& verb, Arguments& arguments, Steps steps = Steps::kFit);
// The latter alone.
void add_key_flags(CLI::App& verb, Arguments& arguments, Steps steps = Steps::kFit);
// --progress, --log-format, -q: of verbs that run steps.
void add_output_flags(CLI::App& verb, Arguments& arguments);
// -v: of verbs that train.
void add_verbose_flag(CLI::App& verb, Arguments& arguments);
void add_color_flag(CLI::App& verb, Arguments& arguments);
// "text" or "json".
void add_format_flag(CLI::App& verb, Arguments& arguments);
void add_weights_flag(CLI::App& verb, Arguments& arguments);
// --allow, --reset-cursor, --reset-optimizer, --max-time: of verbs that go on with a run.
void add_resume_flags(CLI::App& verb, Arguments& arguments);
// --dump-ir, --no-cuda-graph: of verbs that compute.
void add_engine_flags(CLI::App& verb, Arguments& arguments);
// --hardware, --hosts: of plan.
void add_hardware_flags(CLI::App& verb, Arguments& arguments);
void add_dump_ir_flag(CLI::App& verb, Arguments& arguments);
void add_quiet_flag(CLI::App& verb, Arguments& arguments, const char* meaning);

}  // namespace meshtrain
