#include "nn/rotary.h"

#include <cmath>
#include <numbers>

#include "nn/arguments.h"

namespace meshtrain {
namespace {

constexpr const char* kLlamaArguments[] = {"frequency_adjustment_factor", "low_freq_factor",
                                           "high_freq_factor", "pretraining_sequence_length"};

// w^(-2 i / D) for i < D / 2.
ValueId plain_frequencies(Builder& b, double wavelength, int64_t denominator, int64_t size) {
  const ValueId index = b.iota({size / 2}, 0, DType::kFloat64);
  const double log_step = -2 * std::log(wavelength) / static_cast<double>(denominator);
  return b.exp(b.mul(index, log_step));
}

// YaRN: frequencies of few rotations within the original length are divided by the factor, those of
// many are kept, and between is a ramp.
ValueId yarn_frequencies(Builder& b, const ConfigObject& layer, ValueId plain, int64_t size) {
  const double wavelength = layer.number("max_wavelength"), factor = layer.number("scaling_factor");
  const auto length = static_cast<double>(layer.integer("original_max_position_embeddings"));
  const auto dim_of = [&](double rotations) {
    return static_cast<double>(size) * std::log(length / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(wavelength));
  };
  double low = dim_of(layer.number("beta_fast")), high = dim_of(layer.number("beta_slow"));
  if (layer.boolean("truncate")) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(size - 1));
  const double width = high == low ? 0.001 : high - low;
  const ValueId index = b.iota({size / 2}, 0, DType::kFloat64);
  const ValueId ramp = b.clamp(b.div(b.sub(index, low), width), 0, 1);
  const ValueId kept = b.mul(plain, b.sub(b.constant(1, DType::kFloat64), ramp));
  return b.add(kept, b.mul(b.div(plain, factor), ramp));
}

// Llama 3.1: by wavelength.
ValueId llama_frequencies(Builder& b, const ConfigObject& layer, ValueId plain) {
  const double factor = layer.number("frequency_adjustment_factor");
  const double low = layer.number("low_freq_factor"), high = layer.number("high_freq_factor");
  const auto length = static_cast<double>(layer.integer("pretraining_sequence_length"));
  const ValueId turns = b.mul(plain, length / (2 * std::numbers::pi));  // length / wavelength
  const ValueId smooth = b.clamp(b.div(b.sub(turns, low), high - low), 0, 1);
  const ValueId scaled = b.div(plain, factor);
  return b.add(scaled, b.mul(smooth, b.sub(plain, scaled)));
}

}  // namespace

bool check_rotary(const ConfigObject& layer, std::string_view name, int64_t size,
                  Diagnostics& diagnostics) {
  if (layer.class_name != "RotaryEmbedding") {
    diagnostics
        .error("E113", layer.loc,
               fmt::format("`{}` is a {}, not a RotaryEmbedding", name, layer.class_name))
        .help("write `rotary: {RotaryEmbedding: {max_wavelength: 10000}}`");
    return false;
  }
  if (size % 2 != 0) {
    diagnostics
        .error("E120", layer.loc,
               fmt::format("layer `{}` rotates pairs of {} features, an odd number", name, size))
        .help("give the heads (or the input) an even size");
    return false;
  }
  int given = 0;
  for (const char* argument : kLlamaArguments) {
    given += layer.has(argument) ? 1 : 0;
  }
  if (given != 0 && given != 4) {
    diagnostics
        .error("E113", layer.loc,
               fmt::format("`{}` has {} of the four arguments of Llama's scaling", name, given))
        .help(
            "write all of frequency_adjustment_factor, low_freq_factor, high_freq_factor and "
            "pretraining_sequence_length, or none");
    return false;
  }
  if (given == 4 && layer.number("low_freq_factor") >= layer.number("high_freq_factor")) {
    diagnostics
        .error("E113", layer.loc_of("low_freq_factor"),
               fmt::format("`low_freq_factor` of `{}` is not below `high_freq_factor`", name))
        .help("Llama 3.1 has 1.0 and 4.0");
    return false;
  }
  return true;
}

std::pair<ValueId, ValueId> rotary_angles(Builder& b, const ConfigObject& layer, ValueId positions,
                                          int64_t start, int64_t steps, int64_t size, DType dtype) {
  const std::string& type = layer.string("rope_type");
  const double factor = layer.number("scaling_factor");
  const auto features = static_cast<double>(size);
  const int64_t denominator =
      layer.has("denominator_dim") && type != "yarn" ? layer.integer("denominator_dim") : size;
  ValueId frequencies = plain_frequencies(b, layer.number("max_wavelength"), denominator, size);
  double magnitude = 1;
  if (type == "yarn") {
    frequencies = yarn_frequencies(b, layer, frequencies, size);
    magnitude = 0.1 * std::log(factor) + 1;
  } else if (factor != 1) {
    const double power = type == "dynamic" ? features / std::max(1.0, features - 2) : 1;
    frequencies = b.div(frequencies, std::pow(factor, power));
  }
  if (layer.has("frequency_adjustment_factor")) {
    frequencies = llama_frequencies(b, layer, frequencies);
  }
  ValueId places = positions == kNone ? b.iota({1, steps}, 1, DType::kFloat64)
                                      : b.cast(positions, DType::kFloat64);
  if (positions == kNone && start != 0) {
    places = b.add(places, static_cast<double>(start));
  }
  const ValueId angles = b.mul(b.expand_dims(places, 2), frequencies);
  const auto table = [&](std::string_view function) {
    const ValueId values = b.unary(function, angles);
    return b.cast(magnitude == 1 ? values : b.mul(values, magnitude), dtype);
  };
  return {table("cos"), table("sin")};
}

}  // namespace meshtrain
