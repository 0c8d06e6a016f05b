// Sources of NumPy's files: npz, npy.
#include <optional>

#include "data/source_files.h"
#include "data/sources.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

namespace meshtrain {

Dataset read_npz_source(const ConfigObject& source, const std::string& base_dir) {
  const std::string& path = source.string("path");
  Dataset dataset;
  dataset.description = fmt::format("npz {}", path);
  Reads reads;
  std::optional<NpzReader> reader;
  reads.run(source.loc_of("path"), [&] { reader.emplace(resolve(base_dir, path)); });
  reads.finish();
  const auto read = [&](const Wanted& wanted) {
    return reads.array(wanted.loc, [&] { return reader->read(wanted.text); });
  };
  for (const Wanted& wanted : wanted_arrays(source, "x")) {
    dataset.inputs.push_back({wanted.array, make_rows(read(wanted))});
  }
  for (const Wanted& wanted : wanted_arrays(source, "y")) {
    // Data to predict from need no labels; but a name that the user wrote must be there.
    if (!wanted.is_default || reader->has(wanted.text)) {
      dataset.targets.push_back({wanted.array, make_rows(read(wanted))});
    }
  }
  for (const Wanted& wanted : wanted_arrays(source, "sample_weight")) {
    dataset.sample_weight = make_rows(as_weights(read(wanted)));
  }
  reads.finish();
  return dataset;
}

Dataset read_npy_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  Reads reads;
  const auto read = [&](const Wanted& wanted) {
    return reads.array(wanted.loc, [&] { return read_npy(resolve(base_dir, wanted.text)); });
  };
  for (const Wanted& wanted : wanted_arrays(source, "x")) {
    dataset.description += (dataset.inputs.empty() ? "npy " : ", ") + wanted.text;
    dataset.inputs.push_back({wanted.array, make_rows(read(wanted))});
  }
  for (const Wanted& wanted : wanted_arrays(source, "y")) {
    dataset.targets.push_back({wanted.array, make_rows(read(wanted))});
  }
  for (const Wanted& wanted : wanted_arrays(source, "sample_weight")) {
    dataset.sample_weight = make_rows(as_weights(read(wanted)));
  }
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
