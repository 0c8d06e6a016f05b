#include "passes/layouts.h"

#include "passes/factors.h"

namespace meshtrain {

Sharding add_zero_axes(const Sharding& base, const Shape& shape, const AxisList& axes,
                       const DeviceMesh& mesh) {
  if (axes.empty() || (mask_of(axes) & base.used_axes()) != 0) {
    return base;
  }
  int best = kNone;
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
    const bool fits = base.dims[d].empty() && shape[d] > 0 && shape[d] % mesh.size_of(axes) == 0;
    if (fits && (best == kNone || shape[d] > shape[best])) {
      best = d;
    }
  }
  Sharding out = base;
  if (best != kNone) {
    out.dims[best] = axes;
  }
  return out;
}

namespace {

Sharding without_axes(const Sharding& sharding, AxisMask axes) {
  Sharding out = sharding;
  for (AxisList& list : out.dims) {
    erase_if(list, [&](int axis) { return (axes >> axis & 1) != 0; });
  }
  return out;
}

VariableLayout weight_layout(const Sharding& user, const Shape& shape, const LayoutOptions& options,
                             int expert_dim, const DeviceMesh& mesh) {
  Sharding compute = without_axes(user, options.batch_axes);
  AxisList zero_axes = options.zero_axes;
  if (expert_dim != kNone) {
    const AxisList& experts = user.dims[static_cast<size_t>(expert_dim)];
    compute.dims[static_cast<size_t>(expert_dim)] = experts;
    erase_if(zero_axes, [&](int axis) { return (mask_of(experts) >> axis & 1) != 0; });
  }
  if (compute != user) {  // the user shards over the batch axis: FSDP of this variable
    return {user, compute, user, user};
  }
  const Sharding zero = options.zero == 0 ? user : add_zero_axes(user, shape, zero_axes, mesh);
  return {options.zero >= 3 ? zero : user, compute, zero, zero};
}

}  // namespace

void assign_layouts(std::span<Variable> variables, std::span<const Sharding> layouts,
                    const LayoutOptions& options, const DeviceMesh& mesh) {
  for (size_t i = 0; i < variables.size(); ++i) {
    Variable& variable = variables[i];
    if (variable.role == VariableRole::kWeight) {
      const int expert_dim = i < options.expert_dims.size() ? options.expert_dims[i] : kNone;
      variable.layout = weight_layout(layouts[i], variable.shape, options, expert_dim, mesh);
      if (!variable.trainable) {  // no gradient, no state: nothing to split further
        variable.layout.grad = variable.layout.state = variable.layout.storage;
      }
    } else {
      const Sharding whole = Sharding::replicated(variable.shape.size());
      variable.layout = {whole, whole, whole, whole};
    }
  }
  for (Variable& variable : variables) {
    if (variable.follows != kNone) {
      const Variable& weight = variables[variable.follows];
      Sharding state = weight.layout.state;
      if (variable.factored_dim != kNone) {
        state.dims.erase(state.dims.begin() + variable.factored_dim);
      }
      if (state.dims.size() == variable.shape.size()) {
        variable.layout = {state, state, state, state};
      }
    }
  }
}

}  // namespace meshtrain
