// The config that the tests run: the guide's MLP in small, on a 2 x 2 mesh of virtual devices.
#pragma once

#include "command.h"

namespace meshtrain {

inline constexpr const char* kExample = R"(name: small
seed: 7

distribution:
  type: ModelParallel
  batch_dim_name: data
  device_mesh:
    shape: [2, 2]
    axis_names: [data, model]
  layout_map:
    d1/kernel: [null, model]
    d2/output: [data, null]

data:
  train: {source: random, samples: 40, shape: [6], classes: 3, seed: 1}
  test: {source: random, samples: 20, shape: [6], classes: 3, seed: 2}

model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 8, use_bias: false, activation: relu}
    - Dropout: 0.4
    - Dense: {name: d2, units: 3}

compile:
  optimizer: {SGD: {learning_rate: 0.1}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]

fit: {batch_size: 16, epochs: 2}
)";

// A folder with the example as small.yaml.
class ExampleFolder : public TemporaryFolder {
 public:
  ExampleFolder() { write("small.yaml", kExample); }
};

}  // namespace meshtrain
