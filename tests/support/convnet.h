// The convnet of Keras' guide to distributed training with JAX, as tests/reference/parity.py builds
// it but for the guide's Dropout, which `model.layers.drop.rate=0` takes out again.
#pragma once

namespace meshtrain::test {

inline constexpr const char* kConvnet = R"(
name: convnet
model:
  layers:
    - Input: {shape: [28, 28, 1]}
    - Rescaling: {scale: =1/255}
    - Conv2D: {filters: 12, kernel_size: 3, padding: same, use_bias: false}
    - BatchNormalization: {scale: false}
    - ReLU
    - Conv2D: {filters: 24, kernel_size: 6, strides: 2, padding: same, use_bias: false}
    - BatchNormalization: {scale: false}
    - ReLU
    - Conv2D: {name: large_k, filters: 32, kernel_size: 6, strides: 2, padding: same, use_bias: false}
    - BatchNormalization: {scale: false}
    - ReLU
    - GlobalAveragePooling2D
    - Dense: {units: 256, activation: relu}
    - Dropout: {name: drop, rate: 0.5}
    - Dense: {units: 10}
compile:
  optimizer: {Adam: {learning_rate: 1e-3}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
fit: {batch_size: 64}
)";

// Its channels split over the second axis of a mesh.
inline constexpr const char* kSplitChannels = R"(
distribution:
  type: ModelParallel
  device_mesh: {shape: [2, 4], axis_names: [data, model]}
  layout_map:
    (conv2d.*|large_k)/kernel: [null, null, null, model]
    dense/kernel: [null, model]
    dense/bias: [model]
    dense_1/kernel: [model, null]
)";

}  // namespace meshtrain::test
