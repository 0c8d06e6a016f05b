// Flags of subcommands that run steps, and what they ask of a run.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config_words.h"
#include "output.h"
#include "subcommand.h"
#include "train/run_request.h"

namespace meshtrain {

// --dump-ir, --no-cuda-graph, --threads: of subcommands that compute.
struct EngineFlags {
  std::string dump_ir;
  bool no_cuda_graph = false;
  int64_t threads = 0;  // 0: OMP_NUM_THREADS, else one per core

  void add_to(CLI::App& app);
  void add_threads(CLI::App& app);
  EngineOptions options(const Invocation& invocation) const;
};

// --allow, --reset-cursor, --reset-optimizer, --partial, --max-time: of subcommands that resume.
struct ResumeFlags {
  RestoreOptions restore;

  void add_to(CLI::App& app, ConfigWords& config);
};

void add_dump_ir_flag(CLI::App& app, std::string& dump_ir);
void add_run_dir_flag(CLI::App& app, std::string& run_dir, const char* meaning);
void add_weights_flag(CLI::App& app, std::string& weights);

// For Subcommand::json_run.
std::optional<LoadOptions> json_run(const OutputFlags& output, const ConfigWords& config);

// Without a run folder, and what to restore.
RunRequest run_request(const Invocation& invocation, LoadOptions load,
                       const OutputFlags& output = {}, const EngineFlags& engine = {});

}  // namespace meshtrain
