// The data that a config names, read for one run.
#pragma once

#include <optional>
#include <string>

#include "config/config.h"
#include "data/dataset.h"
#include "engine/coordinator.h"
#include "engine/setup.h"

namespace meshtrain {

enum class DataPart { kNone, kTrain, kValidation, kTest };
std::string_view data_part_name(DataPart part);  // "test"

// What `evaluate.on` means here: auto is the test data when given, else the validation data (given,
// or split from the training data), else nothing.
DataPart evaluated_part(const Config& config);
// `evaluate.batch_size`, or that of `fit` where it is not given.
int64_t evaluated_batch_size(const Config& config);

struct RunData {
  std::optional<Dataset> train, validation, test;
  // The training data without fit.class_weight, which is no matter of evaluation, where a run that
  // weights them evaluates them.
  std::optional<Dataset> unweighted;

  // To be evaluated; null for kNone or when it was not read.
  const Dataset* part(DataPart part) const;
};

// Reads what `fit` needs (training and validation data, fit.class_weight applied) and the part that
// is evaluated. Parts agree on whether samples have weights. Throws ConfigError with the problems
// of all of them: those of load_dataset, E324 for missing labels, parts of different shapes, and
// classes that are not those of the run. `known` is what the run learned from its training data.
// Null for a new run, whose classes are those of its first part.
RunData load_run_data(const Config& config, bool fit, DataPart evaluated,
                      const LearnedPtr& known = nullptr);

// What can be said of that without opening a file of data: sources that are made (random, digits)
// without a sample, and of the others only that their files are there. Problems go to
// `diagnostics`: E300, and E304, E324 and E317 of what is made.
RunData run_data_spec(const Config& config, Diagnostics& diagnostics);

// Collective: all processes read the same; one that does not would compute something else. `hash`
// is that of what this one read. Throws ConfigError E323 (exit 3) at `loc`.
void check_same_data(const Coordinator& coordinator, const std::string& hash, const SourceLoc& loc);

// Puts arrays that the source names after the model's Input layers or outputs into the model's
// order. Arrays with other names keep theirs. Throws ConfigError E324 when only some of them are so
// named.
void order_arrays(const ModelConfig& model, Dataset& dataset);

// Where an Input feeds an Embedding, its numbers must be rows of that (E314): JAX, and Keras on it,
// would make something up. Throws ConfigError.
void check_input_ids(const Setup& setup, Dataset& dataset);

// That, and every class id must be one that the model can predict (E312), where a loss takes class
// ids. Throws ConfigError.
void check_run_ids(const Setup& setup, RunData& data);

}  // namespace meshtrain
