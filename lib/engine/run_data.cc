#include "engine/run_data.h"

#include <algorithm>

#include "base/text.h"
#include "config/source_like.h"
#include "config/tensor_expression.h"
#include "data/dataset_spec.h"
#include "data/learned.h"
#include "data/read_all.h"
#include "data/series_windows.h"
#include "engine/class_names.h"
#include "engine/common_types.h"
#include "engine/epoch_plan.h"
#include "engine/sample_weights.h"
#include "engine/state_batches.h"
#include "nn/arguments.h"

namespace meshtrain {

void collect(Diagnostics& diagnostics, const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    diagnostics.append(error.diagnostics());
  }
}

namespace {

// `arrays` in the order of `names`, where they have them.
void order_by_name(std::vector<Dataset::Array>& arrays, const std::vector<std::string>& names,
                   const char* what, const SourceLoc& loc, Diagnostics& diagnostics) {
  std::vector<size_t> order;
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    const auto found = std::find_if(arrays.begin(), arrays.end(),
                                    [&](const Dataset::Array& a) { return a.name == name; });
    if (found == arrays.end()) {
      missing.push_back(name);
    } else {
      order.push_back(static_cast<size_t>(found - arrays.begin()));
    }
  }
  if (order.empty() || arrays.size() == 1) {
    return;  // the source uses names of its own: by position
  }
  if (!missing.empty() || order.size() != arrays.size()) {
    std::vector<std::string> given;
    for (const Dataset::Array& array : arrays) {
      given.push_back(array.name);
    }
    diagnostics.error("E324", loc,
                      fmt::format("the data have the arrays {} for the {}s {}", join(given, ", "),
                                  what, join(names, ", ")));
    return;
  }
  std::vector<Dataset::Array> ordered;
  for (const size_t index : order) {
    ordered.push_back(std::move(arrays[index]));
  }
  arrays = std::move(ordered);
}

Shape sample_shape(const Dataset::Array& array) {
  return without_first(array.rows->shape());
}

std::string sample_shapes(const std::vector<Dataset::Array>& arrays) {
  std::vector<std::string> shapes;
  for (const Dataset::Array& array : arrays) {
    shapes.push_back(shape_string(sample_shape(array)));
  }
  return join(shapes, ", ");
}

// Whether what was learned depends on which rows train.
bool learns_from_rows(const CsvLearned& learned) {
  return !learned.means.empty() || !learned.tables.empty();
}

// Every part needs labels, samples like those of the first part, and the classes of the run, or of
// the first part when the run is new.
void check_parts(const RunData& data, const LearnedPtr& known, const ModelConfig& model,
                 Diagnostics& diagnostics) {
  const Dataset* first = nullptr;
  for (const DataPart part : {DataPart::kTrain, DataPart::kValidation, DataPart::kTest}) {
    const Dataset* dataset = data.part(part);
    if (!dataset) {
      continue;
    }
    first = first ? first : dataset;
    if (dataset->targets.empty()) {
      diagnostics.error("E324", dataset->loc,
                        fmt::format("the {} data have no labels: {}", data_part_name(part),
                                    dataset->description));
      continue;
    }
    const char* const first_name = first == data.part(DataPart::kTrain) ? "train" : "validation";
    const auto compare = [&](const char* what, const std::vector<Dataset::Array>& have,
                             const std::vector<Dataset::Array>& wanted) {
      if (!wanted.empty() && sample_shapes(have) != sample_shapes(wanted)) {
        Diagnostic& error = diagnostics.error(
            "E324", dataset->loc,
            fmt::format("the {} data have {} of shape {}, the {} data {}", data_part_name(part),
                        what, sample_shapes(have), first_name, sample_shapes(wanted)));
        if (are_windows_of_windows(sample_shape(have[0]), sample_shape(wanted[0]))) {
          error.help(kWindowsHelp);
        }
      }
    };
    compare("samples", dataset->inputs, first->inputs);
    if (dataset->sample_weight && first->sample_weight) {
      compare("sample weights", {{"sample_weight", dataset->sample_weight}},
              {{"sample_weight", first->sample_weight}});
    }
    const bool same_classes =
        known
            ? check_classes(*dataset, known->class_names,
                            fmt::format("the {} data and the run", data_part_name(part)),
                            diagnostics)
            : check_classes(*dataset, first->class_names,
                            fmt::format("the {} and the {} data", data_part_name(part), first_name),
                            diagnostics);
    if (same_classes && dataset == first) {
      check_model_names(*dataset, model.class_names, fmt::format("the {} data", first_name),
                        diagnostics);
    }
    if (same_classes) {
      compare("labels", dataset->targets, first->targets);
    }
  }
}

// An image_folder that leaves damaged images out decodes all of them at the start.
ConfigObject without_decoding(ConfigObject source) {
  if (options_if<ImageFolderOptions>(source)) {
    source.args["on_bad_record"].data = std::string(word_of(BadRecord::kError));
  }
  return source;
}

}  // namespace

std::string_view data_part_name(DataPart part) {
  constexpr std::string_view kNames[] = {"none", "train", "validation", "test"};
  return kNames[static_cast<int>(part)];
}

DataPart evaluated_part(const Config& config) {
  switch (config.evaluate.on.value) {
    case EvaluatedData::kTrain:
      return DataPart::kTrain;
    case EvaluatedData::kValidation:
      return DataPart::kValidation;
    case EvaluatedData::kTest:
      return DataPart::kTest;
    case EvaluatedData::kNone:
      return DataPart::kNone;
    case EvaluatedData::kAuto:
      break;
  }
  const bool has_test = config.data.test || config.data.split.test > 0;
  return has_test ? DataPart::kTest : config.validates() ? DataPart::kValidation : DataPart::kNone;
}

void check_evaluated_part(const Config& config, Diagnostics& diagnostics) {
  const DataPart part = evaluated_part(config);
  const bool is_there =
      part == DataPart::kNone || (part == DataPart::kTrain && config.data.train) ||
      (part == DataPart::kValidation && config.validates()) ||
      (part == DataPart::kTest && (config.data.test || config.data.split.test > 0));
  if (config.data.train && !is_there) {
    diagnostics.error("E300", config.evaluate.on.loc,
                      fmt::format("the config names no `data.{}`", data_part_name(part)));
  }
}

int64_t evaluated_batch_size(const Config& config) {
  return config.evaluate.batch_size > 0 ? config.evaluate.batch_size : config.fit.batch_size;
}

void drop_training_batch(Config& config) {
  if (config.evaluate.batch_size > 0) {
    config.fit.batch_size.value = 0;
  }
}

const Dataset* RunData::part(DataPart part) const {
  const std::optional<Dataset>* chosen = part == DataPart::kTrain
                                             ? (unweighted ? &unweighted : &train)
                                         : part == DataPart::kValidation ? &validation
                                         : part == DataPart::kTest       ? &test
                                                                         : nullptr;
  return chosen && chosen->has_value() ? &**chosen : nullptr;
}

void check_same_data(const Coordinator& coordinator, const std::string& hash,
                     const SourceLoc& loc) {
  const std::vector<std::string> all = coordinator.all_gather("comparing the data", hash);
  const auto other =
      std::find_if(all.begin(), all.end(), [&](auto& each) { return each != all[0]; });
  if (other != all.end()) {
    throw ConfigError("E323", loc,
                      fmt::format("{} and {} read different data", coordinator.describe(0),
                                  coordinator.describe(static_cast<int>(other - all.begin()))))
        .help("the same files for all hosts: on a shared file system, or copies");
  }
}

namespace {

// Leaves out optional arrays that no input is named after. Where others stay, the one array and the
// one input without a partner belong together.
void match_optional(const std::vector<std::string>& names, std::vector<Dataset::Array>& arrays) {
  const auto is_named = [&](const Dataset::Array& array) {
    return std::find(names.begin(), names.end(), array.name) != names.end();
  };
  std::erase_if(arrays, [&](const auto& array) { return array.is_optional && !is_named(array); });
  if (std::none_of(arrays.begin(), arrays.end(), [](auto& array) { return array.is_optional; })) {
    return;
  }
  std::vector<std::string> free;
  for (const std::string& name : names) {
    if (std::none_of(arrays.begin(), arrays.end(), [&](auto& a) { return a.name == name; })) {
      free.push_back(name);
    }
  }
  if (free.size() == 1 &&
      std::count_if(arrays.begin(), arrays.end(), is_named) + 1 == std::ssize(arrays)) {
    std::find_if_not(arrays.begin(), arrays.end(), is_named)->name = free[0];
  }
}

// Whether a loss or a metric compares the output with targets, which an expression may leave out.
// An entry without a name is for the only output, or for each.
bool is_compared(const CompileConfig& compile, const std::string& output) {
  const auto reads = [&](const std::vector<OutputObject>& entries) {
    return std::any_of(entries.begin(), entries.end(), [&](const OutputObject& entry) {
      const bool is_own = entry.output.empty() || entry.output == output;
      return is_own && (entry.object.class_name != kLambda || names_tensor(entry.object, "y_true"));
    });
  };
  return reads(compile.loss) || reads(compile.metrics) || reads(compile.weighted_metrics);
}

}  // namespace

void order_arrays(const Config& config, Dataset& dataset) {
  std::vector<std::string> inputs, outputs, compared;
  for (const LayerConfig& layer : config.model.layers) {
    if (layer.object.class_name == "Input") {
      inputs.push_back(layer.name.value);
    }
  }
  for (const auto& [name, layer] : config.model.outputs) {
    outputs.push_back(name);
    if (is_compared(config.compile, name)) {
      compared.push_back(name);
    }
  }
  const bool lacks_some = !dataset.targets.empty() && dataset.targets.size() == compared.size() &&
                          compared.size() < outputs.size();
  match_optional(inputs, dataset.inputs);
  Diagnostics diagnostics;
  order_by_name(dataset.inputs, inputs, "input", dataset.loc, diagnostics);
  order_by_name(dataset.targets, lacks_some ? compared : outputs, "output", dataset.loc,
                diagnostics);
  diagnostics.throw_if_errors();
  for (size_t o = 0; lacks_some && o < outputs.size(); ++o) {
    if (std::find(compared.begin(), compared.end(), outputs[o]) == compared.end()) {
      dataset.targets.insert(
          dataset.targets.begin() + static_cast<std::ptrdiff_t>(o),
          {outputs[o], make_rows(HostTensor(DType::kUInt8, {dataset.num_samples}))});
    }
  }
}

std::vector<ModelInput> model_inputs(const ModelConfig& model) {
  std::vector<ModelInput> inputs;
  for (const LayerConfig& layer : model.layers) {
    if (layer.object.class_name == "Input") {
      const ConfigValue& dtype = value_or_null(layer.object, "dtype");
      const auto type = dtype.is_string() ? parse_dtype(dtype.string()) : std::nullopt;
      inputs.push_back({layer.name.value, type.value_or(DType::kFloat32)});
    }
  }
  return inputs;
}

RunData load_run_data(const Config& config, bool fit, DataPart evaluated, const LearnedPtr& known) {
  RunData data;
  Diagnostics diagnostics;
  const DataConfig& sources = config.data;
  const bool needs_validation = fit || evaluated == DataPart::kValidation;
  const SplitConfig& split = sources.split;
  const bool splits = !sources.validation && config.validates();
  const bool splits_test = split.test > 0;
  const bool needs_train = fit || evaluated == DataPart::kTrain || (needs_validation && splits) ||
                           (evaluated == DataPart::kTest && splits_test);
  const auto load = [&](const char* name, const std::optional<ConfigObject>& source,
                        std::optional<Dataset>& to) {
    if (source && &to == &data.test && data.validation && sources.validation &&
        is_same(*source, *sources.validation)) {
      to = data.validation;
      to->loc = source->loc;
    } else if (source && !known && needs_train && !data.train &&
               training_source(*source) != nullptr) {
      // Its ids come from the training data, whose error is already collected.
      collect(diagnostics, [&] { check_source_files(*source, sources); });
    } else if (source) {
      collect(diagnostics, [&] {
        to = load_dataset(
            *source, sources, data.train && !known ? data.train->learned : known,
            {.held_out = splits && &to == &data.train ? config.fit.validation_split.value : 0,
             .inputs = model_inputs(config.model)});
        order_arrays(config, *to);
      });
    } else {
      const bool is_asked =
          config.evaluate.on != EvaluatedData::kAuto && data_part_name(evaluated) == name;
      diagnostics.error("E300", is_asked ? config.evaluate.on.loc : sources.loc,
                        fmt::format("the config names no `data.{}`", name));
    }
  };
  if (needs_train) {
    load("train", sources.train, data.train);
  }
  if (data.train && (split.validation > 0 || splits_test)) {
    collect(diagnostics, [&] {
      const SplitRows parts = draw_split(*data.train, split, config.seed);
      if (!known && data.train->learned && learns_from_rows(data.train->learned->csv)) {
        // Which rows train was unknown when the file was read: what is learned is of these only.
        data.train.reset();
        data.train =
            load_dataset(*sources.train, sources, nullptr,
                         {.trained_rows = &parts[0], .inputs = model_inputs(config.model)});
        order_arrays(config, *data.train);
      }
      const Dataset all = *std::move(data.train);
      data.train = select_samples(all, parts[0]);
      if (split.validation > 0) {
        data.validation = select_samples(all, parts[1]);
      }
      if (splits_test) {
        data.test = select_samples(all, parts[2]);
      }
    });
  }
  if (splits && split.validation <= 0 && data.train) {
    collect(diagnostics, [&] {
      std::tie(data.train, data.validation) = split_validation(
          *data.train, config.fit.validation_split, config.fit.validation_split.loc);
    });
  }
  if (needs_validation && !splits && (sources.validation || evaluated == DataPart::kValidation)) {
    load("validation", sources.validation, data.validation);
  }
  if (evaluated == DataPart::kTest && !splits_test) {
    load("test", sources.test, data.test);
  }
  check_parts(data, known, config.model, diagnostics);
  unify_types(data);
  if (fit && data.train) {
    if (evaluated == DataPart::kTrain && !config.fit.class_weight.empty()) {
      data.unweighted = data.train;
    }
    apply_class_weight(config, true, *data.train, diagnostics);
  }
  diagnostics.throw_if_errors();
  std::optional<Dataset>* const parts[] = {&data.train, &data.validation, &data.test,
                                           &data.unweighted};
  for (const std::optional<Dataset>* like : parts) {
    for (std::optional<Dataset>* part : parts) {
      if (like->has_value() && part->has_value()) {
        match_sample_weight(**like, **part);
      }
    }
  }
  return data;
}

namespace {

// Types and shapes of all parts, of large files from their beginning.
RunData data_beginnings(const Config& config, Diagnostics& diagnostics) {
  RunData data;
  const DataConfig& sources = config.data;
  const auto add_spec = [&](const std::optional<ConfigObject>& source, std::optional<Dataset>& to) {
    if (!source) {
      return;
    }
    if (&to != &data.train && !data.train && training_source(*source) != nullptr) {
      collect(diagnostics, [&] { check_source_files(*source, sources); });
      return;
    }
    collect(diagnostics, [&] {
      to = dataset_spec(*source, sources, samples_with_classes(*source));
      to = to ? std::move(to)
              : load_dataset(without_decoding(*source), sources, nullptr,
                             {.beginning = true, .inputs = model_inputs(config.model)});
      order_arrays(config, *to);
    });
  };
  add_spec(sources.train, data.train);
  add_spec(sources.validation, data.validation);
  add_spec(sources.test, data.test);
  check_parts(data, nullptr, config.model, diagnostics);
  unify_types(data);
  if (data.train && !data.train->targets.empty()) {
    // Texts of a table's labels are known when all of it is read.
    const bool knows_classes = !has_options<CsvOptions>(*sources.train);
    apply_class_weight(config, knows_classes, *data.train, diagnostics);
  }
  return data;
}

}  // namespace

RunData run_data_spec(const Config& config, bool scan, Diagnostics& diagnostics) {
  const DataConfig& data = config.data;
  bool all_small = true, all_generated = true;
  Diagnostics ignored;  // found again when the data are read
  for (const std::optional<ConfigObject>* source : {&data.train, &data.validation, &data.test}) {
    if (source->has_value()) {
      collect(ignored, [&] { all_small = all_small && is_small_source(**source, data); });
      all_generated = all_generated && class_of_object(Category::kSource, **source).is_generated;
    }
  }
  if (!data.train || diagnostics.has_errors() || (!scan && (!all_small || all_generated))) {
    return data_beginnings(config, diagnostics);
  }
  RunData loaded;
  Config uncached = config;
  if (data.cache.value.empty()) {
    uncached.data.cache.value = "none";  // every row is read once
  }
  collect(diagnostics,
          [&] { loaded = load_run_data(scan ? uncached : config, true, evaluated_part(config)); });
  if (loaded.train) {
    collect(diagnostics, [&] { check_batches(config, *loaded.train); });
    check_state_batches(config, loaded, true, evaluated_part(config), diagnostics);
    warn_of_batch(config.fit, *loaded.train, diagnostics);
  }
  return loaded;
}

void read_all_data(const RunData& data, Diagnostics& diagnostics) {
  for (const std::optional<Dataset>* part : {&data.train, &data.validation, &data.test}) {
    if (part->has_value()) {
      diagnostics.append(read_all_rows(**part));
    }
  }
}

}  // namespace meshtrain
