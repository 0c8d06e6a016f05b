// Sources of NumPy's files: npz, npy.
#include "data/numpy_rows.h"
#include "data/source_files.h"
#include "data/sources.h"

namespace meshtrain {

Dataset read_npz_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  dataset.description = fmt::format("npz {}", shown_paths(source.arg("path")));
  Reads reads;
  std::vector<NpzFile> archives;
  std::vector<NamedFile> files;
  reads.run(source.loc_of("path"), [&] { files = find_files(source.arg("path"), base_dir); });
  for (const NamedFile& file : files) {
    reads.run(file.loc, [&] { archives.emplace_back(file.path, file.loc); });
  }
  reads.finish();
  const auto read = [&](const Wanted& wanted) {
    return reads.rows(wanted.loc, [&] {
      std::vector<FileArray> parts;
      for (const NpzFile& archive : archives) {
        parts.push_back({archive.path(), archive.rows(wanted.text)});
      }
      return join_files(std::move(parts), wanted.loc);
    });
  };
  for (const Wanted& wanted : wanted_arrays(source, "x")) {
    dataset.inputs.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source, "y")) {
    // Data to predict from need no labels; but a name that the user wrote must be there.
    if (!wanted.is_default || archives[0].has(wanted.text)) {
      dataset.targets.push_back({wanted.array, read(wanted)});
    }
  }
  for (const Wanted& wanted : wanted_arrays(source, "sample_weight")) {
    dataset.sample_weight = cast_rows(read(wanted), DType::kFloat32);
  }
  reads.finish();
  return dataset;
}

Dataset read_npy_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  Reads reads;
  const auto read = [&](const Wanted& wanted) {
    return reads.rows(wanted.loc, [&] {
      std::vector<FileArray> parts;
      for (const NamedFile& file : find_files(wanted.text, wanted.loc, base_dir)) {
        parts.push_back({file.path, npy_rows(file.path, file.loc)});
      }
      return join_files(std::move(parts), wanted.loc);
    });
  };
  for (const Wanted& wanted : wanted_arrays(source, "x")) {
    dataset.description += (dataset.inputs.empty() ? "npy " : ", ") + wanted.text;
    dataset.inputs.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source, "y")) {
    dataset.targets.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source, "sample_weight")) {
    dataset.sample_weight = cast_rows(read(wanted), DType::kFloat32);
  }
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
