// RandAugment, AugMix: layers over images, drawn for each batch. Sources: Keras 3
// layers/preprocessing/image_preprocessing; D. Hendrycks et al., "AugMix", 2020.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/augmentation.h"
#include "nn/graph_parts.h"
#include "nn/parts.h"
#include "nn/random.h"

namespace meshtrain {
namespace {

// A layer to choose from, and those of its arguments that are the `factor` of the whole.
struct Choice {
  const char* class_name;
  std::vector<const char*> factors;
};
const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {{"RandomShear", {"x_factor", "y_factor"}},
                                          {"RandomTranslation", {"height_factor", "width_factor"}},
                                          {"RandomRotation", {"factor"}},
                                          {"RandomBrightness", {"factor"}},
                                          {"RandomColorDegeneration", {"factor"}},
                                          {"RandomContrast", {"factor"}},
                                          {"RandomSharpness", {"factor"}},
                                          {"RandomPosterization", {}},
                                          {"Solarization", {"addition_factor", "threshold_factor"}},
                                          {"AutoContrast", {}},
                                          {"Equalization", {}}};
  return all;
}

// Layers to choose from. All are computed where one is drawn, as in Keras' RandAugment.
class DrawnLayers : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics) || !check_factor(diagnostics) ||
        !check_range(diagnostics)) {
      return failed_shape();
    }
    for (const Choice& choice : choices()) {
      if (is_left_out(choice.class_name)) {
        continue;
      }
      Part& part = parts_.emplace_back();
      part.name = to_snake_case(choice.class_name);
      if (is_failed(build_part(part, part_object(choice), inputs, {}, diagnostics))) {
        return failed_shape();  // all of them refuse it for one reason
      }
    }
    return inputs[0];
  }

 protected:
  virtual bool is_left_out(std::string_view) const { return false; }

  // One of the layers, or of these and the image as it is, drawn for the batch.
  ValueId one_of(CallContext& context, ValueId x, bool or_none) const {
    Builder& b = context.builder;
    CallContext wide = context;
    wide.compute_dtype = DType::kFloat32;
    const auto count = static_cast<double>(parts_.size()) + (or_none ? 1 : 0);
    const ValueId drawn =
        b.unary("floor", random_uniform(wide, {1, 1, 1, 1}, seed(context), 0, count));
    ValueId out = x;
    for (size_t i = 0; i < parts_.size(); ++i) {
      // The last one also where the draw was rounded up to the count.
      const char* compare = i + 1 == parts_.size() && !or_none ? "ge" : "eq";
      const ValueId is_chosen =
          b.binary(compare, drawn, constant_like(b, drawn, static_cast<double>(i)));
      out = b.select(is_chosen, call_part(context, parts_[i], x), out);
    }
    return out;
  }

 private:
  // The interval of the argument, as Keras keeps it.
  std::pair<double, double> factor() const {
    const ConfigValue& given = config_.arg("factor");
    const std::vector<double> ends = numbers_of(given);
    return given.is_list() ? std::pair{std::min(ends[0], ends[1]), std::max(ends[0], ends[1])}
                           : std::pair{0.0, ends[0]};
  }

  bool check_factor(Diagnostics& diagnostics) const {
    const ConfigValue& given = config_.arg("factor");
    const std::vector<double> ends = numbers_of(given);
    const bool is_pair = !given.is_list() || ends.size() == 2;
    if (is_pair &&
        std::all_of(ends.begin(), ends.end(), [](double end) { return end >= 0 && end <= 1; })) {
      return true;
    }
    argument_error(diagnostics, "factor", "is not one or two numbers from 0 to 1")
        .help("write 0.5, or [0.2, 0.8]");
    return false;
  }

  bool check_range(Diagnostics& diagnostics) const {
    const ConfigValue& range = value_or_null(config_, "value_range");
    if (range.is_null() || (range.is_list() && numbers_of(range).size() == 2)) {
      return true;
    }
    argument_error(diagnostics, "value_range", "is no list of two numbers")
        .help("write [smallest, largest], such as [0, 1]");
    return false;
  }

  ConfigObject part_object(const Choice& choice) const {
    ConfigObject object = default_object(Category::kLayer, choice.class_name);
    object.loc = loc;
    for (const char* name : {"value_range", "interpolation", "seed", "data_format"}) {
      if (object.args.contains(name)) {
        object.args[name] = config_.arg(name);
      }
    }
    const auto [low, high] = factor();
    ConfigValue least, most;
    least.data = low;
    most.data = high;
    for (const char* name : choice.factors) {
      object.args[name].data = ConfigValue::List{least, most};
    }
    if (object.class_name == "RandomPosterization") {
      object.args["factor"].data = std::max(1.0, std::floor(8 * high));
    }
    return object;
  }

  std::vector<Part> parts_;
};

// `num_ops` times one of the layers, the same for all images of a batch.
class RandAugment final : public DrawnLayers {
 public:
  using DrawnLayers::DrawnLayers;

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = to_compute(context, inputs[0]);
    const int64_t count = context.training ? config_.integer("num_ops") : 0;
    for (int64_t i = 0; i < count; ++i) {
      const Builder::Scope scope = b.scope(fmt::format("op_{}", i));
      x = one_of(context, x, false);
    }
    return x;
  }
};

// `num_chains` chains of layers, the same for all images of a batch; their mean with drawn weights
// is mixed with the images.
class AugMix final : public DrawnLayers {
 public:
  using DrawnLayers::DrawnLayers;

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    const ValueId x = to_compute(context, inputs[0]);
    return context.training ? mixed(context, x) : x;
  }

 protected:
  bool is_left_out(std::string_view class_name) const override {
    return !config_.boolean("all_ops") &&
           (class_name == "RandomBrightness" || class_name == "RandomColorDegeneration" ||
            class_name == "RandomContrast" || class_name == "RandomSharpness");
  }

 private:
  ValueId mixed(CallContext& context, ValueId x) const {
    Builder& b = context.builder;
    const int64_t chains = config_.integer("num_chains");
    const ValueId weights = b.cast(chain_weights(context, chains), b.dtype(x));
    const DType wide = at_least_float32(context.compute_dtype);
    const ValueId share =
        b.cast(random_beta(context, {1, 1, 1, 1}, seed(context), alpha(b, wide)), b.dtype(x));
    ValueId sum = kNone;
    for (int64_t i = 0; i < chains; ++i) {
      const Builder::Scope scope = b.scope(fmt::format("chain_{}", i));
      const ValueId weight = b.reshape(b.slice(weights, 0, i, i + 1), {1, 1, 1, 1});
      const ValueId part = b.mul(chain(context, x), weight);
      sum = sum == kNone ? part : b.add(sum, part);
    }
    const ValueId result = b.add(b.mul(x, share), b.mul(sum, b.add(b.neg(share), 1.0)));
    return clamp_to(b, result, value_range_of(config_));
  }

  ValueId alpha(Builder& b, DType dtype) const {
    return b.constant(config_.number("alpha"), dtype);
  }

  // (chains,), of sum 1: the distribution of P. G. L. Dirichlet.
  ValueId chain_weights(CallContext& context, int64_t chains) const {
    Builder& b = context.builder;
    const DType wide = at_least_float32(context.compute_dtype);
    const ValueId logs = random_log_gamma(context, {chains}, seed(context), alpha(b, wide));
    const ValueId parts = b.exp(b.sub(logs, b.reduce_max(logs, {0}, true)));
    return b.div(parts, b.reduce_sum(parts, {0}, true));
  }

  ValueId chain(CallContext& context, ValueId x) const {
    for (int64_t i = 0; i < config_.integer("chain_depth"); ++i) {
      const Builder::Scope scope = context.builder.scope(fmt::format("op_{}", i));
      x = one_of(context, x, true);
    }
    return x;
  }
};

}  // namespace

std::vector<LayerEntry> rand_augment_layers() {
  return {{"RandAugment", make_as<RandAugment>}, {"AugMix", make_as<AugMix>}};
}

}  // namespace meshtrain
