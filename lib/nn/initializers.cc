// Initializers: pure functions of (seed, path, global shape). Element i of a weight is made from
// the Philox bits of (seed, stream = low half of hash_text(path), step 0, i); only exactly rounded
// arithmetic follows (base/normal.h), so the values are the same on every machine and mesh.
// Distributions, fans and names: Keras 3 initializers (random_initializers.py).
#include <cmath>
#include <map>
#include <utility>

#include "base/hash.h"
#include "base/normal.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/orthogonal.h"
#include "nn/stft_kernel.h"

namespace meshtrain {
namespace {

using InitializerFunction =
    std::function<HostTensor(const Shape&, DType, uint64_t seed, std::string_view path)>;

// Standard deviation of a unit normal truncated at two of its own.
constexpr double kTruncatedStddev = 0.87962566103423978;

struct Stream {
  uint64_t seed;
  uint32_t stream;
};

Stream stream_of(uint64_t seed, std::string_view path) {
  return {seed, static_cast<uint32_t>(hash_text(path))};
}

// Calls f(i, u) for every element with its uniform number in the open interval (0, 1).
template <class F>
void for_each_uniform(Stream s, int64_t count, F f) {
  for (int64_t i = 0; i < count; i += 2) {
    const uint64_t block = static_cast<uint64_t>(i) / 2;
    const PhiloxBlock bits = philox4x32_10(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), s.stream, 0}, s.seed);
    f(i, open_uniform(bits[0], bits[1]));
    if (i + 1 < count) {
      f(i + 1, open_uniform(bits[2], bits[3]));
    }
  }
}

template <class F>
HostTensor fill(const Shape& shape, DType dtype, Stream s, F value_of) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) {
    return fill(shape, DType::kFloat32, s, value_of).cast(dtype);
  }
  HostTensor out(dtype, shape);
  dispatch_float(dtype, [&]<class T>(T) {
    T* data = out.data<T>();
    for_each_uniform(s, out.size(),
                     [&](int64_t i, double u) { data[i] = static_cast<T>(value_of(u)); });
  });
  return out;
}

InitializerFunction uniform(double low, double high) {
  return [=](const Shape& shape, DType dtype, uint64_t seed, std::string_view path) {
    return fill(shape, dtype, stream_of(seed, path),
                [&](double u) { return low + (high - low) * u; });
  };
}

InitializerFunction normal(double mean, double stddev) {
  return [=](const Shape& shape, DType dtype, uint64_t seed, std::string_view path) {
    return fill(shape, dtype, stream_of(seed, path),
                [&](double u) { return mean + stddev * normal_quantile(u); });
  };
}

// The inverse distribution function restricted to +-2 standard deviations: no draw is rejected.
InitializerFunction truncated_normal(double mean, double stddev) {
  constexpr double kBelow = 0.022750131948179208;  // P(N(0,1) < -2)
  return [=](const Shape& shape, DType dtype, uint64_t seed, std::string_view path) {
    return fill(shape, dtype, stream_of(seed, path), [&](double u) {
      return mean + stddev * normal_quantile(kBelow + (1 - 2 * kBelow) * u);
    });
  };
}

InitializerFunction identity(double gain, SourceLoc loc) {
  return [gain, loc](const Shape& shape, DType dtype, uint64_t, std::string_view path) {
    if (shape.size() != 2) {
      throw ConfigError("E120", loc,
                        fmt::format("the identity initializer needs a matrix; `{}` has "
                                    "shape {}",
                                    path, shape_string(shape)));
    }
    HostTensor out(dtype, shape);
    for (int64_t i = 0; i < std::min(shape[0], shape[1]); ++i) {
      out.set(i * shape[1] + i, gain);
    }
    return out;
  };
}

InitializerFunction orthogonal(double gain, SourceLoc loc) {
  return [gain, loc](const Shape& shape, DType dtype, uint64_t seed, std::string_view path) {
    if (shape.size() < 2) {
      throw ConfigError("E120", loc,
                        fmt::format("the orthogonal initializer needs at least two "
                                    "dimensions; `{}` has shape {}",
                                    path, shape_string(shape)));
    }
    HostTensor out(dtype, shape);
    const int64_t cols = shape.back();
    const int64_t rows = cols == 0 ? 0 : out.size() / cols;
    const Stream s = stream_of(seed, path);
    std::vector<double> draws(static_cast<size_t>(out.size()));
    fill_normal(s.seed, s.stream, 0, 0, draws);
    const std::vector<double> q = orthogonal_matrix(std::move(draws), rows, cols);
    for (int64_t i = 0; i < out.size(); ++i) {
      out.set(i, gain * q[i]);
    }
    return out;
  };
}

InitializerFunction stft(StftKernel kernel, SourceLoc loc) {
  return [kernel = std::move(kernel), loc](const Shape& shape, DType dtype, uint64_t,
                                           std::string_view path) {
    if (shape.size() != 3 || shape[1] != 1 || shape[2] < 2) {
      throw ConfigError("E120", loc,
                        fmt::format("the STFT initializer needs a kernel [length, 1, bands] of at "
                                    "least two bands; `{}` has shape {}",
                                    path, shape_string(shape)));
    }
    HostTensor out(dtype, shape);
    const std::vector<double> values = stft_kernel(kernel, shape[0], shape[2]);
    for (int64_t i = 0; i < out.size(); ++i) {
      out.set(i, values[static_cast<size_t>(i)]);
    }
    return out;
  };
}

Fans fans_of(const Shape& shape) {
  switch (shape.size()) {
    case 0:
      return {1, 1};
    case 1:
      return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
    default: {
      double receptive_field = 1;
      for (size_t i = 0; i + 2 < shape.size(); ++i) {
        receptive_field *= static_cast<double>(shape[i]);
      }
      return {static_cast<double>(shape[shape.size() - 2]) * receptive_field,
              static_cast<double>(shape.back()) * receptive_field};
    }
  }
}

struct Scaling {
  double scale = 1;
  std::string mode = "fan_in";
  std::string distribution = "truncated_normal";
};

InitializerFunction variance_scaling(Scaling scaling, std::optional<Fans> given) {
  return [=](const Shape& shape, DType dtype, uint64_t seed, std::string_view path) {
    const Fans fans = given ? *given : fans_of(shape);
    const double fan = scaling.mode == "fan_in"    ? fans.in
                       : scaling.mode == "fan_out" ? fans.out
                                                   : (fans.in + fans.out) / 2;
    const double variance = scaling.scale / std::max(1.0, fan);
    if (scaling.distribution == "uniform") {
      const double limit = std::sqrt(3 * variance);
      return uniform(-limit, limit)(shape, dtype, seed, path);
    }
    const double stddev = std::sqrt(variance);
    if (scaling.distribution == "untruncated_normal") {
      return normal(0, stddev)(shape, dtype, seed, path);
    }
    return truncated_normal(0, stddev / kTruncatedStddev)(shape, dtype, seed, path);
  };
}

// VarianceScaling by its six other names.
const std::map<std::string, Scaling, std::less<>>& scaling_names() {
  static const std::map<std::string, Scaling, std::less<>> kNames = {
      {"glorotuniform", {1, "fan_avg", "uniform"}},
      {"glorotnormal", {1, "fan_avg", "truncated_normal"}},
      {"heuniform", {2, "fan_in", "uniform"}},
      {"henormal", {2, "fan_in", "truncated_normal"}},
      {"lecununiform", {1, "fan_in", "uniform"}},
      {"lecunnormal", {1, "fan_in", "truncated_normal"}}};
  return kNames;
}

InitializerFunction from_name(const ConfigValue& value, std::optional<Fans> fans) {
  const NamedValue name = named_value(value);
  const ClassSpec* const spec = class_of_key(Category::kInitializer, name.key);
  if (spec == nullptr && !name.key.empty()) {
    throw ConfigError("E122", value.loc, fmt::format("unknown initializer `{}`", name.spelled));
  }
  const std::string key = spec == nullptr ? "zeros" : name_key(spec->name);
  const ConfigObject args = all_arguments(Category::kInitializer, key, name.object);
  if (key == "zeros") {
    return filled_with(0);
  }
  if (key == "ones") {
    return filled_with(1);
  }
  if (key == "constant") {
    return filled_with(args.number("value"));
  }
  if (key == "identity") {
    return identity(args.number("gain"), value.loc);
  }
  if (key == "orthogonal") {
    return orthogonal(args.number("gain"), value.loc);
  }
  if (key == "stft") {
    return stft({args.string("side") == "imag", string_or(args, "window", ""),
                 string_or(args, "scaling", ""), args.boolean("periodic")},
                value.loc);
  }
  if (key == "randomnormal") {
    return normal(args.number("mean"), args.number("stddev"));
  }
  if (key == "truncatednormal") {
    return truncated_normal(args.number("mean"), args.number("stddev"));
  }
  if (key == "randomuniform") {
    return uniform(args.number("minval"), args.number("maxval"));
  }
  if (key == "variancescaling") {
    return variance_scaling(
        {args.number("scale"), args.string("mode"), args.string("distribution")}, fans);
  }
  return variance_scaling(scaling_names().at(key), fans);
}

}  // namespace

InitializerFunction make_initializer(const ConfigValue& initializer, std::optional<Fans> fans) {
  InitializerFunction function = from_name(initializer, fans);
  const ConfigObject* args = named_value(initializer).object;
  if (args == nullptr || !args->has("seed")) {
    return function;
  }
  // An initializer's own seed takes the place of the run's.
  const auto own_seed = static_cast<uint64_t>(args->integer("seed"));
  return [=](const Shape& shape, DType dtype, uint64_t, std::string_view path) {
    return function(shape, dtype, own_seed, path);
  };
}

}  // namespace meshtrain
