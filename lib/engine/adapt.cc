#include "engine/adapt.h"

#include <algorithm>
#include <optional>

#include "data/quantiles.h"
#include "nn/arguments.h"

namespace meshtrain {
namespace {

constexpr std::string_view kDiscretization = "Discretization";

// What Rescaling layers make of the values of an input, element by element of a sample.
class Rescaled {
 public:
  // Puts `layer` behind what is there.
  void append(const Layer& layer) {
    const ConfigValue& offset = value_or_null(*layer.config(), "offset");
    const std::vector<double> factors = numbers_of(layer.config()->arg("scale"));
    const std::vector<double> terms =
        offset.is_null() ? std::vector<double>{0} : numbers_of(offset);
    const size_t channels = std::max({scale_.size(), factors.size(), terms.size()});
    std::vector<double> scale, shift;
    for (size_t c = 0; c < channels; ++c) {
      const double factor = factors[c % factors.size()];
      scale.push_back(scale_[c % scale_.size()] * factor);
      shift.push_back(offset_[c % offset_.size()] * factor + terms[c % terms.size()]);
    }
    scale_ = std::move(scale);
    offset_ = std::move(shift);
  }
  // `element`: of a sample, or of a row of a window, which ends with the same channels.
  double operator()(double x, size_t element) const {
    const size_t channel = element % scale_.size();
    return x * scale_[channel] + offset_[channel];
  }

 private:
  std::vector<double> scale_ = {1}, offset_ = {0};  // one for all, or one for each channel
};

// A layer that needs statistics, and the input of the model that it reads; kNone when a layer that
// is no Rescaling stands between.
struct Wanted {
  const Layer* layer = nullptr;
  int input = kNone;
  Rescaled rescaled;
};

// The entry that the chain of Rescaling layers before entry `call` reads; they are added to
// `rescaled`.
int before_rescaling(const Model& model, int call, Rescaled& rescaled) {
  const Model::Call& entry = model.calls()[static_cast<size_t>(call)];
  if (entry.layer == kNone ||
      model.layers()[static_cast<size_t>(entry.layer)]->class_name != "Rescaling") {
    return call;
  }
  const int first = before_rescaling(model, entry.inputs[0], rescaled);
  rescaled.append(*model.layers()[static_cast<size_t>(entry.layer)]);
  return first;
}

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
    Wanted wanted{&layer, kNone, {}};
    const int from = before_rescaling(model, call.inputs[0], wanted.rescaled);
    const auto found = std::find(model.inputs().begin(), model.inputs().end(), from);
    if (found != model.inputs().end()) {
      wanted.input = static_cast<int>(found - model.inputs().begin());
    }
    out.push_back(std::move(wanted));
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
    kept[static_cast<size_t>(normal_axis(a, rank))] = true;
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

// Samples, or the rows of windows, and the statistic that each element of one belongs to.
struct Measured {
  const Rows* samples;
  RowCounts windows = {};  // of windows: their rows, which are read once, and how many hold each
  std::vector<size_t> places;

  Measured(const Rows& data, std::vector<bool> kept) : samples(&data) {
    Shape shape = data.shape();
    if (shape.size() > 1 && !kept[1]) {  // else each step has statistics of its own
      if (std::optional<RowCounts> counted = data.row_counts(0, data.size())) {
        windows = std::move(*counted);
        samples = windows.rows.get();
        shape.erase(shape.begin() + 1);
        kept.erase(kept.begin() + 1);
      }
    }
    places = places_in_sample(shape, kept);
  }
  // Returns the number of samples that contain row `sample`.
  int64_t count(int64_t sample) const {
    return windows.rows ? windows.counts[static_cast<size_t>(sample)] : 1;
  }
};

// Sums over all samples of f(rescaled value, statistic) for each statistic.
template <class F>
std::vector<double> sums(const Measured& data, const Rescaled& rescaled, size_t count, F&& f) {
  std::vector<double> out(count, 0.0);
  const std::vector<size_t>& places = data.places;
  const auto add_all = [&](int64_t sample, const auto* values, int64_t size) {
    for (int64_t begin = 0; begin < size; begin += static_cast<int64_t>(places.size())) {
      const auto weight = static_cast<double>(data.count(sample++));
      for (size_t i = 0; weight != 0 && i < places.size(); ++i) {  // 0 times NaN would count
        const auto value = static_cast<double>(values[begin + static_cast<int64_t>(i)]);
        out[places[i]] += weight * f(rescaled(value, i), places[i]);
      }
    }
  };
  data.samples->for_each_block([&](int64_t first, const HostTensor& block) {
    switch (block.dtype()) {
      case DType::kFloat32:
        return add_all(first, block.data<float>(), block.size());
      case DType::kFloat64:
        return add_all(first, block.data<double>(), block.size());
      case DType::kUInt8:
        return add_all(first, block.data<uint8_t>(), block.size());
      default:
        return add_all(first, block.cast(DType::kFloat64).data<double>(), block.size());
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
void adapt_bins(const Wanted& wanted, const Rows& data, StepRunner& runner) {
  const Layer& layer = *wanted.layer;
  std::vector<float> values;
  const Measured measured(data, std::vector<bool>(data.shape().size(), false));
  const auto each = static_cast<int64_t>(measured.places.size());
  measured.samples->for_each_block([&](int64_t first, const HostTensor& block) {
    for (int64_t i = 0; i < block.size(); ++i) {
      const double value = wanted.rescaled(block.at(i), static_cast<size_t>(i));
      const auto count = static_cast<size_t>(measured.count(first + i / each));
      values.insert(values.end(), count, static_cast<float>(value));
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

void adapt(const Wanted& wanted, const Rows& data, StepRunner& runner) {
  const Layer& layer = *wanted.layer;
  if (layer.class_name == kDiscretization) {
    return adapt_bins(wanted, data, runner);
  }
  const Weight& mean_weight = layer.weights[0];
  const auto count = static_cast<size_t>(num_elements(mean_weight.shape));
  const Measured measured(data, kept_dims(layer, data.shape().size()));
  const double per_statistic =
      static_cast<double>(num_elements(data.shape())) / static_cast<double>(count);
  std::vector<double> mean =
      sums(measured, wanted.rescaled, count, [](double x, size_t) { return x; });
  for (double& m : mean) {
    m /= per_statistic;
  }
  // A second pass: nothing cancels, whatever the mean.
  const auto squares = [&](double x, size_t statistic) {
    return (x - mean[statistic]) * (x - mean[statistic]);
  };
  std::vector<double> variance = sums(measured, wanted.rescaled, count, squares);
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
                    ? "put it after its Input, or after Rescaling, or give `bin_boundaries`"
                    : "put it after its Input, or after Rescaling, or give `mean` and `variance`");
    }
  }
}

void adapt_to_data(const Model& model, const Dataset& train, StepRunner& runner) {
  Diagnostics diagnostics;
  check_adaptation(model, diagnostics);
  diagnostics.throw_if_errors();
  for (const Wanted& wanted : layers_to_adapt(model)) {
    adapt(wanted, *train.inputs[static_cast<size_t>(wanted.input)].rows, runner);
  }
}

}  // namespace meshtrain
