#include "engine/sharding_drawings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "mesh/visualize.h"

namespace meshtrain {
namespace {

struct Drawn {
  std::string name;
  Shape shape;
  Sharding sharding;
};

// Everything that can be drawn: the batch of each input, the weights, the pinned outputs.
std::vector<Drawn> drawable(const Setup& setup) {
  const int64_t batch = setup.config().fit.batch_size;
  std::vector<Drawn> out;
  for (const ValueType& input : setup.data().inputs) {
    Shape shape = {batch};
    shape.insert(shape.end(), input.shape.begin(), input.shape.end());
    Sharding sharding = Sharding::replicated(shape.size());
    if (batch % setup.mesh().size_of(setup.distribution().batch_axes) == 0) {
      sharding.dims[0] = setup.distribution().batch_axes;
    }
    out.push_back({"batch", shape, sharding});
  }
  for (const Variable& variable : setup.variables()) {
    if (variable.role == VariableRole::kWeight) {
      out.push_back({variable.path, variable.shape, variable.layout.storage});
    }
  }
  for (const Model::Call& call : setup.model().calls()) {
    if (call.is_input || call.result_of != kNone) {
      continue;
    }
    const std::string key = setup.model().layers()[call.layer]->name + "/output";
    const auto pin = setup.layouts().pins.find(key);
    if (pin != setup.layouts().pins.end()) {
      Shape shape = call.output_shape;
      shape[0] = batch * call.rows;
      out.push_back({key, shape, pin->second});
    }
  }
  for (Drawn& drawn : out) {
    std::replace(drawn.shape.begin(), drawn.shape.end(), kUnknownDim, int64_t{1});
  }
  return out;
}

}  // namespace

std::string sharding_drawings(const Setup& setup, const std::string& name, bool color) {
  std::string out;
  std::vector<std::string> known;
  for (const Drawn& drawn : drawable(setup)) {
    known.push_back(drawn.name);
    if (name.empty() || name == drawn.name) {
      out += fmt::format("{} {} {}\n{}\n", drawn.name, shape_string(drawn.shape),
                         sharding_string(drawn.sharding, setup.mesh()),
                         draw_sharding(drawn.shape, drawn.sharding, setup.mesh(), color));
    }
  }
  if (out.empty()) {
    throw ConfigError("E140", {},
                      fmt::format("`--sharding={}`: no such variable or pinned output", name))
        .note("nearest: " + join(nearest_names(name, known, 4), ", "));
  }
  return out;
}

}  // namespace meshtrain
