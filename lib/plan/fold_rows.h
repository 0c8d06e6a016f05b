// Rows of a plan that say the same of every block of a model, as one row.
#pragma once

#include <string>
#include <vector>

namespace meshtrain {

using TextRows = std::vector<std::vector<std::string>>;  // the first is the header

// Fewer equal rows stay as they are.
inline constexpr size_t kFoldedRows = 4;

// Rows whose first cell is a path: those that differ by the number of their block alone, as in
// "layer_0/kernel" ... "layer_31/kernel", become one, "layer_{0..31}/kernel", where the first
// stood.
TextRows fold_blocks(TextRows rows);

// For each of `keys` the index of the first equal one, where at least kFoldedRows are equal, else
// its own.
std::vector<size_t> first_equal(const std::vector<std::string>& keys);
// How many indices name each one as the first: 0 for one that is folded into another.
std::vector<size_t> times_of(const std::vector<size_t>& first);

}  // namespace meshtrain
