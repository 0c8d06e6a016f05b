// Sources without a file: random, digits.
#include <algorithm>

#include "base/hash.h"
#include "base/normal.h"
#include "data/digits.h"
#include "data/sources.h"

namespace meshtrain {
namespace {

uint32_t stream(std::string_view name) {
  return static_cast<uint32_t>(hash_text(name));
}

// Standard normal numbers (samples, *sample_shape); number i depends only on seed, name and i, so
// that more samples begin with the same ones.
HostTensor normal_array(int64_t samples, const Shape& sample_shape, int64_t seed,
                        std::string_view name, const SourceLoc& loc) {
  Shape shape = {samples};
  shape.insert(shape.end(), sample_shape.begin(), sample_shape.end());
  int64_t elements = sizeof(float);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) {
      throw ConfigError("E304", loc, fmt::format("the shape {} is too large", shape_string(shape)));
    }
  }
  HostTensor tensor(DType::kFloat32, shape);
  constexpr int64_t kBlock = 4096;
  std::vector<double> block(kBlock);
  for (int64_t begin = 0; begin < tensor.size(); begin += kBlock) {
    const auto count = static_cast<size_t>(std::min(kBlock, tensor.size() - begin));
    fill_normal(static_cast<uint64_t>(seed), stream(name), 0, static_cast<uint64_t>(begin),
                std::span(block).first(count));
    std::copy_n(block.begin(), count, tensor.data<float>() + begin);
  }
  return tensor;
}

}  // namespace

Dataset make_random_source(const RandomOptions& source, const SourceContext& /*context*/) {
  const auto& [labels_shape, labels_loc] = source.labels;
  const auto& [classes, classes_loc] = source.classes;
  Dataset dataset;
  dataset.description = fmt::format("random, seed {}", source.seed);
  dataset.inputs.push_back({"x", make_rows(normal_array(source.samples, source.shape, source.seed,
                                                        "data/random/x", source.shape.loc))});
  if (labels_shape && classes) {
    throw ConfigError("E113", classes_loc,
                      "`labels` and `classes` exclude each other: normal numbers of a shape, or "
                      "whole numbers below `classes`");
  }
  if (labels_shape) {
    dataset.targets.push_back(
        {"y", make_rows(normal_array(source.samples, *labels_shape, source.seed, "data/random/y",
                                     labels_loc))});
  } else if (classes) {
    HostTensor labels(DType::kInt32, {source.samples});
    for (int64_t i = 0; i < source.samples; ++i) {
      const uint64_t bits = philox_bits(static_cast<uint64_t>(source.seed),
                                        stream("data/random/classes"), 0, static_cast<uint64_t>(i));
      labels.data<int32_t>()[i] =
          static_cast<int32_t>(bits * static_cast<uint64_t>(*classes) >> 32);
    }
    dataset.targets.push_back({"y", make_rows(std::move(labels))});
  }
  return dataset;
}

Dataset make_digits_source(const DigitsOptions& source, const SourceContext& /*context*/) {
  const std::string& split = source.split.value;
  const int64_t samples = source.samples.value_or(split == "test" ? 2000 : 10000);
  // The parts are drawn from seeds of their own, so that they share no sample.
  const uint64_t seed = hash_text(fmt::format("digits/{}/{}", split, source.seed));
  DigitImages digits = make_digits(samples, seed);
  Dataset dataset;
  dataset.description = "digits";
  dataset.inputs.push_back({"x", make_rows(std::move(digits.images))});
  dataset.targets.push_back({"y", make_rows(std::move(digits.labels))});
  return dataset;
}

}  // namespace meshtrain
