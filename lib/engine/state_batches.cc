#include "engine/state_batches.h"

#include <algorithm>
#include <limits>

#include "config/cells.h"
#include "engine/epoch_plan.h"
#include "engine/run_steps.h"

namespace meshtrain {
namespace {

// A stateful layer; null where the model has none, or its batch is not known (an error elsewhere).
const LayerConfig* stateful_layer(const Config& config) {
  const auto& layers = config.model.layers;
  const auto found = std::find_if(layers.begin(), layers.end(), [](const LayerConfig& layer) {
    return is_stateful(layer.object) && layer.object.has(kStateBatch);
  });
  return found == layers.end() ? nullptr : &*found;
}

Diagnostic& batch_error(const LayerConfig& layer, const SourceLoc& loc, const std::string& samples,
                        int64_t batch, Diagnostics& diagnostics) {
  return diagnostics
      .error(
          "E120", loc,
          fmt::format("layer `{}` ({}) is stateful with batches of {}, and the {} make a batch of "
                      "{}",
                      layer.name.value, layer.object.class_name, layer.object.integer(kStateBatch),
                      samples, batch))
      .note(fmt::format("`{}` is at {}", layer.name.value, layer.object.loc.to_string()));
}

std::string with_count(int64_t count, std::string_view what) {
  return fmt::format("{} {} sample{}", count, what, count == 1 ? "" : "s");
}

// The samples of one part, by what they are for.
struct Part {
  std::string_view name;
  const Dataset& data;
  const ConfigObject* source;  // whose samples they are, one by one; null for a split or windows
  RunSamples samples;
};

// Whether a validation or an evaluation of the part comes to the incomplete batch.
bool tests_last(const Config& config, const Part& part, int64_t full) {
  const auto comes = [full](int64_t samples, int64_t steps) {
    return samples > 0 && (steps == 0 || steps > full);
  };
  return comes(part.samples.validation, config.fit.validation_steps) ||
         comes(part.samples.evaluated, config.evaluate.steps);
}

void check_part(const Config& config, const LayerConfig& layer, const Part& part,
                Diagnostics& diagnostics) {
  const int64_t count = part.data.num_samples, batch = layer.object.integer(kStateBatch);
  const int64_t full = count / batch, rest = count % batch;
  const std::vector<StepBatch> steps =
      steps_of_run(config, part.samples, std::numeric_limits<int64_t>::max());
  const auto other =
      std::find_if(steps.begin(), steps.end(), [&](auto& step) { return step.batch != batch; });
  if (other != steps.end()) {
    Diagnostic& error =
        batch_error(layer, part.data.loc, with_count(count, part.name), other->batch, diagnostics);
    if (other->batch != rest) {
      error.help(fmt::format("batches have the `batch_size` of the Inputs: {}", batch));
    } else if (full == 0) {
      error.help(fmt::format("give at least {} samples", batch));
    } else {
      error.help(fmt::format("`data: {{remainder: drop}}` leaves it out{}",
                             part.source == nullptr
                                 ? ""
                                 : fmt::format(", and so does `slice: \"[:{}]\"` of data.{}",
                                               count - rest, part.name)));
    }
  } else if (rest > 0 && tests_last(config, part, full)) {  // which `remainder: drop` leaves out
    if (full == 0) {
      diagnostics
          .error("E316", part.data.loc,
                 fmt::format("{} are fewer than one batch of {}, and `remainder: drop` drops "
                             "incomplete batches",
                             with_count(count, part.name), batch))
          .help(fmt::format("give at least {} samples", batch));
    } else {
      diagnostics.warning(
          "W318", part.data.loc,
          fmt::format("the last {} of the {} are left out: layer `{}` takes batches of "
                      "{}",
                      rest, with_count(count, part.name), layer.name.value, batch));
    }
  }
}

// The source of a part whose samples it gives one by one, so that `slice` counts them.
const ConfigObject* source_of_part(const DataConfig& data, DataPart part, bool is_split) {
  const std::optional<ConfigObject>& source = part == DataPart::kTrain        ? data.train
                                              : part == DataPart::kValidation ? data.validation
                                                                              : data.test;
  return !source || is_split || source->has("slice") || source->has("sequence_length") ? nullptr
                                                                                       : &*source;
}

}  // namespace

bool drops_last_test(const Config& config) {
  return config.data.remainder == Remainder::kDrop && stateful_layer(config) != nullptr;
}

void check_state_batches(const Config& config, const RunData& data, bool fit, DataPart evaluated,
                         Diagnostics& diagnostics) {
  const LayerConfig* const layer = stateful_layer(config);
  if (layer == nullptr) {
    return;
  }
  const SplitConfig& split = config.data.split;
  for (const DataPart part : {DataPart::kTrain, DataPart::kValidation, DataPart::kTest}) {
    const Dataset* const dataset = data.part(part);
    if (dataset == nullptr) {
      continue;
    }
    const bool is_split = split.validation > 0 || split.test > 0 ||
                          (part == DataPart::kTrain && config.fit.validation_split > 0);
    const auto used = [&](bool is_used) { return is_used ? dataset->num_samples : 0; };
    check_part(config, *layer,
               {.name = data_part_name(part),
                .data = *dataset,
                .source = source_of_part(config.data, part, is_split),
                .samples = {.train = used(fit && part == DataPart::kTrain),
                            .validation = used(fit && part == DataPart::kValidation),
                            .evaluated = used(part == evaluated)}},
               diagnostics);
  }
}

void check_predicted_batches(const Config& config, const Dataset& samples, const SourceLoc& loc) {
  const LayerConfig* const layer = stateful_layer(config);
  if (layer == nullptr) {
    return;
  }
  const int64_t count = samples.num_samples, batch = layer->object.integer(kStateBatch);
  const int64_t size = std::min(count, evaluated_batch_size(config));
  const int64_t rest = count % batch;
  if (size == batch && rest == 0) {
    return;
  }
  Diagnostics diagnostics;
  Diagnostic& error = batch_error(*layer, loc, with_count(count, "given"),
                                  size == batch ? rest : size, diagnostics);
  if (rest == 0 || (size != batch && size < count)) {
    error.help(fmt::format("set `evaluate.batch_size={}`", batch));
  } else {
    error.help(fmt::format(
        "predict {}{} samples: fill the last batch with any, and leave out "
        "their outputs",
        count > batch ? fmt::format("{} or ", count - rest) : "", count - rest + batch));
  }
  diagnostics.throw_if_errors();
}

}  // namespace meshtrain
