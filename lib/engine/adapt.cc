#include "engine/adapt.h"

#include <algorithm>
#include <optional>

#include "data/quantiles.h"
#include "nn/arguments.h"

namespace meshtrain {
namespace {

constexpr std::string_view kDiscretization = "Discretization";

// A layer that needs statistics, and the input of the model that it reads; kNone when another layer
// stands between.
struct Wanted {
  const Layer* layer = nullptr;
  int input = kNone;
};

std::vector<Wanted> layers_to_adapt(const Model& model) {
  std::vector<Wanted> out;
  std::vector<int> seen;
  for (const Model::Call& call : model.calls()) {
    if (call.is_input || std::find(seen.begin(), seen.end(), call.layer) != seen.end()) {
      continue;  // a layer used again keeps the statistics of its first input
    }
    seen.push_back(call.layer);
    const Layer& layer = *model.layers()[static_cast<size_t>(call.layer)];
    const bool adapts = layer.class_name == "Normalization" || layer.class_name == kDiscretization;
    if (!adapts || layer.weights.empty()) {
      continue;
    }
    const auto found = std::find(model.inputs().begin(), model.inputs().end(), call.inputs[0]);
    const bool is_input = found != model.inputs().end();
    out.push_back({&layer, is_input ? static_cast<int>(found - model.inputs().begin()) : kNone});
  }
  return out;
}

// The dimensions of the data (batch included) that keep statistics of their own.
std::vector<bool> kept_dims(const Layer& layer, size_t rank) {
  std::vector<bool> kept(rank, false);
  const ConfigValue& axis = layer.config()->arg("axis");
  if (axis.is_null()) {
    return kept;
  }
  for (const int64_t a : integers_of(axis)) {
    kept[static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(rank) : a)] = true;
  }
  return kept;
}

// For each element of one sample, the statistic that it belongs to.
std::vector<size_t> places_in_sample(const Shape& shape, const std::vector<bool>& kept) {
  std::vector<size_t> places = {0};
  for (size_t d = 1; d < shape.size(); ++d) {
    std::vector<size_t> finer;
    const auto size = static_cast<size_t>(shape[d]);
    for (const size_t place : places) {
      for (size_t i = 0; i < size; ++i) {
        finer.push_back(kept[d] ? place * size + i : place);
      }
    }
    places = std::move(finer);
  }
  return places;
}

// Sums over all samples of f(value, statistic) for each statistic.
template <class F>
std::vector<double> sums(const Rows& data, const std::vector<size_t>& places, size_t count, F&& f) {
  std::vector<double> out(count, 0.0);
  const auto add_all = [&](const auto* values, int64_t size) {
    for (int64_t begin = 0; begin < size; begin += static_cast<int64_t>(places.size())) {
      for (size_t i = 0; i < places.size(); ++i) {
        out[places[i]] +=
            f(static_cast<double>(values[begin + static_cast<int64_t>(i)]), places[i]);
      }
    }
  };
  data.for_each_block([&](int64_t, const HostTensor& block) {
    switch (block.dtype()) {
      case DType::kFloat32:
        return add_all(block.data<float>(), block.size());
      case DType::kFloat64:
        return add_all(block.data<double>(), block.size());
      case DType::kUInt8:
        return add_all(block.data<uint8_t>(), block.size());
      default:
        return add_all(block.cast(DType::kFloat64).data<double>(), block.size());
    }
  });
  return out;
}

HostTensor tensor_of(const std::vector<double>& values, const Weight& like) {
  HostTensor out(like.dtype, like.shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, values[static_cast<size_t>(i)]);
  }
  return out;
}

// The boundaries between bins of all numbers of the data.
void adapt_bins(const Layer& layer, const Rows& data, StepRunner& runner) {
  std::vector<float> values;
  data.for_each_block([&](int64_t, const HostTensor& block) {
    for (int64_t i = 0; i < block.size(); ++i) {
      values.push_back(static_cast<float>(block.at(i)));
    }
  });
  const auto num_bins = static_cast<int>(layer.config()->integer("num_bins"));
  const std::vector<double> boundaries =
      quantile_boundaries(std::move(values), num_bins, layer.config()->number("epsilon"));
  if (boundaries.size() + 1 != static_cast<size_t>(num_bins)) {
    throw ConfigError("E124", layer.config()->loc_of("num_bins"),
                      fmt::format("layer `{}` needs {} bins, and the training data give {}",
                                  layer.name, num_bins, boundaries.size() + 1))
        .help("write fewer `num_bins`, or `bin_boundaries`");
  }
  runner.write_variable(layer.weights[0].path, tensor_of(boundaries, layer.weights[0]));
}

void adapt(const Layer& layer, const Rows& data, StepRunner& runner) {
  if (layer.class_name == kDiscretization) {
    return adapt_bins(layer, data, runner);
  }
  const Weight& mean_weight = layer.weights[0];
  const auto count = static_cast<size_t>(num_elements(mean_weight.shape));
  const std::vector<size_t> places =
      places_in_sample(data.shape(), kept_dims(layer, data.shape().size()));
  const double per_statistic =
      static_cast<double>(num_elements(data.shape())) / static_cast<double>(count);
  std::vector<double> mean = sums(data, places, count, [](double x, size_t) { return x; });
  for (double& m : mean) {
    m /= per_statistic;
  }
  // A second pass: nothing cancels, whatever the mean.
  std::vector<double> variance = sums(data, places, count, [&](double x, size_t statistic) {
    return (x - mean[statistic]) * (x - mean[statistic]);
  });
  for (double& v : variance) {
    v /= per_statistic;
  }
  runner.write_variable(mean_weight.path, tensor_of(mean, mean_weight));
  runner.write_variable(layer.weights[1].path, tensor_of(variance, layer.weights[1]));
  runner.write_variable(layer.weights[2].path,
                        tensor_of({static_cast<double>(data.size())}, layer.weights[2]));
}

}  // namespace

void check_adaptation(const Model& model, Diagnostics& diagnostics) {
  for (const Wanted& wanted : layers_to_adapt(model)) {
    if (wanted.input == kNone) {
      diagnostics
          .error("E124", wanted.layer->loc,
                 fmt::format("layer `{}` ({}) takes its statistics from the data, but "
                             "another layer stands between it and the data",
                             wanted.layer->name, wanted.layer->class_name))
          .help(wanted.layer->class_name == kDiscretization
                    ? "put it right after its Input, or give `bin_boundaries`"
                    : "put it right after its Input, or give `mean` and `variance`");
    }
  }
}

void adapt_to_data(const Model& model, const Dataset& train, StepRunner& runner) {
  Diagnostics diagnostics;
  check_adaptation(model, diagnostics);
  diagnostics.throw_if_errors();
  for (const Wanted& wanted : layers_to_adapt(model)) {
    adapt(*wanted.layer, *train.inputs[static_cast<size_t>(wanted.input)].rows, runner);
  }
}

}  // namespace meshtrain
