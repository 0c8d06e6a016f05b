#include "support/graph_runner.h"

#include <algorithm>

#include "ir/op.h"
#include "passes/layouts.h"
#include "passes/memory.h"
#include "passes/pipeline.h"
#include "passes/row_fusion.h"

namespace meshtrain::testing {
namespace {

bool divides_batch(const Graph& graph, int64_t devices) {
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return node.op->name != "input" || node.attr_int("batch") == 0 ||
           graph.shape(node.outputs[0])[0] % devices == 0;
  });
}

}  // namespace

ProgramRunner::ProgramRunner(std::vector<Variable> variables, const Layout& layout,
                             const Place& place, int64_t regather_above)
    : layout_(layout),
      place_(place),
      regather_above_(regather_above),
      variables_(std::move(variables)),
      workers_(make_worker_pool(2)) {
  AxisMask batch = 0;
  for (const int axis : layout.batch_axes) {
    batch |= AxisMask{1} << axis;
  }
  assign_layouts(variables_, layout.weights, {batch, layout.zero, layout.zero_axes}, layout.mesh);
  const Processes processes{.group = place.group, .monitor = nullptr};
  store_ =
      std::make_unique<VariableStore>(MeshPart(layout.mesh, processes.size(), processes.rank()),
                                      variables_, place.device, processes);
}

int ProgramRunner::add(Graph graph) {
  graph.variables = variables_;
  CompileOptions options;
  if (divides_batch(graph, layout_.mesh.size_of(layout_.batch_axes))) {
    options.propagate.batch_axes = layout_.batch_axes;
  }
  options.propagate.pins = layout_.pins;
  options.fixed_reductions = place_.fixed_reductions;
  options.regather_above = regather_above_;
  options.processes = store_->part().processes();
  options.rank = store_->part().rank();
  Compiled compiled = compile(std::move(graph), layout_.mesh, options);
  fuse_rows(compiled.program, place_.device != nullptr ? RowTarget::kGpu : RowTarget::kCpu);
  for (const Node& node : compiled.graph.nodes) {
    MESHTRAIN_CHECK(!node.op->collective || !node.attr_string("cause").empty(),
                    "{} is there for no reason", node.path);
  }
  const std::string problem = memory_plan_problem(compiled.program);
  MESHTRAIN_CHECK(problem.empty(), "{}", problem);
  executors_.push_back(std::make_unique<Executor>(std::move(compiled.program), workers_, *store_));
  return static_cast<int>(executors_.size()) - 1;
}

Tensors ProgramRunner::run(int number, const Tensors& inputs) {
  Executor& executor = *executors_[static_cast<size_t>(number)];
  const Program& program = executor.program();
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const HostTensor& value = inputs.at(program.inputs[i].name);
    const Buffer& buffer = program.buffers[program.inputs[i].buffer];
    MESHTRAIN_CHECK(value.shape() == buffer.global_shape && value.dtype() == buffer.dtype,
                    "input {} has another type", program.inputs[i].name);
    const Executor::RowRange rows = executor.input_rows(static_cast<int>(i));
    const auto num_rows =
        static_cast<size_t>(value.shape().empty() ? 1 : std::max<int64_t>(1, value.shape()[0]));
    const size_t row_bytes = value.num_bytes() / num_rows;
    executor.set_input(static_cast<int>(i),
                       value.bytes() + static_cast<size_t>(rows.first) * row_bytes,
                       static_cast<size_t>(rows.count) * row_bytes);
  }
  executor.run();
  Tensors out;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    out[program.outputs[i].name] = executor.output(static_cast<int>(i));
  }
  return out;
}

}  // namespace meshtrain::testing
