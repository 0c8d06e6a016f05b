#include "engine/token_states.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace meshtrain {
namespace {

std::vector<double> direction_of(std::span<const double> state) {
  const double length =
      std::sqrt(std::inner_product(state.begin(), state.end(), state.begin(), 0.0));
  std::vector<double> direction(state.begin(), state.end());
  for (double& value : direction)
    value = length > 0 ? value / length : 0;
  return direction;
}

}  // namespace

void TokenStates::add(std::span<const double> states, size_t width) {
  for (size_t first = 0; first < states.size(); first += width)
    directions_.push_back(direction_of(states.subspan(first, width)));
}

double TokenStates::largest_similarity(std::span<const double> state) const {
  const std::vector<double> own = direction_of(state);
  double most = -1;
  for (const std::vector<double>& other : directions_)
    most = std::max(most, std::inner_product(own.begin(), own.end(), other.begin(), 0.0));
  return most;
}

}  // namespace meshtrain
