// meshtrain export: a model's weights, or the whole model, for others; above all for Keras.
#include "interop/huggingface/export.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "config/interval.h"
#include "config/resolve.h"
#include "config/source_classes.h"
#include "config_words.h"
#include "data/text_codec.h"
#include "engine/setup.h"
#include "engine/weights.h"
#include "interop/keras/distribution.h"
#include "interop/keras/export_json.h"
#include "interop/keras/export_model.h"
#include "interop/keras/export_python.h"
#include "interop/keras/weights.h"
#include "interop/onnx/export_onnx.h"
#include "interop/save_model.h"
#include "nn/lora.h"
#include "output.h"
#include "record/continuations.h"
#include "run_flags.h"
#include "train/learned_file.h"
#include "train/load_weights.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  ConfigWords config;
  std::string weights, output, format, shard_size;
  bool quiet = false;
};

enum class Format { kModel, kPython, kJson, kOnnx, kHuggingFace };

Format format_of(const ExportOptions& options) {
  const std::string& path = options.output;
  if (!options.format.empty()) {
    return Format::kHuggingFace;
  }
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
      "Keras script), or give --format hf for a folder");
}

int64_t shard_bytes(const ExportOptions& options) {
  if (options.shard_size.empty()) {
    return kHuggingFaceShardBytes;
  }
  const std::optional<int64_t> bytes = parse_bytes(options.shard_size);
  if (!bytes || *bytes <= 0) {
    refuse("E140", fmt::format("--shard-size `{}` is no size", options.shard_size),
           "write 500 MB or 2 GiB");
  }
  return *bytes;
}

// Ids and names for config.json: those of the config, else what the data of training say.
HuggingFaceExtras extras_of(const Config& config, const Setup& setup, const LearnedPtr& learned) {
  HuggingFaceExtras extras = {config.model.token_ids, config.model.class_names};
  const DataConfig& data = config.data;
  const Model& model = setup.model();
  const int64_t classes = model.calls()[model.outputs()[0]].output_shape.back();
  if (extras.class_names.empty() && learned != nullptr &&
      std::ssize(learned->class_names) == classes) {
    extras.class_names = learned->class_names;
  }
  if (!extras.token_ids.contains("eos_token_id") && data.train) {
    const std::unique_ptr<TextCodec> codec = text_codec(*data.train, learned);
    for (const int32_t id : document_end(data, codec.get())) {
      extras.token_ids["eos_token_id"] = {id};
    }
  }
  return extras;
}

// Those of `given` that the model has: all of its, and with fit.partial_weights not only its.
std::vector<NamedTensor> model_weights(const ExportOptions& options, const Config& config,
                                       std::vector<NamedTensor> given,
                                       const std::vector<WantedWeight>& wanted,
                                       const std::string& path) {
  std::vector<std::string> unfit;
  std::vector<NamedTensor> out =
      fitting_weights(std::move(given), wanted, path, {},
                      config.fit.partial_weights ? &unfit : nullptr, kTakePartial, true);
  show_unless(options.quiet)(left_out_note(path, unfit));
  return out;
}

// The model that is written: that of the run, but for low-rank factors, which its weights take in.
struct Exported {
  const Setup& setup;
  const Setup& source;  // as the weights are in their file

  std::vector<NamedTensor> merged(std::vector<NamedTensor> weights) const {
    return has_lora(source.model()) ? merge_lora(source.model(), std::move(weights))
                                    : std::move(weights);
  }
};

// A folder for transformers; the weights keep the dtypes of their file.
void write_folder(const ExportOptions& options, const Exported& exported,
                  const std::string& weights, const HuggingFaceExtras& extras) {
  const Setup& setup = exported.source;
  std::error_code error;
  if (fs::exists(options.output, error) && !fs::is_directory(options.output, error)) {
    refuse("E141", fmt::format("`{}` is not a folder", options.output), "another folder: -o DIR");
  }
  std::vector<NamedTensor> tensors = read_weights_in(weights, &setup.model());
  std::vector<WantedWeight> wanted = wanted_weights(setup.model());
  for (WantedWeight& weight : wanted) {
    for (const NamedTensor& tensor : tensors) {
      if (tensor.name == weight.path && is_floating(tensor.tensor.dtype())) {
        weight.dtype = tensor.tensor.dtype();
      }
    }
  }
  export_huggingface(
      exported.setup,
      exported.merged(model_weights(options, setup.config(), std::move(tensors), wanted, weights)),
      options.output, shard_bytes(options), extras);
}

std::vector<NamedTensor> read_weights_of(const ExportOptions& options, const Exported& exported,
                                         const std::string& path) {
  const Setup& source = exported.source;
  return exported.merged(model_weights(options, source.config(),
                                       read_weights_in(path, &source.model()),
                                       wanted_weights(source.model()), path));
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

// The files of weights that an export to a folder replaces or removes.
std::vector<std::string> weights_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (is_huggingface_weights(entry.path().filename().string())) {
      out.push_back(entry.path().string());
    }
  }
  return out;
}

// Refuses to replace the weights that are read, as `predict` does its samples. Other files of
// these names are replaced.
void check_output(const ExportOptions& options, Format format, const std::string& weights) {
  const bool is_folder = format == Format::kHuggingFace;
  std::vector<std::string> paths =
      is_folder ? weights_in(options.output) : std::vector<std::string>{options.output};
  if (format == Format::kPython && !weights.empty()) {
    paths.push_back(weights_beside(options.output));
  }
  for (const std::string& path : paths) {
    std::error_code error;
    if (!weights.empty() && fs::equivalent(path, weights, error)) {
      refuse("E140", fmt::format("`{}` would replace the weights that are exported", path),
             is_folder ? "another folder: -o DIR" : "another name: -o FILE");
    }
  }
}

void write_script(const ExportOptions& options, const Exported& exported,
                  const std::string& weights) {
  const Setup& setup = exported.setup;
  const std::string beside = weights.empty() ? "" : weights_beside(options.output);
  const std::string script = keras_script(
      setup.config(), setup.model(), keras_distribution(setup), options.config.words.front(),
      beside.empty() ? "" : fs::path(beside).filename().string());
  if (!beside.empty()) {
    write_h5(beside, vars_of(setup, read_weights_of(options, exported, weights)));
  }
  write_file_atomic(options.output, std::string_view(script));
}

void write(const ExportOptions& options, const Exported& exported, Format format,
           const std::string& weights, const HuggingFaceExtras& extras) {
  const std::string& path = options.output;
  const Setup& setup = exported.setup;
  if (format == Format::kPython) {
    return write_script(options, exported, weights);
  }
  if (format == Format::kJson) {
    const std::string json = keras_json(setup.config(), setup.model());
    return write_file_atomic(path, std::string_view(json));
  }
  if (weights.empty()) {
    refuse("E140", "no weights given",
           "give a run, or --weights FILE, for example runs/NAME/latest/weights.safetensors");
  }
  if (format == Format::kHuggingFace) {
    return write_folder(options, exported, weights, extras);
  }
  if (format == Format::kOnnx) {
    const std::string image = onnx_image(setup, read_weights_of(options, exported, weights));
    return write_file_atomic(path, std::string_view(image));
  }
  write_model(path, setup.config(), setup.model(), read_weights_of(options, exported, weights),
              time_of(weights));
}

// Transforms of the data that predictions need, too: the file has the model alone.
void note_transforms(const DataConfig& data, bool is_quiet) {
  std::vector<std::string> names;
  for (const ConfigObject& transform : data.transform) {
    if (!changes_batches(transform) && transform.class_name != "MaskedLMMaskGenerator") {
      names.push_back(transform.class_name);
    }
  }
  if (!names.empty()) {
    show_unless(is_quiet)(fmt::format(
        "note: the file takes inputs as `data.transform` gives them; it does not have {}\n",
        join(names, ", ")));
  }
}

int run_export(const ExportOptions& options, Invocation&) {
  const Format format = format_of(options);
  const ModelSource source = options.config.source(options.weights, false);
  Config config = load_config(source.load);
  config.data.head_tail.value = 1;  // other programs take steps in order
  if (format != Format::kPython) {  // a script has the layouts
    drop_padding(config.model);
    config.distribution.layout_map.clear();
  }
  const bool has_compile =
      format == Format::kPython || format == Format::kJson || ends_with(options.output, ".keras");
  if (drop_expressions(config.compile) && has_compile) {
    show_unless(options.quiet)(
        "note: the file lacks the losses and metrics that are expressions\n");
  }
  const Setup source_setup(config, nullptr);
  const Config merged_config = without_lora(config);
  std::optional<Setup> merged;
  if (has_lora(source_setup.model())) {
    merged.emplace(merged_config, nullptr);
  }
  const Setup& setup = merged ? *merged : source_setup;
  const Exported exported{setup, source_setup};
  show_warnings(setup.warnings(), options.quiet);
  const auto find_weights = [&] {
    return format == Format::kJson ? "" : weights_file(source, config, show_unless(options.quiet));
  };
  std::string weights = find_weights();
  check_output(options, format, weights);
  note_transforms(config.data, options.quiet);
  const LearnedPtr learned = weights.empty() ? nullptr : learned_for(source, config);
  const HuggingFaceExtras extras = extras_of(config, setup, learned);
  for (bool is_written = false; !is_written;) {
    try {
      write(options, exported, format, weights, extras);
      is_written = true;
    } catch (const ConfigError&) {
      if (weights.empty() || !is_pruned(weights_of(source, config), weights)) {
        throw;
      }
      weights = find_weights();
    }
  }
  if (format == Format::kHuggingFace) {
    if (learned != nullptr && !learned->tokenizer.empty()) {
      write_file_atomic((fs::path(options.output) / "tokenizer.json").string(),
                        std::string_view(learned->tokenizer));
    }
    show_unless(options.quiet)(fmt::format("wrote the folder {}\n", options.output));
    return 0;
  }
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
                            "Keras, Hugging Face, ONNX and others (not the optimizer's state)",
                            run_export);
  options.config.add_source_to(app, Steps::kNone);
  add_weights_flag(app, options.weights);
  app.add_option(
         "-o,--output", options.output,
         "What to write, by its end: .keras, .onnx, .weights.h5, .npz, .safetensors, .json (Keras' "
         "architecture), .py (a Keras script, with .weights.h5 beside it); a file of that name is "
         "replaced")
      ->type_name("FILE")
      ->required();
  app.add_option(
         "--format", options.format,
         "hf: -o is a folder, for Hugging Face's transformers (GPT-2, Llama, Mistral, BERT, "
         "ViT)")
      ->type_name("hf")
      ->check(one_of({"hf"}));
  app.add_option("--shard-size", options.shard_size,
                 "With --format hf: files of at most this size, such as 500 MB; 5 GB when absent")
      ->type_name("SIZE");
  add_quiet_flag(app, options.quiet, "Only errors");
  add_color_flag(app);
}

}  // namespace meshtrain
