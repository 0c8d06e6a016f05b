#include "backends.h"

#include <doctest/doctest.h>

#include "support/interpreter.h"
#include "support/sampled.h"
#include "unit/gpu/gpu_device.h"

namespace meshtrain::testing {
namespace {

constexpr const char* kNames[] = {"interpreter", "one device", "mesh", "gpu", "gpu mesh"};
// The emulator compiles the kernels of a case for about a second. An odd stride takes both GPU
// backends.
constexpr size_t kGpuStride = 81;

class InterpreterRunner : public GraphRunner {
 public:
  explicit InterpreterRunner(std::vector<Variable> variables) : variables_(std::move(variables)) {
    for (const Variable& variable : variables_) {
      values_.emplace_back(variable.dtype, variable.shape);
    }
  }
  int add(Graph graph) override {
    verify(graph);
    graphs_.push_back(std::move(graph));
    return static_cast<int>(graphs_.size()) - 1;
  }
  Tensors run(int number, const Tensors& inputs) override {
    std::map<std::string, const HostTensor*> fed;
    for (const auto& [name, tensor] : inputs) {
      fed[name] = &tensor;
    }
    std::vector<const HostTensor*> stored;
    for (const HostTensor& value : values_) {
      stored.push_back(&value);
    }
    const Graph& graph = graphs_[static_cast<size_t>(number)];
    const Interpretation run = interpret(graph, fed, stored);
    Tensors out;
    for (const Output& output : graph.outputs) {
      out[output.name] = run.values[output.value].clone();
    }
    for (const Update& update : graph.updates) {
      values_[static_cast<size_t>(update.variable)] = run.values[update.value].clone();
    }
    return out;
  }
  HostTensor read(int variable) const override {
    return values_[static_cast<size_t>(variable)].clone();
  }
  void write(int variable, const HostTensor& value) override {
    values_[static_cast<size_t>(variable)] = value.clone();
  }

 private:
  std::vector<Variable> variables_;
  std::vector<HostTensor> values_;
  std::vector<Graph> graphs_;
};

// The last dimension of every weight that can be halved is split over "model".
Layout layout_of(bool is_mesh, const std::vector<Variable>& variables) {
  Layout out;
  out.mesh = is_mesh ? DeviceMesh({2, 2}, {"data", "model"}) : DeviceMesh({1}, {"data"});
  out.batch_axes = out.zero_axes = {0};
  out.zero = is_mesh ? 2 : 0;
  for (const Variable& variable : variables) {
    out.weights.push_back(Sharding::replicated(variable.shape.size()));
    for (size_t d = variable.shape.size(); is_mesh && d-- > 0;) {
      if (variable.shape[d] % 2 == 0) {
        out.weights.back().dims[d] = {1};
        break;
      }
    }
  }
  return out;
}

}  // namespace

std::unique_ptr<GraphRunner> make_runner(Backend backend, std::vector<Variable> variables) {
  if (backend == Backend::kInterpreter) {
    return std::make_unique<InterpreterRunner>(std::move(variables));
  }
  const bool is_mesh = backend == Backend::kMesh || backend == Backend::kGpuMesh;
  const Layout layout = layout_of(is_mesh, variables);
  Place place;
  if (backend >= Backend::kGpu) {
    place.device = test::open_test_device();
  }
  return std::make_unique<ProgramRunner>(std::move(variables), layout, place);
}

ValueId Step::input(const HostTensor& tensor, bool is_batch) {
  const std::string name = "in" + std::to_string(inputs.size());
  inputs[name] = tensor.clone();
  return b.input(name, tensor.shape(), tensor.dtype(), is_batch);
}

Tensors run_once(Backend backend, const std::vector<const HostTensor*>& batches,
                 const std::vector<const HostTensor*>& weights, const MakeValues& make) {
  std::vector<Variable> variables;
  for (const HostTensor* weight : weights) {
    variables.push_back({.path = "w" + std::to_string(variables.size()),
                         .shape = weight->shape(),
                         .dtype = weight->dtype()});
  }
  const std::unique_ptr<GraphRunner> runner = make_runner(backend, variables);
  Step step(std::move(variables));
  std::vector<ValueId> values;
  for (const HostTensor* tensor : batches) {
    values.push_back(step.batch(*tensor));
  }
  for (size_t w = 0; w < weights.size(); ++w) {
    runner->write(static_cast<int>(w), *weights[w]);
    values.push_back(step.b.variable_use(step.b.parameter(static_cast<int>(w))));
  }
  const std::vector<ValueId> results = make(step.b, values);
  for (size_t i = 0; i < results.size(); ++i) {
    step.b.output(std::to_string(i), results[i]);
  }
  return runner->run(runner->add(std::move(step.graph)), step.inputs);
}

void on_backends(double tolerance, const std::function<Tensors(Backend)>& run,
                 const std::function<void(const Tensors&)>& check) {
  static size_t number = 0;
  std::vector<Backend> backends = {Backend::kOneDevice, Backend::kMesh};
  const size_t stride = test::is_slow() ? 8 * kGpuStride : kGpuStride;
  for (const Backend backend : {Backend::kGpu, Backend::kGpuMesh}) {
    if (test::is_sampled(number++, stride) && test::test_runtime() != nullptr) {
      test::set_emulator_seed(number);
      backends.push_back(backend);
    }
  }
  const Tensors expected = run(Backend::kInterpreter);
  check(expected);
  for (const Backend backend : backends) {
    const std::string name = kNames[static_cast<int>(backend)];
    CAPTURE(name);
    const Tensors results = run(backend);
    check(results);
    compare_tensors(results, expected, tolerance);
  }
}

}  // namespace meshtrain::testing
