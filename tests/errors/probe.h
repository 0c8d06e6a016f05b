// Small configs with one use of a class in a line of its own, for tests that are made from the
// catalogue.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "config/catalogue.h"

namespace meshtrain {

inline constexpr Category kProbedCategories[] = {
    Category::kLayer,       Category::kLoss,       Category::kMetric,
    Category::kOptimizer,   Category::kSchedule,   Category::kInitializer,
    Category::kRegularizer, Category::kConstraint, Category::kActivation};

struct Probe {
  std::string config;
  int line = 0;  // of the class, from 1
};

using ProbeArguments = std::vector<std::pair<std::string, std::string>>;

// `spec` with a right value for each of its required arguments but `left_out`, and with `given`. A
// layer is named `probe` and takes `inputs` ("x", "[x, y]"), Inputs of `shape`.
Probe make_probe(const ClassSpec& spec, const ProbeArguments& given,
                 const std::string& left_out = {}, const std::string& shape = "[8, 8, 2]");

// Whether the problem's text or what stands below it has `part`.
bool says(const Diagnostic& problem, const std::string& part);

// Whether the layer takes two inputs.
bool takes_two_inputs(const std::string& class_name);

}  // namespace meshtrain
