#include "support/small_models.h"

#include "ir/op.h"

namespace meshtrain::testing {

StepBuilder::StepBuilder(int64_t batch, int64_t width, int64_t classes, DType dtype)
    : dtype_(dtype) {
  x = b.input("x", {batch, width}, dtype, true);
  y = b.input("y", {batch, classes}, dtype, true);
}

ValueId StepBuilder::weight(const std::string& path, Shape shape) {
  Variable variable;
  variable.path = path;
  variable.shape = std::move(shape);
  variable.dtype = dtype_;
  const ValueId parameter = b.parameter(b.add_variable(std::move(variable)));
  parameters_.push_back(parameter);
  return b.variable_use(parameter);
}

ValueId StepBuilder::dense(const std::string& name, ValueId input, int64_t units, bool bias) {
  const int64_t in = b.shape(input).back();
  ValueId out = b.einsum("bi,io->bo", {input, weight(name + "/kernel", {in, units})});
  return bias ? b.add(out, weight(name + "/bias", {units})) : out;
}

Graph StepBuilder::finish(ValueId p) {
  const ValueId error = b.sub(p, y);
  const double count = static_cast<double>(num_elements(b.shape(error)));
  return finish_loss(b.mul(b.reduce_sum_all(b.mul(error, error)), 1 / count));
}

Graph StepBuilder::finish_loss(ValueId loss) {
  b.output("loss", loss);
  std::vector<ValueId> uses;
  std::vector<int> variables;
  for (const Node& node : graph.nodes) {
    if (node.op->name == "var_use") {
      uses.push_back(node.outputs[0]);
      variables.push_back(static_cast<int>(graph.producer(node.inputs[0]).attr_int("variable")));
    }
  }
  const std::vector<ValueId> grads = gradients(b, loss, uses);
  const auto to_layout = [&](ValueId value, int variable, const char* layout) {
    return b.apply("reshard", {value}, {{"variable", int64_t{variable}}, {"layout", layout}});
  };
  std::vector<ValueId> reduced;
  b.set_phase(Phase::kBackward);
  for (size_t i = 0; i < uses.size(); ++i) {
    reduced.push_back(to_layout(grads[i], variables[i], "grad"));
  }
  b.set_phase(Phase::kUpdate);
  const ValueId rate = b.constant(0.1, dtype_);
  for (size_t i = 0; i < uses.size(); ++i) {
    const ValueId param = to_layout(parameters_[variables[i]], variables[i], "state");
    const ValueId grad = to_layout(reduced[i], variables[i], "state");
    const ValueId fresh = b.optimizer_update("sgd", {param, grad, rate}, {})[0];
    b.update(variables[i], to_layout(fresh, variables[i], "storage"));
  }
  return graph;
}

}  // namespace meshtrain::testing
