#include "data/sources.h"

#include <algorithm>
#include <map>

#include "config/catalogue.h"
#include "config/split.h"
#include "data/splits.h"

namespace meshtrain {
namespace {

struct Source {
  const char* class_name;
  Dataset (*read)(const ConfigObject& source, const std::string& base_dir);
};

constexpr Source kSources[] = {
    {"npz", read_npz_source},           {"npy", read_npy_source},
    {"idx", read_idx_source},           {"csv", read_csv_source},
    {"hdf5", read_hdf5_source},         {"text", read_text_source},
    {"tokens", read_tokens_source},     {"random", make_random_source},
    {"digits", make_digits_source},     {"image_folder", read_image_folder_source},
    {"mnist", read_named_set_source},   {"fashion_mnist", read_named_set_source},
    {"cifar10", read_named_set_source}, {"cifar100", read_named_set_source},
};

Dataset read_whole(const ConfigObject& source, const std::string& base_dir) {
  const auto* const found =
      std::find_if(std::begin(kSources), std::end(kSources),
                   [&](const Source& entry) { return source.class_name == entry.class_name; });
  MESHTRAIN_CHECK(found != std::end(kSources), "no data source {}", source.class_name);
  Dataset dataset = found->read(source, base_dir);
  dataset.loc = source.loc;
  return dataset;
}

}  // namespace

Dataset read_source(const ConfigObject& source, const std::string& base_dir) {
  if (source.args.count("split") == 0) {
    return read_whole(source, base_dir);
  }
  const Spec* const spec = find_class(Category::kSource, source.class_name)->find("split");
  const SplitString split = parse_split(source.string("split"), spec->allowed);
  MESHTRAIN_CHECK(split.problem.empty(), "{}", split.problem);
  std::map<std::string, Dataset> wholes;  // by split
  std::vector<Dataset> parts;
  for (const SplitPart& part : split.parts) {
    if (wholes.count(part.split) == 0) {
      ConfigObject bare = source;
      bare.args.at("split").data = part.split;
      wholes[part.split] = read_whole(bare, base_dir);
    }
    parts.push_back(wholes.at(part.split));
    if (!part.slice.empty()) {
      const auto [begin, end] =
          parse_slice(part.slice, parts.back().inputs.at(0).rows->size(), source.loc_of("split"));
      parts.back() = cut_dataset(std::move(parts.back()), begin, end);
    }
  }
  return join_datasets(std::move(parts));
}

}  // namespace meshtrain
