// Source idx: MNIST's files.
#include "data/idx.h"
#include "data/source_files.h"
#include "data/sources.h"

namespace meshtrain {
namespace {

// Keras' images have their channels last: (n, h, w) becomes (n, h, w, 1).
RowsPtr image_rows(const NamedFile& file) {
  RowsPtr rows = idx_rows(file.path, file.loc);
  const Shape& shape = rows->shape();
  if (shape.size() == 1) {
    throw ConfigError("E307", file.loc,
                      fmt::format("`{}` holds {} numbers, no images; are `images` and `labels` "
                                  "exchanged?",
                                  file.path, shape[0]));
  }
  return shape.size() == 3 ? reshape_rows(rows, {shape[1], shape[2], 1}) : rows;
}

RowsPtr label_rows(const NamedFile& file) {
  RowsPtr rows = idx_rows(file.path, file.loc);
  if (rows->shape().size() > 2) {
    throw ConfigError(
        "E307", file.loc,
        fmt::format("`{}` holds an array {}, no labels; are `images` and `labels` exchanged?",
                    file.path, shape_string(rows->shape())));
  }
  return rows;
}

}  // namespace

Dataset read_idx_source(const IdxOptions& source, const SourceContext& context) {
  Dataset dataset;
  dataset.description = fmt::format("idx {}", shown_paths(source.images));
  Reads reads;
  const auto read = [&](const ConfigValue& paths, RowsPtr (*rows_of)(const NamedFile&)) {
    return reads.rows(paths.loc, [&] {
      std::vector<FileArray> parts;
      for (const NamedFile& file : find_files(paths, context.base_dir)) {
        parts.push_back({file.path, rows_of(file)});
      }
      return join_files(std::move(parts), paths.loc);
    });
  };
  dataset.inputs.push_back({"x", read(source.images, image_rows)});
  if (!source.labels.is_null()) {
    dataset.targets.push_back({"y", read(source.labels, label_rows)});
  }
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
