#include "data/dataset_spec.h"

#include "config/source_like.h"
#include "data/image_listing.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "data/transforms.h"
#include "tensor/read_error.h"

namespace meshtrain {

std::optional<Dataset> dataset_spec(const ConfigObject& source, const DataConfig& data) {
  if (source.class_name != "random" && source.class_name != "digits") {
    return std::nullopt;
  }
  ConfigObject empty = source;
  empty.args.at("samples").data = int64_t{0};
  if (source.class_name == "digits") {
    empty.args.at("split").data = std::string("train");  // of parts there would be none
  }
  Dataset dataset = read_source(empty, data.base_dir);
  transform_dataset(dataset, data);
  return dataset;
}

void check_source_files(const ConfigObject& source, const DataConfig& data) {
  const ClassSpec& spec = *find_class(Category::kSource, source.class_name);
  Reads reads;
  for (const Spec& arg : spec.args) {
    if (!names_files(spec, arg)) {
      continue;
    }
    for (const Wanted& wanted : wanted_arrays(source, arg.name)) {
      reads.run(wanted.loc, [&] {
        if (source.class_name == "image_folder") {
          const bool has_labels = source.has("label_mode") && source.string("label_mode") != "none";
          check_folder(resolve(data.base_dir, wanted.text), has_labels, wanted.loc);
          return;
        }
        for (const NamedFile& file : find_files(wanted.text, wanted.loc, data.base_dir)) {
          open_input(file.path, "E300", "E300");
        }
      });
    }
  }
  reads.finish();
}

}  // namespace meshtrain
