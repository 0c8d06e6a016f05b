// The source hdf5.
#include "data/file_rows.h"
#include "data/hdf5_rows.h"
#include "data/sources.h"

namespace meshtrain {
Dataset read_hdf5_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  dataset.description = fmt::format("hdf5 {}", shown_paths(source.arg("path")));
  Reads reads;
  std::vector<Hdf5File> files;
  std::vector<NamedFile> named;
  reads.run(source.loc_of("path"), [&] { named = find_files(source.arg("path"), base_dir); });
  for (const NamedFile& file : named) {
    reads.run(file.loc, [&] { files.emplace_back(file); });
  }
  reads.finish();
  const auto read = [&](const Wanted& wanted) {
    return reads.rows(wanted.loc, [&] {
      std::vector<FileArray> parts;
      for (const Hdf5File& file : files) {
        parts.push_back({file.path(), file.rows(wanted.text)});
      }
      return join_files(std::move(parts), wanted.loc);
    });
  };
  for (const Wanted& wanted : wanted_arrays(source, "x")) {
    dataset.inputs.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source, "y")) {
    // Data to predict from need no labels; but a name that the user wrote must be there.
    if (!wanted.is_default || files[0].has(wanted.text)) {
      dataset.targets.push_back({wanted.array, read(wanted)});
    }
  }
  for (const Wanted& wanted : wanted_arrays(source, "sample_weight")) {
    dataset.sample_weight = cast_rows(read(wanted), DType::kFloat32);
  }
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
