// meshtrain predict: the model's outputs for an array of samples.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/host.h"
#include "checkpoint/data_cursor.h"
#include "config/source_classes.h"
#include "config/source_like.h"
#include "data/checks.h"
#include "data/image_masks.h"
#include "data/input_source.h"
#include "data/source_files.h"
#include "data/step_order.h"
#include "engine/check_ids.h"
#include "engine/data_warnings.h"
#include "engine/engine.h"
#include "engine/run_data.h"
#include "engine/signals.h"
#include "engine/state_batches.h"
#include "record/predicted_masks.h"
#include "record/predictions.h"
#include "run_flags.h"
#include "train/learned_file.h"
#include "train/trainer.h"

namespace meshtrain {
namespace {

struct PredictOptions {
  ConfigWords config;
  std::string weights, input, output_file, format;
  EngineFlags engine;
  OutputFlags output;
};

SourceLoc place_of_input(const std::string& path) {
  const std::string word = "--input " + path;
  return {std::make_shared<SourceFile>(SourceFile{"command line", word}), 1, 1,
          static_cast<int>(word.size())};
}

// Each sample's file as it is found from the current folder: within the input as that is given,
// else as the data name it.
std::vector<std::string> shown_files(const Dataset& dataset, const std::string& input) {
  std::vector<std::string> shown;
  const std::string root = std::filesystem::absolute(input).string();
  for (const std::string& file : dataset.files ? *dataset.files : std::vector<std::string>()) {
    const auto rest = std::filesystem::path(file).lexically_relative(root);
    const bool is_within = !rest.empty() && *rest.begin() != "..";
    shown.push_back(rest == "." ? input
                    : is_within ? (std::filesystem::path(input) / rest).string()
                                : file);
  }
  return shown;
}

// Both at once, since a first try lacks both.
void check_input_and_output(const PredictOptions& options) {
  if (!options.input.empty() && !options.output_file.empty()) {
    return;
  }
  const char* missing = !options.input.empty() ? "`-o`, where predictions go"
                        : !options.output_file.empty()
                            ? "`-i`, the samples"
                            : "`-i`, the samples, and `-o`, where predictions go";
  refuse("E140", fmt::format("`predict` needs {}", missing),
         "meshtrain predict RUN -i X.npy -o Y.csv; `-o -` is stdout");
}

std::vector<std::string> nonfinite(const Model& model, const std::vector<HostTensor>& outputs) {
  std::vector<std::string> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (const int64_t at = first_nonfinite(outputs[i]); at >= 0) {
      const int64_t elements = outputs[i].size() / outputs[i].shape()[0];
      results.push_back(fmt::format("`{}` of sample {} is {}", model.output_names()[i],
                                    at / elements,
                                    std::isnan(outputs[i].at(at)) ? "NaN" : "infinite"));
    }
  }
  return results;
}

// Where the config's data have masks.
std::vector<std::string> folders_of_masks(const DataConfig& data) {
  std::vector<std::string> out;
  for (const auto& source : {data.train, data.validation, data.test}) {
    const auto images = source ? options_if<ImageFolderOptions>(*source) : std::nullopt;
    if (images && !images->masks->empty()) {
      out.push_back(resolve(data.base_dir, folder_of_masks(images->masks)));
    }
  }
  return out;
}

std::vector<Shape> output_shapes(const Model& model) {
  std::vector<Shape> shapes;
  for (const int call : model.outputs()) {
    shapes.push_back(model.calls()[static_cast<size_t>(call)].output_shape);
  }
  return shapes;
}

std::vector<NamedTensor> named_outputs(const Model& model, std::vector<HostTensor> outputs) {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < outputs.size(); ++i) {
    named.push_back({model.output_names()[i], std::move(outputs[i])});
  }
  return named;
}

int run_predict(const PredictOptions& options, Invocation& invocation) {
  check_input_and_output(options);
  const bool is_stdout = options.output_file == "-";
  const ModelSource model = options.config.source(options.weights, false);
  Config config = load_config(model.load);
  drop_expressions(config.compile);
  drop_training(config.compile);
  drop_training_batch(config);
  if (const std::optional<int> code =
          run_own_processes({invocation.given_words}, config, invocation.processes)) {
    return *code;
  }
  Coordinator coordinator(invocation.processes, steady_seconds);
  const Setup setup(config, nullptr);
  const bool has_masks = !is_stdout && are_masks(options.output_file, options.format);
  const std::vector<std::string>& names = setup.model().output_names();
  const std::optional<PredictionFormat> format =
      has_masks
          ? std::nullopt
          : std::optional(prediction_format(options.output_file, options.format, names.size()));
  if (!is_stdout) {
    coordinator.on_rank_zero("looking at --output", [&] {
      if (has_masks) {
        check_masks_folder(options.output_file, class_outputs(setup, nullptr),
                           output_shapes(setup.model()));
      } else {
        for (const NamedFile& file : find_files(options.input, {}, "")) {
          check_predictions_folder(options.output_file, file.path);
        }
      }
    });
  }
  Dataset dataset;
  LearnedPtr known;
  std::string hash;
  Diagnostics warnings;
  coordinator.on_all_ranks("opening the data", [&] {
    const auto announced = coordinator.announce("opening the data");
    const ConfigObject source = input_source(options.input, config);
    known = learned_for(model, config);
    dataset = load_dataset(source, config.data, known, {.inputs = model_inputs(config.model)});
    if (!known && training_source(source) != nullptr) {
      warn_of_nothing_learned(source, weights_of(model, config), warnings);
    }
    order_arrays(config, dataset);
    check_predicted_batches(config, dataset, place_of_input(options.input));
    hash = coordinator.is_alone() ? "" : data_cursor(dataset, config).data;
  });
  check_same_data(coordinator, hash, dataset.loc);
  if (has_masks) {
    coordinator.on_rank_zero("looking at --output", [&] {
      check_masks_replace_nothing(options.output_file,
                                  dataset.files ? *dataset.files : std::vector<std::string>(),
                                  folders_of_masks(config.data));
    });
  }
  DataSpec spec = data_spec(dataset);
  spec.targets = setup.data().targets;
  spec.loc = place_of_input(options.input);
  Engine engine(config, spec, options.engine.options(invocation));
  dataset.loc = spec.loc;
  coordinator.on_all_ranks("checking ids", [&] { check_input_ids(engine.setup(), dataset); });
  warnings.append(engine.warnings());
  warn_of_skipped(dataset, "the input", warnings);
  show_warnings(warnings, options.output.quiet);
  show_unless(options.output.quiet)(changed_files_note(model));
  load_source_weights(engine, model, config, coordinator, show_unless(options.output.quiet));
  ConsoleOptions console_options = options.output.console(config.run.verbose);
  if (is_stdout) {  // which the predictions have
    console_options.out = console_options.err;
    console_options.stdout_is_terminal = console_options.stderr_is_terminal;
  }
  Console console(std::move(console_options));
  Trainer trainer(engine, config, steady_seconds);
  trainer.set_coordinator(coordinator);
  trainer.add_hook(console);
  invocation.started = true;
  invocation.result_is_on_stdout = is_stdout;
  catch_stop_signals();
  std::vector<HostTensor> outputs;
  try {
    outputs = trainer.predict(dataset, evaluated_batch_size(config));
    for (HostTensor& output : outputs) {
      output = restore_steps(std::move(output), config.data.head_tail);
    }
  } catch (...) {
    console.interrupt();
    throw;
  }
  warn_of_nonfinite(nonfinite(engine.model(), outputs), options.output.quiet);
  bool has_numbers = false;  // of masks
  coordinator.on_rank_zero("writing the outputs", [&] {
    const auto announced = coordinator.announce("writing the outputs");
    const Predictions predictions{named_outputs(engine.model(), std::move(outputs)),
                                  class_outputs(engine.setup(), known),
                                  shown_files(dataset, options.input), dataset.groups};
    if (has_masks) {
      has_numbers = write_masks(
          options.output_file, predictions,
          config.data.train ? mask_values_of(*config.data.train) : std::vector<int64_t>());
    } else if (is_stdout) {
      out_stream().write(predictions_text(predictions, *format));
    } else {
      write_predictions(options.output_file, predictions, *format);
    }
  });
  console.finish();
  show_unless(options.output.quiet || out_stream().error_number() != 0)(
      fmt::format("wrote {} {}{} to {}{}\n", dataset.num_samples, has_masks ? "mask" : "row",
                  dataset.num_samples == 1 ? "" : "s", is_stdout ? "stdout" : options.output_file,
                  !has_masks    ? ""
                  : has_numbers ? ": pixels are numbers of `mask_values`"
                                : ": pixels are class numbers"));
  return 0;
}

}  // namespace

void add_predict(Subcommands& to) {
  auto [app, options, subcommand] = to.add<PredictOptions>(
      "predict", "Outputs of a run, or of a config with weights, for given samples", run_predict);
  options.config.add_source_to(app, Steps::kNone);
  add_weights_flag(app, options.weights);
  app.add_option("-i,--input", options.input,
                 "Samples: NumPy, HDF5, IDX, images, or a file or folder like those of data.train")
      ->type_name("X.npy");
  app.add_option(
         "-o,--output", options.output_file,
         "Where predictions go: .npy, .npz (also several outputs), .csv or .jsonl; FOLDER/ gets a "
         "PNG mask of each sample; - is stdout")
      ->type_name("Y.npy");
  app.add_option("--format", options.format, "Form of the predictions; default: by the name of -o")
      ->type_name("csv|jsonl|npy|npz|png")
      ->check(one_of({"csv", "jsonl", "npy", "npz", "png"}));
  options.engine.add_to(app);
  options.output.add_to(app);
  subcommand.shared = [&app = app, &options = options] {
    return SharedCommand{
        .flags = flags_text(app, {"--weights", "--input", "--output", "--format"}),
        .load = [&options] { return options.config.source(options.weights, false).load; }};
  };
}

}  // namespace meshtrain
