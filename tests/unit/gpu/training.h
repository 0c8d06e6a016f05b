// Some steps of training on data made for it.
#pragma once

#include "base/hash.h"
#include "support/engine_case.h"
#include "support/splitmix.h"

namespace meshtrain::test {

// Images in which something is to be learned: each class has a picture of its own under noise.
inline Dataset pictures(int64_t samples) {
  HostTensor x(DType::kFloat32, {samples, 28, 28, 1});
  HostTensor y(DType::kInt32, {samples});
  for (int64_t s = 0; s < samples; ++s) {
    const int64_t label = s % 10;
    y.data<int32_t>()[s] = static_cast<int32_t>(label);
    for (int64_t j = 0; j < 784; ++j) {
      x.data<float>()[s * 784 + j] =
          splitmix_unit(301, static_cast<uint64_t>(label * 784 + j)) +
          0.3F * splitmix_signed(302, static_cast<uint64_t>(s * 784 + j));
    }
  }
  return dataset_of(std::move(x), std::move(y));
}

struct Training {
  std::vector<double> losses;
  uint64_t hash = 0;  // of all weights afterwards
  Logs logs;
};

inline Training train(const std::string& yaml, const std::vector<std::string>& overrides,
                      const Dataset& data, int64_t steps, bool keeps = false) {
  EngineOptions options;
  options.num_workers = 2;
  std::vector<std::string> words = overrides;
  words.push_back("matmul_precision=highest");  // a GPU has TF32, the CPU beside it does not
  const Config config = config_from(yaml, words);
  Engine engine(config, data_spec(data), options);
  const int64_t batch = config.fit.batch_size.value;
  if (keeps)
    engine.cache_on_device(data);
  Training out;
  std::vector<int64_t> rows;
  const int64_t most = engine.steps_at_once(batch);
  for (int64_t step = 0; step < steps;) {
    const int64_t count = std::min(most, std::min<int64_t>(steps - step, 3));
    engine.train_steps(count, [&] {
      rows = rows_of_step(step++, batch, data.num_samples);
      return Batch{&data, rows};
    });
    for (int64_t i = 0; i < count; ++i) {
      engine.select_step(count - 1 - i);
      out.losses.push_back(engine.last_loss());
    }
  }
  out.logs = engine.logs();
  for (const std::string& path : engine.weight_paths()) {
    const HostTensor weight = engine.read_variable(path);
    out.hash = hash_mix(out.hash, hash_bytes(weight.bytes(), weight.num_bytes()));
  }
  return out;
}

}  // namespace meshtrain::test
