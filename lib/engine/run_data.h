// The data that a config names, read for one run.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/config.h"
#include "data/dataset.h"
#include "engine/coordinator.h"
#include "engine/setup.h"

namespace meshtrain {

// Runs `action`; the problems of a ConfigError join `diagnostics`.
void collect(Diagnostics& diagnostics, const std::function<void()>& action);

enum class DataPart { kNone, kTrain, kValidation, kTest };
std::string_view data_part_name(DataPart part);  // "test"

// Resolves `evaluate.on`: `auto` is the test data when given, else the validation data (given, or
// split from the training data), else nothing.
DataPart evaluated_part(const Config& config);
// Reports E300 where `evaluate.on` names data that a config with training data has not.
void check_evaluated_part(const Config& config, Diagnostics& diagnostics);
// Returns `evaluate.batch_size`, by default that of `fit`.
int64_t evaluated_batch_size(const Config& config);
// Clears fit.batch_size where `evaluate.batch_size` takes its place: the training's batch may not
// split over the mesh of a command that does not train.
void drop_training_batch(Config& config);

struct RunData {
  std::optional<Dataset> train, validation, test;
  // The training data without fit.class_weight, when a run with class weights evaluates them.
  std::optional<Dataset> unweighted;

  // Returns the data to evaluate; null for kNone or when they were not read.
  const Dataset* part(DataPart part) const;
};

// The Inputs of the model, for ReadLimits.
std::vector<ModelInput> model_inputs(const ModelConfig& model);

// Reads the data for `fit` (training and validation data, fit.class_weight applied) and the
// evaluated data. Either all of these have sample weights or none. Throws ConfigError with the
// problems of all: those of load_dataset, and E324 for missing labels, different shapes, or classes
// that are not those of the run. `known` is what the run learned from its training data; null for a
// new run.
RunData load_run_data(const Config& config, bool fit, DataPart evaluated,
                      const LearnedPtr& known = nullptr);

// Returns the data as far as they can be known in a moment: synthetic sources (random, digits)
// without samples, small files whole, headers, columns, folders and labels of large ones. With
// `scan` all data are loaded, as by load_run_data, without a cache of computed rows. Adds their
// problems to `diagnostics`.
RunData run_data_spec(const Config& config, bool scan, Diagnostics& diagnostics);

// Reads the rows of all parts that loading leaves unread (data/read_all.h). Adds their problems to
// `diagnostics`.
void read_all_data(const RunData& data, Diagnostics& diagnostics);

// Collective: checks that all processes read the same data. `hash` is that of this process. Throws
// ConfigError E323 (exit 3) at `loc` when hashes differ.
void check_same_data(const Coordinator& coordinator, const std::string& hash, const SourceLoc& loc);

// Puts arrays that the source names after the model's Input layers or outputs into the model's
// order. Arrays with other names keep theirs. Throws ConfigError E324 when only some of them are so
// named. An output that no loss and no metric reads needs no target: where there are fewer targets
// than outputs, it gets zeros.
void order_arrays(const Config& config, Dataset& dataset);

}  // namespace meshtrain
