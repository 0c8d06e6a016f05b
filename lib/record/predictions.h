// The output of `predict`, as a file by its extension or as text for stdout:
//   .npy     the only output, one row per sample
//   .npz     an array per output, by name
//   .csv     a header and a line per sample; the columns are NAME, or NAME_0, NAME_1_2 for the
//            elements of an output that has several per sample
//   .jsonl   an object per sample: {"NAME": [0.1, 0.9]}; null for NaN and infinity
// Numbers in text formats are the shortest that read back exactly. Text formats begin with `file`,
// the sample's file, where each sample has one, with the column that `group` of the data names, and
// with `class` and `probability` (NAME_class and NAME_probability where several outputs have them),
// where an output says which class it is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "engine/class_outputs.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

enum class PredictionFormat { kNpy, kNpz, kCsv, kJsonl };

struct Predictions {
  std::vector<NamedTensor> outputs;                 // one row per sample
  std::vector<ClassOutput> classes = {};            // of each output; may be empty
  std::vector<std::string> files = {};              // of each sample; may be empty
  std::shared_ptr<const SampleGroups> groups = {};  // of the samples; may be null
};

// Returns the format that `format` names ("csv"), else that of the path's extension; csv for "-",
// which is stdout. Throws ConfigError E140 (exit 2) for another extension, for npy with several
// outputs, and for npz on stdout.
PredictionFormat prediction_format(const std::string& path, const std::string& format,
                                   size_t num_outputs);
// Call before computing: throws ConfigError E142 (exit 74) when the file cannot be created, and
// E140 (exit 2) when it is the file that `input` names.
void check_predictions_folder(const std::string& path, const std::string& input = "");

// The class that row `row` of the last dimension says by its largest value, and its probability. Of
// a yes or no, each element is a row.
struct PredictedClass {
  int64_t id = 0;
  double probability = 0;
};
PredictedClass predicted_class(const ClassOutput& output, const HostTensor& tensor, int64_t row);

// The bytes of kNpy, kCsv or kJsonl.
std::string predictions_text(const Predictions& predictions, PredictionFormat format);
// Replaces `path`, or the target of a link, atomically. Throws FileError (exit 74).
void write_predictions(const std::string& path, const Predictions& predictions,
                       PredictionFormat format);

}  // namespace meshtrain
