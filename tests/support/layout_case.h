// Random meshes, layouts, pins and ZeRO levels for a graph of a training step, and the proof that
// they change nothing: every tensor equals one device's.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "comm/process_group.h"
#include "ir/graph.h"
#include "mesh/device_mesh.h"
#include "tensor/host_tensor.h"

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

struct Layout {
  DeviceMesh mesh;
  AxisList batch_axes;
  int zero = 0;
  AxisList zero_axes;
  std::vector<Sharding> weights;
  std::map<std::string, Sharding> pins;
};
Layout random_layout(Random& random, const LayoutCase& c);
Layout one_device(const LayoutCase& c);

using Tensors = std::map<std::string, HostTensor>;

// Where a step runs.
struct Place {
  std::shared_ptr<gpu::Device> device = nullptr;  // null: the processor
  std::shared_ptr<ProcessGroup> group = nullptr;  // null: the only process
  bool fixed_reductions = false;
  std::function<void()> before_second_step = nullptr;
};

// Two steps under a layout: all outputs (the loss alone unless
// `read_all`: partial sums then travel as they do in training) and the variables afterwards. Inputs
// and first weights are drawn from `data_seed`, by name; integer inputs are below 16,
// "learning_rate" is 0.05.
Tensors run_layout(const LayoutCase& c, const Layout& layout, uint64_t data_seed, bool read_all,
                   const Place& place = {});
// Within 1e-9, relative to 1 + the wanted number.
void compare_tensors(const Tensors& sharded, const Tensors& expected);

}  // namespace meshtrain::testing
