// Sources of NumPy's files: npz, npy.
#include "data/archive_source.h"
#include "data/numpy_rows.h"

namespace meshtrain {

Dataset read_npz_source(const ArchiveOptions& source, const SourceContext& context) {
  return read_archives(source, context,
                       [](const NamedFile& file) { return NpzFile(file.path, file.loc); });
}

Dataset read_npy_source(const NpyOptions& source, const SourceContext& context) {
  Dataset dataset;
  Reads reads;
  const auto read = [&](const Wanted& wanted) {
    return reads.rows(wanted.loc, [&] {
      std::vector<FileArray> parts;
      for (const NamedFile& file : find_files(wanted.text, wanted.loc, context.base_dir)) {
        parts.push_back({file.path, npy_rows(file.path, file.loc)});
      }
      return join_files(std::move(parts), wanted.loc);
    });
  };
  for (const Wanted& wanted : wanted_arrays(source.x, "x")) {
    dataset.description += (dataset.inputs.empty() ? "npy " : ", ") + wanted.text;
    dataset.inputs.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_targets(source.x, source.y)) {
    dataset.targets.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_arrays(source.sample_weight, "sample_weight")) {
    dataset.sample_weight = read(wanted);
  }
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
