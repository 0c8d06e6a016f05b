// RandAugment: layers over images, drawn for each batch. Source: Keras 3
// layers/preprocessing/image_preprocessing/rand_augment.py.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "nn/arguments.h"
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

// `num_ops` times one of the layers, the same for all images of a batch. All are computed, and one
// is used, as in Keras.
class RandAugment final : public CompositeLayer {
 public:
  using CompositeLayer::CompositeLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics) || !check_factor(diagnostics)) {
      return failed_shape();
    }
    parts_.resize(choices().size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].name = to_snake_case(choices()[i].class_name);
      if (is_failed(build_part(parts_[i], part_object(choices()[i]), inputs, {}, diagnostics))) {
        return failed_shape();  // all of them refuse it for one reason
      }
    }
    return inputs[0];
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    ValueId x = to_compute(context, inputs[0]);
    const int64_t count = context.training ? config_.integer("num_ops") : 0;
    for (int64_t i = 0; i < count; ++i) {
      const Builder::Scope scope = b.scope(fmt::format("op_{}", i));
      x = one_of(context, x);
    }
    return x;
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

  ValueId one_of(CallContext& context, ValueId x) const {
    Builder& b = context.builder;
    CallContext wide = context;
    wide.compute_dtype = DType::kFloat32;
    const auto count = static_cast<double>(parts_.size());
    const ValueId drawn =
        b.unary("floor", random_uniform(wide, {1, 1, 1, 1}, seed(context), 0, count));
    ValueId out = x;
    for (size_t i = 0; i < parts_.size(); ++i) {
      // The last one also where the draw was rounded up to the count.
      const char* compare = i + 1 == parts_.size() ? "ge" : "eq";
      const ValueId is_chosen =
          b.binary(compare, drawn, constant_like(b, drawn, static_cast<double>(i)));
      out = b.select(is_chosen, call_part(context, parts_[i], x), out);
    }
    return out;
  }

  std::vector<Part> parts_;
};

}  // namespace

std::vector<LayerEntry> rand_augment_layers() {
  return {{"RandAugment", make_as<RandAugment>}};
}

}  // namespace meshtrain
