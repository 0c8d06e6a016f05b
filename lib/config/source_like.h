// Sources of validation and test data that are read as the training data are.
#pragma once

#include <string>

#include "config/catalogue.h"
#include "config/object.h"

namespace meshtrain {

// Whether what is read depends on the training data (ClassSpec::is_read_like_training): ids of
// texts, means, columns, or how these data are cut or made.
bool is_read_like_training(const std::string& class_name);

// Whether an argument of a source names files or folders.
bool names_files(const Spec& arg);

// For a source of the training source's class: arguments that are not written become those of
// `train`, but for those that say which samples are read (Spec::selects_samples). Of sources that
// are not read like training these are the arguments of windows over rows alone.
void take_arguments(const ConfigObject& train, ConfigObject& source);
// The same; training_source() then gives `train`.
void read_like_training(const ConfigObject& train, ConfigObject& source);

// Whether both number the same samples alike, apart from `slice` and `split`, which choose among
// them. False for synthetic noise, which nobody evaluates. Relative paths begin at `base_dir`.
bool have_same_samples(const ConfigObject& a, const ConfigObject& b, const std::string& base_dir);

// Null for the training source itself, and where the classes differ.
const ConfigObject* training_source(const ConfigObject& source);

}  // namespace meshtrain
