#include "verbs.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "flags.h"
#include "help.h"

namespace meshtrain {
namespace {

CLI::App& add_verb(CLI::App& parent, const char* name, const char* meaning, Action& chosen,
                   Action run) {
  CLI::App& verb = *parent.add_subcommand(name, meaning);
  verb.group("Verbs");
  verb.callback([&chosen, run = std::move(run)] { chosen = run; });
  return verb;
}

void add_run_dir(CLI::App& verb, Arguments& a, const char* meaning) {
  verb.add_option("-o,--run-dir", a.run_dir, meaning)->type_name("DIR");
}

// What train and launch both take.
void add_train_flags(CLI::App& verb, Arguments& a) {
  add_config_arguments(verb, a);
  add_run_dir(verb, a, "Where results go; default runs/NAME/ID, never overwritten");
  verb.add_flag("-r{auto},--resume{auto}", a.resume,
                "Go on from a checkpoint. auto, or no word: from the newest, or start afresh. "
                "As --resume=best")
      ->option_text("[=auto|latest|best|PATH]")
      ->group("Resuming");
  add_resume_flags(verb, a);
  add_engine_flags(verb, a);
  add_output_flags(verb, a);
  add_verbose_flag(verb, a);
  verb.add_option("--restarts", a.restarts,
                  "Start again from the newest checkpoint when a process or host was lost, at most "
                  "N times")
      ->type_name("N")
      ->check(whole_number(0, 1000000))
      ->group("Processes");
}

void add_train(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb = add_verb(
      to.app, "train", "Build the model, fit, evaluate", to.action,
      [&a, &started = to.started] { return a.dry_run ? run_plan(a) : run_train(a, started); });
  add_train_flags(verb, a);
  verb.add_flag("-n,--dry-run", a.dry_run, "Show the plan and stop");
}

void add_launch(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(to.app, "launch", "Train as several processes, on this machine or on hosts",
               to.action, [&a, &started = to.started] { return run_launch(a, started); });
  verb.add_option("--hosts", a.launch.hosts, "Hosts and how many processes each takes")
      ->type_name("a:4,b:4")
      ->group("Processes");
  verb.add_option("--hostfile", a.launch.host_file, "The same as lines `a slots=4` of a file")
      ->type_name("FILE")
      ->group("Processes");
  verb.add_option("--processes", a.launch.processes, "How many; default as many as the hosts take")
      ->type_name("N")
      ->check(whole_number(1, 65536))
      ->group("Processes");
  verb.add_option("--remote-agent", a.launch.agent,
                  "What starts a command on another host: AGENT HOST COMMAND; default ssh")
      ->type_name("AGENT")
      ->group("Processes");
  verb.add_option("--interface", a.launch.interface,
                  "The network interface to use on each host; default any")
      ->type_name("NAME")
      ->group("Processes");
  add_train_flags(verb, a);
  verb.footer(
      "mpirun (Open MPI) starts the processes, and -v shows how. SIGTERM, SIGINT and SIGUSR1 save\n"
      "and stop all of them, unless run.on_signal says otherwise; each signal's action must be\n"
      "SIGUSR1's or SIGUSR2's.");
}

void add_evaluate(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(to.app, "evaluate", "Loss and metrics of a run, or of a config with weights",
               to.action, [&a, &started = to.started] { return run_evaluate(a, started); });
  add_config_arguments(verb, a, Steps::kEvaluate);
  add_weights_flag(verb, a);
  add_engine_flags(verb, a);
  add_output_flags(verb, a);
}

void add_predict(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb = add_verb(
      to.app, "predict", "Outputs of a run, or of a config with weights, for given samples",
      to.action, [&a, &started = to.started] { return run_predict(a, started); });
  add_config_arguments(verb, a, Steps::kNone);
  add_weights_flag(verb, a);
  verb.add_option("-i,--input", a.input,
                  "Samples: a NumPy array or archive, HDF5, or a file like those of data.train")
      ->type_name("X.npy")
      ->required();
  verb.add_option("-o,--output", a.output,
                  "Where predictions go: .npy, .npz (also several outputs), .csv or .jsonl")
      ->type_name("Y.npy")
      ->required();
  add_engine_flags(verb, a);
  add_output_flags(verb, a);
}

void add_validate(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb = add_verb(to.app, "validate", "All problems of a config at once, in milliseconds",
                            to.action, [&a] { return run_validate(a); });
  add_config_arguments(verb, a);
  add_format_flag(verb, a);
  add_color_flag(verb, a);
  add_quiet_flag(verb, a, "Only problems");
}

void add_plan(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(to.app, "plan",
               "Layouts, bytes per device, collectives and time of a step; needs no data and no "
               "device, and takes those of a cluster that is not here: --devices 64xH100",
               to.action, [&a] { return run_plan(a); });
  add_config_arguments(verb, a);
  add_hardware_flags(verb, a);
  add_dump_ir_flag(verb, a);
  add_format_flag(verb, a);
  add_color_flag(verb, a);
}

void add_bench(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& bench = *to.app.add_subcommand("bench", "Measure this machine, or these processes");
  bench.require_subcommand(1)->group("Verbs");
  CLI::App& comm = add_verb(bench, "comm",
                            "Time of the collectives by size, with the constants that `plan "
                            "--hardware` takes",
                            to.action, [&a] { return run_bench_comm(a); });
  comm.add_option("--mesh", a.mesh, "Shape of the mesh; each of its axes is measured; default 8")
      ->type_name("4x2|data=4,model=2");
  comm.add_option("--devices", a.devices, "Devices of the mesh")->type_name("cpu:8|gpu:0x8|auto");
  comm.add_option("--smallest", a.bench.smallest, "Least bytes of a tensor")
      ->type_name("SIZE")
      ->capture_default_str();
  comm.add_option("--largest", a.bench.largest, "Most bytes of a tensor")
      ->type_name("SIZE")
      ->capture_default_str();
  comm.add_option("--seconds", a.bench.seconds, "For each size")
      ->type_name("X")
      ->check(number_between(0.001, 60))
      ->capture_default_str();
  add_format_flag(comm, a);
}

void add_summary(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb = add_verb(to.app, "summary", "Keras' table of layers, with their layouts",
                            to.action, [&a] { return run_summary(a); });
  add_config_arguments(verb, a);
  CLI::Option* sharding =
      verb.add_option("--sharding", a.sharding,
                      "Draw which device holds which part of a variable, of LAYER/output or of the "
                      "batch; without a name of all of them. As --sharding=NAME")
          ->option_text("[=NAME]")
          ->expected(0, 1)
          ->allow_extra_args(false)
          ->group("Output");
  verb.parse_complete_callback([&a, sharding] { a.draw_sharding = sharding->count() > 0; });
  add_color_flag(verb, a);
}

void add_config(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& config = *to.app.add_subcommand("config", "Show the merged config");
  config.require_subcommand(1)->group("Verbs");
  CLI::App& show = add_verb(config, "show", "The merged config with all defaults, as YAML",
                            to.action, [&a] { return run_config_show(a); });
  add_config_arguments(show, a);
  show.add_flag("--origin", a.origin, "Say where each value comes from");
}

void add_data_fetch(CLI::App& data, CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(data, "fetch", "Download the files of mnist, fashion_mnist, cifar10 or cifar100",
               to.action, [&a, &started = to.started] { return run_data_fetch(a, started); });
  verb.add_option("SET", a.fetch.sets, "Data sets by name")->required();
  verb.add_option("--dir", a.fetch.folder,
                  "Where they go; default $MESHTRAIN_CACHE/datasets or "
                  "~/.cache/meshtrain/datasets. A config finds them there or in its data.dir")
      ->type_name("DIR");
  verb.add_option("--mirror", a.fetch.mirror,
                  "Take them from here instead, named as they are in DIR")
      ->type_name("URL");
  verb.add_option("--timeout", a.fetch.timeout,
                  "Seconds to wait for a connection, and for each byte; default 30")
      ->type_name("SECONDS")
      ->check(number_between(1, 1e6));
  verb.add_flag("--offline", a.fetch.offline,
                "Use no network: check what is there, say where the rest comes from");
  add_quiet_flag(verb, a, "No progress");
  add_color_flag(verb, a);
}

void add_data(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& data = *to.app.add_subcommand("data", "Data sets: download and look into them");
  data.require_subcommand(1)->group("Verbs");
  add_data_fetch(data, to);
  CLI::App& inspect = add_verb(data, "inspect",
                               "Samples, shapes, dtypes, ranges and class counts of a config's "
                               "data, or of a file or folder",
                               to.action, [&a] { return run_data_inspect(a); });
  add_config_arguments(inspect, a, Steps::kNone);
  add_format_flag(inspect, a);
  add_color_flag(inspect, a);
}

void add_devices(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb = add_verb(to.app, "devices", "Devices here, and what `auto` would choose",
                            to.action, [&a] { return run_devices(a); });
  add_format_flag(verb, a);
}

void add_export(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(to.app, "export",
               "Weights or the whole model of a run, or of a config with weights, for Keras and "
               "others (not the optimizer's state)",
               to.action, [&a] { return run_export(a); });
  add_config_arguments(verb, a, Steps::kNone);
  add_weights_flag(verb, a);
  verb.add_option(
          "-o,--output", a.output,
          "What to write, by its end: .keras, .weights.h5, .npz, .safetensors, .json (Keras' "
          "architecture), .py (a Keras script, with .weights.h5 beside it)")
      ->type_name("FILE")
      ->required();
  add_quiet_flag(verb, a, "Only errors");
  add_color_flag(verb, a);
}

void add_init(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(to.app, "init", "Print a commented config to start from; without a name, list them",
               to.action, [&a] { return run_init(a); });
  verb.add_option("TEMPLATE", a.template_name, "Name of the template");
}

void add_inspect(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb = add_verb(to.app, "inspect", "Tensors, layouts and config of a checkpoint",
                            to.action, [&a] { return run_inspect(a); });
  verb.add_option("DIR", a.target, "A checkpoint, or a run: then its newest")->required();
  add_format_flag(verb, a);
}

void add_import(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(to.app, "import",
               "A model that Keras saved, as a config and weights (not its optimizer's state)",
               to.action, [&a] { return run_import(a); });
  verb.add_option(
          "MODEL", a.input,
          "model.keras, or model.json from model.to_json(), with model.weights.h5 beside it "
          "or --weights")
      ->required();
  verb.add_option(
          "-o,--output", a.run_dir,
          "Folder for config.yaml and weights.safetensors; the model file's name when absent")
      ->type_name("DIR");
  verb.add_option("-w,--weights", a.weights, "Weights that model.save_weights() wrote")
      ->type_name("FILE.weights.h5");
  add_quiet_flag(verb, a, "No warnings");
  add_color_flag(verb, a);
}

void add_report(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(to.app, "report",
               "Write report.html of a run: curves, time line, layouts, config in one file",
               to.action, [&a] { return run_report(a); });
  verb.add_option("RUN", a.target, "A run, finished or not")->required();
  verb.add_option("-o,--output", a.output, "Where to, instead of RUN/report.html; - for stdout")
      ->type_name("FILE");
  add_color_flag(verb, a);
}

void add_resume(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb = add_verb(to.app, "resume", "Go on with a run, from its own folder", to.action,
                            [&a, &started = to.started] { return run_resume(a, started); });
  verb.add_option("RUN", a.target, "A run, or one of its checkpoints")->required();
  verb.add_option("KEY=VALUE", a.words, "What changes: key.path=value, ~key, list+=item");
  add_key_flags(verb, a);
  add_run_dir(verb, a, "A new run, which begins from that checkpoint");
  add_resume_flags(verb, a);
  add_output_flags(verb, a);
  add_verbose_flag(verb, a);
}

void add_explain(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb = add_verb(to.app, "explain", "What the code of a message, a key or a class means",
                            to.action, [&a] { return run_explain(a); });
  verb.add_option("WORD", a.target,
                  "E204, fit.batch_size, Dense, Dense.units, MESHTRAIN_DATA; none: all codes");
  verb.add_flag("--markdown", a.markdown, "Every key and class of a config, as Markdown");
  add_color_flag(verb, a);
}

void add_schema(CommandLine to) {
  add_verb(to.app, "schema", "JSON Schema of the config, for editors", to.action, run_schema);
}

void add_verify(CommandLine to) {
  Arguments& a = to.arguments;
  CLI::App& verb =
      add_verb(to.app, "verify",
               "Prove a config's equality over meshes, a run's exact resume, a checkpoint's bytes",
               to.action, [&a] { return run_verify(a); });
  verb.add_option("TARGET", a.words,
                  "A config: some steps in float64 on one device, on its mesh and on the other "
                  "meshes of as many devices give the same numbers. A run: all checkpoints are "
                  "whole, and what lies between the newest two comes out the same again, bit for "
                  "bit. A checkpoint: every byte fits its checksum. KEY=VALUE after a config")
      ->option_text("[KEY=VALUE...]")
      ->required();
  add_key_flags(verb, a, Steps::kNone);
  verb.add_option("--steps", a.steps,
                  "Of a config: training steps of a whole batch to compare; the smaller last batch "
                  "of the epoch, if there is one, is compared too")
      ->type_name("N")
      ->check(whole_number(1, 1000000))
      ->capture_default_str();
  verb.add_option("--tolerance", a.tolerance,
                  "Of a config: largest difference, relative to numbers above 1")
      ->type_name("X")
      ->check(number_between(0, std::numeric_limits<double>::max()))
      ->capture_default_str();
  verb.add_option("--scratch", a.scratch, "Of a run: folder to replay in; default a temporary one")
      ->type_name("DIR");
  verb.add_flag("--checksums", a.checksums, "Of a run: checksums only, no replay");
  add_color_flag(verb, a);
  verb.footer("Exit codes: 0 equal; 7 not equal; 6 checkpoints damaged, or too few; 3 data gone.");
}

void add_version(CommandLine to) {
  add_verb(to.app, "version", "Version and how the binary was built", to.action, run_version);
}

}  // namespace

std::vector<std::string> given_words(const CLI::App& app) {
  constexpr std::string_view kOfLaunch[] = {"hosts",        "hostfile",  "processes",
                                            "remote-agent", "interface", "restarts"};
  std::vector<std::string> words, out;
  const CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().front();
    out.push_back(verb->get_name() == "launch" ? "train" : verb->get_name());
  }
  for (const CLI::Option* option : verb->get_options()) {
    if (option->get_positional()) {
      words.insert(words.end(), option->results().begin(), option->results().end());
      continue;
    }
    const std::string& name = option->get_lnames().front();
    if (std::find(std::begin(kOfLaunch), std::end(kOfLaunch), name) != std::end(kOfLaunch)) {
      continue;
    }
    for (const std::string& value : option->results()) {
      out.push_back("--" + name + "=" + value);
    }
  }
  out.insert(out.end(), words.begin(), words.end());
  return out;
}

void add_verbs(CommandLine to) {
  for (const auto add :
       {add_train,   add_launch, add_evaluate, add_predict, add_validate, add_plan,    add_explain,
        add_summary, add_config, add_data,     add_devices, add_export,   add_init,    add_inspect,
        add_import,  add_report, add_resume,   add_schema,  add_verify,   add_version, add_bench}) {
    add(to);
  }
}

}  // namespace meshtrain
