// The graph that several tests of the ir use: two dense layers, a mean squared error, gradients and
// one step of gradient descent.
#pragma once

#include "ir/builder.h"

namespace meshtrain {

struct SmallMlp {
  Graph graph;
  ValueId loss = kNone;
};

inline SmallMlp small_mlp() {
  SmallMlp out;
  Builder b(out.graph);
  const ValueId x = b.input("x", {8, 6}, DType::kFloat32, true);
  const ValueId target = b.input("y", {8, 2}, DType::kFloat32, true);
  std::vector<int> variables;
  std::vector<ValueId> params;
  const auto dense = [&](const std::string& name, ValueId input, int64_t units) {
    const auto scope = b.scope(name);
    const int64_t width = b.shape(input)[1];
    variables.push_back(b.add_variable({.path = name + "/kernel", .shape = {width, units}}));
    params.push_back(b.parameter(variables.back()));
    const ValueId product = b.einsum("bi,io->bo", {input, b.variable_use(params.back())});
    variables.push_back(b.add_variable({.path = name + "/bias", .shape = {units}}));
    params.push_back(b.parameter(variables.back()));
    return b.add(product, b.variable_use(params.back()));
  };
  const ValueId hidden = b.unary("relu", dense("d1", x, 4));
  const ValueId y = dense("d2", hidden, 2);
  out.loss = b.reduce_mean(b.square(b.sub(y, target)), {0, 1});
  b.output("loss", out.loss);
  const std::vector<ValueId> grads = gradients(b, out.loss, params);
  b.set_phase(Phase::kUpdate);
  const auto scope = b.scope("sgd");
  const ValueId rate = b.constant(0.01, DType::kFloat32);
  for (size_t i = 0; i < params.size(); ++i) {
    b.update(variables[i], b.optimizer_update("sgd", {params[i], grads[i], rate}, {})[0]);
  }
  return out;
}

}  // namespace meshtrain
