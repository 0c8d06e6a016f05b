// Random meshes, layouts, pins and ZeRO levels for a graph of a training step, and the proof that
// they change nothing: every tensor equals one device's.
#pragma once

#include <map>
#include <random>
#include <span>
#include <string>

#include "ir/graph.h"
#include "support/graph_runner.h"

namespace meshtrain::testing {

// The same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(limit));
  }
  bool chance(int percent) { return below(100) < percent; }
  double normal() { return static_cast<double>(below(2001) - 1000) / 700.0; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int64_t>(values.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

// A step in float64 whose first output is the loss.
struct LayoutCase {
  Graph graph;
  std::map<std::string, Shape> pin_shapes;  // of the values that "<layer>/output" keys pin
};
// Finds the pins and makes every float64 value that holds until the end of the step an output.
LayoutCase layout_case(Graph graph);

Layout random_layout(Random& random, const LayoutCase& c);
Layout one_device(const LayoutCase& c);

// Two steps under a layout: all outputs (the loss alone unless
// `read_all`: partial sums then travel as they do in training) and the variables afterwards. Inputs
// and first weights are drawn from `data_seed`, by name; integer inputs are below 16,
// "learning_rate" is 0.05.
Tensors run_layout(const LayoutCase& c, const Layout& layout, uint64_t data_seed, bool read_all,
                   const Place& place = {});
// The error that `tolerance` allows in a tensor: relative to its largest finite element. A tensor
// of rounding errors alone, none above `tolerance`, is compared with 1.
double allowed_error(std::span<const double> expected, double tolerance);
void compare_tensors(const Tensors& sharded, const Tensors& expected, double tolerance = 1e-9);

}  // namespace meshtrain::testing
