// The output files of `predict`, by file extension:
//   .npy     the only output, one row per sample
//   .npz     an array per output, by name
//   .csv     a header and a line per sample; the columns are NAME, or NAME_0, NAME_1_2 for the
//            elements of an output that has several per sample
//   .jsonl   an object per sample: {"NAME": [0.1, 0.9]}; null for NaN and infinity
// Numbers in text formats are the shortest that read back exactly.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

// Throws ConfigError E140 (exit 2) for another extension, and for .npy with several outputs.
void check_predictions_path(const std::string& path, size_t num_outputs);
// Call before computing: throws ConfigError E142 (exit 74) when the file cannot be created, and
// E140 (exit 2) when it is the file that `input` names.
void check_predictions_folder(const std::string& path, const std::string& input = "");

// Writes outputs, which have one row per sample. Replaces `path`, or the target of a link,
// atomically. Throws FileError (exit 74).
void write_predictions(const std::string& path, std::span<const NamedTensor> outputs);

}  // namespace meshtrain
