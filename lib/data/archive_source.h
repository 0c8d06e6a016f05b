// What sources whose files hold arrays by name have in common: npz, hdf5.
#pragma once

#include <algorithm>

#include "data/file_rows.h"
#include "data/source_files.h"
#include "data/sources.h"

namespace meshtrain {

// The usual name of an array of weights, that of Keras' argument.
constexpr const char* kWeightsName = "sample_weight";

// True where no argument names such an array, and none says that it is not to be used.
inline bool leaves_weights_out(const ConfigObject& source) {
  const auto names_it = [](const ConfigValue& value) {
    const std::vector<Wanted> wanted = wanted_arrays(value, "");
    return std::any_of(wanted.begin(), wanted.end(),
                       [](const Wanted& each) { return each.text == kWeightsName; });
  };
  return !source.has(kWeightsName) && source.arg(kWeightsName).is_default &&
         !names_it(source.arg("x")) && !names_it(source.arg("y"));
}

// `open(NamedFile)` gives an archive with path(), has(name) and rows(name). Of several files the
// arrays of one name are one after the other.
template <class Open>
Dataset read_archives(const ArchiveOptions& source, const SourceContext& context, Open&& open) {
  Dataset dataset;
  dataset.description = fmt::format("{} {}", context.source.class_name, shown_paths(source.path));
  Reads reads;
  std::vector<decltype(open(NamedFile()))> archives;
  std::vector<NamedFile> files;
  reads.run(source.path.loc, [&] { files = find_files(source.path, context.base_dir); });
  for (const NamedFile& file : files) {
    reads.run(file.loc, [&] { archives.push_back(open(file)); });
  }
  reads.finish();
  const auto read = [&](const Wanted& wanted) {
    return reads.rows(wanted.loc, [&] {
      std::vector<FileArray> parts;
      for (const auto& archive : archives) {
        parts.push_back({archive.path(), archive.rows(wanted.text)});
      }
      return join_files(std::move(parts), wanted.loc);
    });
  };
  for (const Wanted& wanted : wanted_arrays(source.x, "x")) {
    dataset.inputs.push_back({wanted.array, read(wanted)});
  }
  for (const Wanted& wanted : wanted_targets(source.x, source.y)) {
    // Data to predict from need no labels; but a name that the user wrote must be there.
    if (!wanted.is_default || archives[0].has(wanted.text)) {
      dataset.targets.push_back({wanted.array, read(wanted)});
    }
  }
  for (const Wanted& wanted : wanted_arrays(source.sample_weight, "sample_weight")) {
    dataset.sample_weight = read(wanted);
  }
  if (leaves_weights_out(context.source) && archives[0].has(kWeightsName)) {
    dataset.unused_weights = archives[0].path();
  }
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
