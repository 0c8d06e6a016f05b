// The output of `predict` as masks: a grey PNG for each sample, whose pixels are class numbers.
#pragma once

#include <string>
#include <vector>

#include "record/predictions.h"

namespace meshtrain {

// Whether predictions go to a folder of masks: `path` ends with a slash or is a folder, and
// `format` is png or empty.
bool are_masks(const std::string& path, const std::string& format);

// Throws ConfigError E140 (exit 2) unless the only output has a class, of at most 256, for each
// pixel, and E142 (exit 74) where the folder cannot be made.
void check_masks_folder(const std::string& path, const std::vector<ClassOutput>& classes,
                        const std::vector<Shape>& outputs);

// Throws ConfigError E140 where a mask would replace one of `files`, the inputs, or where the
// folder is one of `kept`, which hold masks that somebody made.
void check_masks_replace_nothing(const std::string& folder, const std::vector<std::string>& files,
                                 const std::vector<std::string>& kept);

// Writes FOLDER/NAME.png for each sample: named as its file, in the folders that the files have
// below their common one, or by its number. `numbers`: the pixels of class 0, 1, ...; class numbers
// where these are not of all classes, or one is above 255. Returns whether they were used. Throws
// FileError (exit 74).
bool write_masks(const std::string& folder, const Predictions& predictions,
                 const std::vector<int64_t>& numbers);

}  // namespace meshtrain
