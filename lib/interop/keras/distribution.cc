#include "interop/keras/distribution.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace meshtrain {

KerasDistribution keras_distribution(const Setup& setup) {
  const DeviceMesh& mesh = setup.mesh();
  KerasDistribution out;
  out.mesh_shape = mesh.shape();
  out.axis_names = mesh.axis_names();
  const bool is_data_parallel =
      setup.config().distribution.type != DistributionType::kModelParallel;
  if (is_data_parallel && mesh.num_axes() > 1) {
    out.mesh_shape = {mesh.num_devices()};
    out.axis_names.resize(1);
    out.notes.push_back(fmt::format("The config's mesh is {}; Keras' DataParallel takes one axis.",
                                    fmt::join(mesh.shape(), "x")));
  }
  const AxisList& batch = setup.distribution().batch_axes;
  out.batch_axis = batch.empty() ? mesh.axis_names()[0] : mesh.axis_names()[batch[0]];
  if (batch.size() > 1) {
    out.notes.push_back("The batch is split over several axes in the config; Keras knows one.");
  }
  if (setup.distribution().zero > 0) {
    out.notes.push_back(
        fmt::format("The config has `zero: {}`, which Keras does not know; results are the same.",
                    setup.distribution().zero));
  }
  const auto add = [&](const std::string& path, const Sharding& sharding, const LayoutRule* rule) {
    if (sharding.is_replicated()) {
      return;
    }
    KerasDistribution::Layout layout{path, {}, rule == nullptr ? "" : rule->key};
    layout.rule = layout.rule == path ? "" : layout.rule;
    for (const AxisList& axes : sharding.dims) {
      if (axes.size() > 1) {
        out.notes.push_back(fmt::format(
            "{} has several axes on one dimension; Keras takes one, so it stays whole.", path));
        return;
      }
      layout.axes.push_back(axes.empty() ? "" : mesh.axis_names()[axes[0]]);
    }
    out.layouts.push_back(std::move(layout));
  };
  const ResolvedLayouts& layouts = setup.layouts();
  const auto& weights = setup.model().weights();
  for (size_t i = 0; i < weights.size(); ++i) {
    const Weight& weight = *weights[i];
    const bool splits_padded =
        weight.stored_shape() != weight.shape &&
        !layouts.weights[i].dims[static_cast<size_t>(weight.pad_dim)].empty();
    if (splits_padded) {
      out.notes.push_back(fmt::format(
          "{} is split with `pad_to`, which Keras has not: it stays whole.", weight.path));
    } else {
      add(weight.path, layouts.weights[i], layouts.rules[i]);
    }
  }
  for (const auto& [key, sharding] : layouts.pins) {
    const auto rule = layouts.pin_rules.find(key);
    add(key, sharding, rule == layouts.pin_rules.end() ? nullptr : rule->second);
  }
  return out;
}

}  // namespace meshtrain
