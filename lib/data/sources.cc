#include "data/sources.h"

#include <algorithm>
#include <map>

#include "config/catalogue.h"
#include "config/split.h"
#include "data/learned.h"
#include "data/splits.h"

namespace meshtrain {
namespace {

struct Source {
  const char* class_name;
  Dataset (*read)(const ConfigObject& source, const std::string& base_dir,
                  const LearnedData* known);
};

// Adapts the reader of a source that learns nothing.
template <Dataset (*read)(const ConfigObject& source, const std::string& base_dir)>
Dataset read_as_is(const ConfigObject& source, const std::string& base_dir,
                   const LearnedData* /*known*/) {
  return read(source, base_dir);
}

constexpr Source kSources[] = {
    {"npz", read_as_is<read_npz_source>},
    {"npy", read_as_is<read_npy_source>},
    {"idx", read_as_is<read_idx_source>},
    {"csv", read_csv_source},
    {"hdf5", read_as_is<read_hdf5_source>},
    {"text", read_text_source},
    {"tokens", read_as_is<read_tokens_source>},
    {"random", read_as_is<make_random_source>},
    {"digits", read_as_is<make_digits_source>},
    {"image_folder", read_image_folder_source},
    {"mnist", read_as_is<read_named_set_source>},
    {"fashion_mnist", read_as_is<read_named_set_source>},
    {"cifar10", read_as_is<read_named_set_source>},
    {"cifar100", read_as_is<read_named_set_source>},
};

Dataset read_whole(const ConfigObject& source, const std::string& base_dir,
                   const LearnedPtr& known) {
  const auto* const found =
      std::find_if(std::begin(kSources), std::end(kSources),
                   [&](const Source& entry) { return source.class_name == entry.class_name; });
  MESHTRAIN_CHECK(found != std::end(kSources), "no data source {}", source.class_name);
  const LearnedData* const like = learned_of(known, source);
  Dataset dataset = found->read(source, base_dir, like);
  dataset.learned = like ? known : dataset.learned;
  dataset.loc = source.loc;
  return dataset;
}

}  // namespace

Dataset read_source(const ConfigObject& source, const std::string& base_dir,
                    const LearnedPtr& known) {
  if (source.args.count("split") == 0) {
    return read_whole(source, base_dir, known);
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
      wholes[part.split] = read_whole(bare, base_dir, known);
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
