// Suggestions: the names closest to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace meshtrain {

// Labels a problem "did you mean `x`?" with the one of `names` that is nearest to `given`; false
// when none is near.
bool suggest(Diagnostic& problem, std::string_view given, std::span<const std::string> names);

// All of `names`, or of many those nearest to `given`: "a, b, c", "a, b, ...".
std::string known_names(std::string_view given, std::span<const std::string> names);

}  // namespace meshtrain
