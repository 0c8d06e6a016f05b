// The hidden states of the tokens of a text, as contrastive search compares them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace meshtrain {

class TokenStates {
 public:
  // Adds the states of tokens of `width` numbers each.
  void add(std::span<const double> states, size_t width);

  // Returns the largest cosine of `state` with those added, at least one; 0 with one of zeros.
  double largest_similarity(std::span<const double> state) const;

 private:
  std::vector<std::vector<double>> directions_;  // of length 1
};

}  // namespace meshtrain
