// meshtrain export: a model's weights, or the whole model, for others; above all for Keras.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "config_words.h"
#include "engine/setup.h"
#include "engine/weights.h"
#include "interop/keras/distribution.h"
#include "interop/keras/export_json.h"
#include "interop/keras/export_model.h"
#include "interop/keras/export_python.h"
#include "interop/keras/weights.h"
#include "interop/onnx/export_onnx.h"
#include "interop/save_model.h"
#include "output.h"
#include "run_flags.h"
#include "train/learned_file.h"
#include "train/load_weights.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  ConfigWords config;
  std::string weights, output;
  bool quiet = false;
};

enum class Format { kModel, kPython, kJson, kOnnx };

Format format_of(const std::string& path) {
  const std::string lower = to_lower(path);
  if (ends_with(lower, ".py") || ends_with(lower, ".json")) {
    return ends_with(lower, ".py") ? Format::kPython : Format::kJson;
  }
  if (ends_with(lower, ".onnx")) {
    return Format::kOnnx;
  }
  if (model_format(path) != ModelFormat::kNone) {
    return Format::kModel;
  }
  refuse(
      "E140", fmt::format("cannot tell what to write from the name `{}`", path),
      "end it with .keras, .onnx, .weights.h5, .npz, .safetensors, .json (architecture) or .py (a "
      "Keras script)");
}

std::vector<NamedTensor> read_weights_of(const Setup& setup, const std::string& path) {
  return fitting_weights(read_weights_in(path, &setup.model()), wanted_weights(setup.model()), path,
                         {});
}

// Seconds since 1970 when the file was last changed.
int64_t time_of(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_mtime) : 0;
}

std::vector<H5Vars> vars_of(const Setup& setup, const std::vector<NamedTensor>& weights) {
  return keras_vars(setup.model(), weights,
                    is_keras_sequential(setup.config().model, setup.model()));
}

// "model.py" -> "model.weights.h5"
std::string weights_beside(const std::string& script) {
  return fs::path(script).replace_extension(".weights.h5").string();
}

void write_script(const ExportOptions& options, const Setup& setup, const std::string& weights) {
  const std::string beside = weights.empty() ? "" : weights_beside(options.output);
  const std::string script = keras_script(
      setup.config(), setup.model(), keras_distribution(setup), options.config.words.front(),
      beside.empty() ? "" : fs::path(beside).filename().string());
  if (!beside.empty()) {
    write_h5(beside, vars_of(setup, read_weights_of(setup, weights)));
  }
  write_file_atomic(options.output, std::string_view(script));
}

void write(const ExportOptions& options, const Setup& setup, Format format,
           const std::string& weights) {
  const std::string& path = options.output;
  if (format == Format::kPython) {
    return write_script(options, setup, weights);
  }
  if (format == Format::kJson) {
    const std::string json = keras_json(setup.config(), setup.model());
    return write_file_atomic(path, std::string_view(json));
  }
  if (weights.empty()) {
    refuse("E140", "no weights given",
           "give a run, or --weights FILE, for example runs/NAME/latest/weights.safetensors");
  }
  if (format == Format::kOnnx) {
    const std::string image = onnx_image(setup, read_weights_of(setup, weights));
    return write_file_atomic(path, std::string_view(image));
  }
  write_model(path, setup.config(), setup.model(), read_weights_of(setup, weights),
              time_of(weights));
}

int run_export(const ExportOptions& options, Invocation&) {
  const Format format = format_of(options.output);
  const ModelSource source = options.config.source(options.weights, false);
  const Config config = load_config(source.load);
  const Setup setup(config, nullptr);
  show_warnings(setup.warnings(), options.quiet);
  const std::string weights =
      format == Format::kJson ? "" : weights_file(source, config, show_unless(options.quiet));
  const LearnedPtr learned = weights.empty() ? nullptr : learned_for(source, config);
  write(options, setup, format, weights);
  std::vector<std::string> written = {options.output};
  if (!weights.empty()) {
    if (format == Format::kPython) {
      written.push_back(weights_beside(options.output));
    }
    if (std::string path = write_learned_beside(written.back(), learned); !path.empty()) {
      written.push_back(std::move(path));
    }
  }
  show_unless(options.quiet)(fmt::format("wrote {}\n", join(written, " and ")));
  return 0;
}

}  // namespace

void add_export(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<ExportOptions>("export",
                            "Weights or the whole model of a run, or of a config with weights, for "
                            "Keras, ONNX and others (not the optimizer's state)",
                            run_export);
  options.config.add_to(app, Steps::kNone);
  add_weights_flag(app, options.weights);
  app.add_option(
         "-o,--output", options.output,
         "What to write, by its end: .keras, .onnx, .weights.h5, .npz, .safetensors, .json (Keras' "
         "architecture), .py (a Keras script, with .weights.h5 beside it)")
      ->type_name("FILE")
      ->required();
  add_quiet_flag(app, options.quiet, "Only errors");
  add_color_flag(app);
}

}  // namespace meshtrain
