// Names that other frameworks use, and what has that meaning here.
#pragma once

#include <string>
#include <string_view>

#include "config/spec.h"

namespace meshtrain {

// "BatchNorm_2d" is "batchnorm2d".
std::string bare(std::string_view name);

// What to write for a class name of PyTorch, TensorFlow or Keras that is no class of this category
// here: "write `Dense: {units: N}`"; "" when nothing is known.
std::string instead_of(Category category, std::string_view spelled);

// What to write for a word of theirs that names no class, such as `DataLoader`; "" when nothing is
// known.
std::string instead_of_word(std::string_view spelled);

// The same for a key within a section: a word may mean something else elsewhere.
std::string instead_of_key(std::string_view section, std::string_view key);
// What to write for a text in the place of a section's keys, as `distribution: DataParallel`; ""
// when nothing is known.
std::string instead_of_section(std::string_view section, std::string_view text);

// What to write for a dtype policy such as `fp16`; "" when nothing is known.
std::string instead_of_policy(std::string_view spelled);

}  // namespace meshtrain
