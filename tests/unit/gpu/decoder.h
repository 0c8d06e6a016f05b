// Part of a decoder, whose steps are mostly computed row by row.
#pragma once

#include "support/engine_case.h"
#include "support/splitmix.h"

namespace meshtrain::test {

// Normalizations before products, a softmax between them, a classifier.
inline constexpr const char* kDecoder = R"(
name: decoder
model:
  layers:
    - Input: {shape: [32]}
    - Embedding: {input_dim: 40, output_dim: 64}
    - LayerNormalization: {name: norm1}
    - Dense: {name: keys, units: 96}
    - Softmax: {name: attention}
    - Dense: {name: values, units: 64}
    - RMSNormalization: {name: norm2}
    - Dense: {name: wide, units: 128, activation: gelu}
    - GroupNormalization: {name: groups, groups: 4}
    - UnitNormalization: {name: unit}
    - GlobalAveragePooling1D
    - Dense: {name: classes, units: 50, activation: softmax}
compile:
  loss: SparseCategoricalCrossentropy
  optimizer: adam
fit: {batch_size: 64}
)";

// Random tokens, 32 a sample, and classes.
inline Dataset sentences(int64_t samples) {
  HostTensor x(DType::kInt32, {samples, 32}), y(DType::kInt32, {samples});
  for (int64_t i = 0; i < x.size(); ++i)
    x.data<int32_t>()[i] = static_cast<int32_t>(splitmix_below(7, static_cast<uint64_t>(i), 40));
  for (int64_t i = 0; i < samples; ++i)
    y.data<int32_t>()[i] = static_cast<int32_t>(splitmix_below(8, static_cast<uint64_t>(i), 50));
  return dataset_of(std::move(x), std::move(y));
}

}  // namespace meshtrain::test
