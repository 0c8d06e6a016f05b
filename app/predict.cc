// meshtrain predict: the model's outputs for an array of samples.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "checkpoint/restore.h"
#include "cli.h"
#include "config/catalogue.h"
#include "config/source_like.h"
#include "engine/engine.h"
#include "engine/run_data.h"
#include "engine/signals.h"
#include "given_run.h"
#include "record/predictions.h"
#include "restarts.h"
#include "tensor/h5_datasets.h"
#include "tensor/npz.h"
#include "train/learned_file.h"
#include "train/trainer.h"

namespace meshtrain {
namespace {

ConfigValue text_value(const std::string& text) {
  ConfigValue value;
  value.data = text;
  return value;
}

// Columns, texts, tokens and images are read as those that the model learned from, but for the
// labels and the choice of samples.
ConfigObject source_like(const ConfigObject& train, const std::string& path) {
  ConfigObject source = train;
  for (const char* arg : {"label", "sample_weight", "target", "slice", "label_mode", "class_names",
                          "validation_split", "subset", "seed"}) {
    if (source.args.count(arg) != 0) {
      source.args[arg] = ConfigValue{};
    }
  }
  source.args[train.class_name == "image_folder" ? "directory" : "path"] = text_value(path);
  read_like_training(train, source);
  return source;
}

// --input as a data source, so that data.transform acts on it as it did in training: an array, an
// archive with "x" or with arrays named as the model's inputs, or a file of data.train's kind.
ConfigObject input_source(const std::string& path, const DataConfig& data) {
  const std::string absolute = std::filesystem::absolute(path).string();
  const bool is_hdf5 = ends_with(path, ".h5") || ends_with(path, ".hdf5");
  const bool is_npz = ends_with(path, ".npz");
  const bool is_like_training = data.train && is_read_like_training(data.train->class_name);
  if (is_like_training && !is_hdf5 && !is_npz && !ends_with(path, ".npy")) {
    return source_like(*data.train, absolute);
  }
  ConfigObject source = default_object(Category::kSource, is_hdf5                   ? "hdf5"
                                                          : is_npz                  ? "npz"
                                                          : ends_with(path, ".csv") ? "csv"
                                                                                    : "npy");
  if (source.class_name == "npy") {
    source.args["x"] = text_value(absolute);
    return source;
  }
  source.args["path"] = text_value(absolute);
  if (source.class_name == "csv") {
    return source;
  }
  source.args["y"] = ConfigValue{};
  const std::vector<std::string> names =
      is_hdf5 ? H5Datasets(absolute).names() : NpzReader(absolute).names();
  if (std::find(names.begin(), names.end(), "x") == names.end()) {
    ConfigValue::Dict by_name;
    for (const std::string& name : names) {
      by_name.emplace_back(name, text_value(name));
    }
    source.args["x"].data = std::move(by_name);
  }
  return source;
}

SourceLoc place_of_input(const std::string& path) {
  const std::string word = "--input " + path;
  return {std::make_shared<SourceFile>(SourceFile{"command line", word}), 1, 1,
          static_cast<int>(word.size())};
}

std::vector<NamedTensor> named_outputs(const Model& model, std::vector<HostTensor> outputs) {
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < outputs.size(); ++i) {
    named.push_back({model.output_names()[i], std::move(outputs[i])});
  }
  return named;
}

}  // namespace

int run_predict(const Arguments& arguments, bool& started) {
  const GivenRun given = given_run(arguments, false);
  const Config config = load_config(given.options);
  if (const std::optional<int> code = run_own_processes(arguments, config)) {
    return *code;
  }
  Coordinator coordinator(arguments.processes, seconds_now);
  const Setup setup(config, nullptr);
  check_predictions_path(arguments.output, setup.model().output_names().size());
  coordinator.on_rank_zero("looking at --output",
                           [&] { check_predictions_folder(arguments.output, arguments.input); });
  Dataset dataset;
  std::string hash;
  Diagnostics warnings;
  coordinator.on_all_ranks("opening the data", [&] {
    const auto announced = coordinator.announce("opening the data");
    const ConfigObject source = input_source(arguments.input, config.data);
    const LearnedPtr known = learned_for(given, config);
    dataset = load_dataset(source, config.data, known);
    if (!known && training_source(source) != nullptr) {
      warn_of_nothing_learned(source, weights_of(given, config), warnings);
    }
    order_arrays(config.model, dataset);
    hash = coordinator.is_alone() ? "" : data_cursor(dataset, config).data;
  });
  check_same_data(coordinator, hash, dataset.loc);
  DataSpec spec = data_spec(dataset);
  spec.targets = setup.data().targets;
  spec.loc = place_of_input(arguments.input);
  Engine engine(config, spec, engine_options(arguments));
  dataset.loc = spec.loc;
  coordinator.on_all_ranks("checking ids", [&] { check_input_ids(engine.setup(), dataset); });
  warnings.append(engine.warnings());
  show_warnings(warnings, arguments);
  load_given_weights(engine, given, config, arguments, coordinator);
  Console console(console_options(arguments, config));
  Trainer trainer(engine, config, seconds_now);
  trainer.set_coordinator(coordinator);
  trainer.add_hook(console);
  started = true;
  catch_stop_signals();
  std::vector<HostTensor> outputs;
  try {
    outputs = trainer.predict(dataset, evaluated_batch_size(config));
  } catch (...) {
    console.interrupt();
    throw;
  }
  coordinator.on_rank_zero("writing the outputs", [&] {
    const auto announced = coordinator.announce("writing the outputs");
    write_predictions(arguments.output, named_outputs(engine.model(), std::move(outputs)));
  });
  console.finish();
  return 0;
}

}  // namespace meshtrain
