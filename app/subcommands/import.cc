// meshtrain import: a model that Keras or Hugging Face's transformers saved, as a config and
// weights.
#include "interop/keras/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/printable.h"
#include "base/text.h"
#include "checkpoint/learned_json.h"
#include "config/run_files.h"
#include "engine/weights.h"
#include "interop/huggingface/import.h"
#include "interop/keras/import_source.h"
#include "output.h"
#include "subcommand.h"
#include "tensor/safetensors.h"
#include "tensor/weights.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

struct ImportModelOptions {
  std::string model, folder, weights, architecture;
  std::vector<std::string> shapes;
  bool quiet = false;
};

constexpr const char* kTokenizer = "tokenizer.json";

// "gpt2" of "models/gpt2/".
std::string file_name_of(const std::string& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

// Where the import goes; never beside the files that it reads.
std::string output_folder(const ImportModelOptions& options, const std::string& otherwise) {
  const std::string folder = options.folder.empty() ? otherwise : options.folder;
  std::error_code error;
  if (fs::equivalent(folder, options.model, error)) {
    refuse("E141", fmt::format("`{}` is the model's own folder", folder), "another folder: -o DIR");
  }
  return folder;
}

void check_folder(const std::string& folder, bool has_weights) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::exists(status) && !fs::is_directory(status)) {
    refuse("E141", fmt::format("`{}` is not a folder", folder), "another folder: -o DIR");
  }
  for (const char* name : {run_files::kConfig, run_files::kWeights}) {
    const std::string path = (fs::path(folder) / name).string();
    if ((has_weights || name == run_files::kConfig) && fs::exists(path, error)) {
      refuse("E141", fmt::format("`{}` exists already", path), "another folder: -o DIR");
    }
  }
}

// Throws the problems of a model whose Inputs leave sizes open, with --shape as the fix. The config
// that the problems point into is never written.
[[noreturn]] void refuse_open_shapes(const Diagnostics& found, const ImportedModel& imported) {
  Diagnostics out;
  for (const Diagnostic& problem : found.list()) {
    if (problem.severity == Severity::kError) {
      out.error(problem.code, {}, problem.message);
    }
  }
  std::vector<std::string> flags;
  for (const std::string& shape : imported.open_shapes) {
    flags.push_back("--shape " + shape);
  }
  throw ConfigError(out).help(
      fmt::format("give the sizes that the model leaves open (None): {}", join(flags, " ")));
}

// The weights under the paths of the model that the config describes, in its order.
std::vector<NamedTensor> weights_of(const Config& config, const ImportedModel& imported,
                                    KerasSource& source) {
  Diagnostics diagnostics;
  const Model model(config.model, dtype_policy(config.dtype_policy.value), diagnostics);
  if (diagnostics.has_errors()) {
    const std::vector<Diagnostic>& problems = diagnostics.list();
    const bool is_shape = std::any_of(problems.begin(), problems.end(),
                                      [](const Diagnostic& each) { return each.code == "E120"; });
    if (is_shape && !imported.open_shapes.empty()) {
      refuse_open_shapes(diagnostics, imported);
    }
    diagnostics.throw_if_errors();
  }
  if (!source.weights) {
    return {};
  }
  const std::vector<KerasGroup> groups =
      imported.hub_class.empty() ? imported.groups : keras_groups(model, *source.weights);
  return fitting_weights(
      named_by_path(std::move(*source.weights), groups, model), wanted_weights(model),
      source.weights_path, {}, nullptr,
      fmt::format("model and weights must be of one network: save both anew, {}",
                  imported.hub_class.empty() ? "as one file: model.save(\"model.keras\")"
                                             : "model.save_to_preset()"));
}

void make_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw FileError(ExitCode::kWriteFailed, "cannot create", folder, error.value());
  }
}

void show_dropped(const std::vector<std::string>& dropped, bool quiet) {
  Diagnostics warnings;
  for (const std::string& line : dropped) {
    warnings.warning("W416", {}, fmt::format("not taken over: {}", line));
  }
  show_warnings(warnings, quiet);
}

// The tokenizer beside the config, if there is one. Where the config's data use it, it is also what
// a run has learned from its data of `source`, so that `generate` needs no text to train on.
void write_tokenizer(const std::string& folder, const std::string& tokenizer, bool is_used,
                     const char* source) {
  if (tokenizer.empty()) {
    return;
  }
  write_file_atomic((fs::path(folder) / kTokenizer).string(), std::string_view(tokenizer));
  if (!is_used) {
    return;
  }
  LearnedData learned;
  learned.source = source;
  learned.tokenizer = tokenizer;
  const std::string text = learned_text(learned);
  write_file_atomic((fs::path(folder) / run_files::kLearned).string(), std::string_view(text));
}

const char* with_tokenizer(const std::string& tokenizer) {
  return tokenizer.empty() ? "" : " with its tokenizer";
}

// A folder of transformers.
int import_directory(const ImportModelOptions& options) {
  if (!options.weights.empty()) {
    refuse("E140", fmt::format("--weights with the folder `{}`, which has its own", options.model),
           "leave --weights out");
  }
  if (!options.shapes.empty()) {
    refuse(
        "E140",
        fmt::format("--shape with the folder `{}`, whose config.json has all sizes", options.model),
        "leave --shape out");
  }
  const std::string folder = output_folder(options, file_name_of(options.model));
  check_folder(folder, true);
  const auto path_of = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const HuggingFaceImport imported = import_huggingface(options.model, path_of(run_files::kConfig),
                                                        run_files::kWeights, options.architecture);
  make_folder(folder);
  write_safetensors(path_of(run_files::kWeights), imported.weights,
                    with_checksum(imported.weights));
  write_tokenizer(folder, imported.tokenizer, imported.takes_tokenizer, "text");
  write_file_atomic(path_of(run_files::kConfig), std::string_view(imported.yaml));
  show_dropped(imported.dropped, options.quiet);
  out_stream().write(fmt::format("{}: {}{}, {} weights in {}\n", path_of(run_files::kConfig),
                                 imported.architecture, with_tokenizer(imported.tokenizer),
                                 imported.weights.size(), path_of(run_files::kWeights)));
  return 0;
}

ImportedModel import_source(const ImportModelOptions& options, const std::string& file,
                            const KerasSource& source) {
  ImportOptions importing;
  importing.file = file;
  importing.version = source.version;
  importing.initial_weights = source.weights ? run_files::kWeights : "";
  importing.weights = source.weights ? &*source.weights : nullptr;
  importing.tokenizer = source.tokenizer;
  for (const std::string& shape : options.shapes) {
    importing.shapes.push_back(parse_input_shape(shape));
  }
  ImportedModel imported = import_keras(source.json, importing);
  if (!source.tokenizer_problem.empty()) {
    imported.dropped.push_back("the tokenizer: " + source.tokenizer_problem);
  }
  return imported;
}

// A file of Keras, or a preset of Keras Hub.
int import_keras_model(const ImportModelOptions& options, bool is_preset) {
  if (!options.architecture.empty()) {
    refuse("E140", fmt::format("--architecture with `{}`, which is Keras'", options.model),
           "leave --architecture out: Keras' files have one model");
  }
  KerasSource source = read_keras_source(options.model, options.weights);
  const std::string file = file_name_of(options.model);
  const std::string folder =
      output_folder(options, is_preset ? file : fs::path(file).stem().string());
  const ImportedModel imported = import_source(options, file, source);
  check_folder(folder, source.weights.has_value());
  const auto path_of = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const std::string path = path_of(run_files::kConfig);
  LoadOptions load;
  load.source = std::make_shared<SourceFile>(SourceFile{path, imported.yaml});
  load.require_data = false;
  const bool has_weights = source.weights.has_value();
  const std::vector<NamedTensor> weights = weights_of(load_config(load), imported, source);
  make_folder(folder);
  if (has_weights) {
    write_safetensors(path_of(run_files::kWeights), weights, with_checksum(weights));
  }
  write_tokenizer(folder, source.tokenizer, imported.takes_tokenizer, "lines");
  write_file_atomic(path, std::string_view(imported.yaml));
  show_dropped(imported.dropped, options.quiet);
  const std::string model = imported.hub_class.empty()
                                ? fmt::format("{} layers", imported.num_layers)
                                : imported.hub_class;
  out_stream().write(fmt::format(
      "{}: {}{}{}\n", path, model, with_tokenizer(source.tokenizer),
      has_weights ? fmt::format(", {} weights in {}", weights.size(), path_of(run_files::kWeights))
                  : ", no weights"));
  return 0;
}

int run_import(const ImportModelOptions& options, Invocation&) {
  std::error_code error;
  const bool is_folder = fs::is_directory(options.model, error);
  return is_folder && !is_hub_preset(options.model) ? import_directory(options)
                                                    : import_keras_model(options, is_folder);
}

}  // namespace

void add_import(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<ImportModelOptions>("import",
                                 "A model that Keras or Hugging Face saved, as a config and "
                                 "weights (not its optimizer's state)",
                                 run_import);
  app.add_option(
         "MODEL", options.model,
         fmt::format("{}; the weights of a model.json are model.weights.h5 beside it, or --weights",
                     kImportedModels))
      ->required();
  app.add_option("-o,--output", options.folder,
                 "Folder for config.yaml and weights.safetensors; the model's name when absent")
      ->type_name("DIR");
  app.add_option("-w,--weights", options.weights, "Weights that model.save_weights() wrote")
      ->type_name("FILE.weights.h5");
  app.add_option("--shape", options.shapes,
                 "Sizes of an input that the Keras model leaves open (None), without the batch; "
                 "INPUT= where there are several; may be repeated")
      ->type_name("[INPUT=]SIZE,...")
      ->allow_extra_args(false);
  app.add_option("--architecture", options.architecture,
                 "What a model of transformers is read as, such as BertModel for a BertForMaskedLM "
                 "whose head is not wanted; the one of its config.json when absent")
      ->type_name("CLASS");
  add_quiet_flag(app, options.quiet, "No warnings");
  add_color_flag(app);
}

}  // namespace meshtrain
