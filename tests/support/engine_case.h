// Engines from YAML text and data in memory, for tests of whole training steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/load.h"
#include "engine/engine.h"
#include "support/temp_folder.h"

namespace meshtrain::test {

inline Config config_from(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const TempFolder folder;
  LoadOptions options;
  options.files = {folder.write("case.yaml", yaml)};
  options.overrides = overrides;
  options.require_data = false;
  return load_config(options);
}

inline Dataset dataset_of(HostTensor x, HostTensor y) {
  Dataset dataset;
  dataset.description = "test data";
  dataset.num_samples = x.shape()[0];
  dataset.inputs.push_back({"x", make_rows(std::move(x))});
  dataset.targets.push_back({"y", make_rows(std::move(y))});
  return dataset;
}

// All rows of an array of a dataset.
inline HostTensor whole(const RowsPtr& rows) {
  return rows->read_range(0, rows->size());
}

inline std::vector<int64_t> rows_of_step(int64_t step, int64_t batch, int64_t samples) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < batch; ++i) {
    rows.push_back((step * batch + i) % samples);
  }
  return rows;
}

}  // namespace meshtrain::test
