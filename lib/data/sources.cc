#include "data/sources.h"

#include <algorithm>

namespace meshtrain {
namespace {

struct Source {
  const char* class_name;
  Dataset (*read)(const ConfigObject& source, const std::string& base_dir);
};

constexpr Source kSources[] = {
    {"npz", read_npz_source},
    {"npy", read_npy_source},
    {"idx", read_idx_source},
    {"csv", read_csv_source},
    {"text", read_text_source},
    {"tokens", read_tokens_source},
    {"random", make_random_source},
    {"digits", make_digits_source},
    {"image_folder", read_image_folder_source},
    {"mnist", read_named_set_source},
    {"fashion_mnist", read_named_set_source},
    {"cifar10", read_named_set_source},
    {"cifar100", read_named_set_source},
};

}  // namespace

Dataset read_source(const ConfigObject& source, const std::string& base_dir) {
  const auto* const found =
      std::find_if(std::begin(kSources), std::end(kSources),
                   [&](const Source& entry) { return source.class_name == entry.class_name; });
  MESHTRAIN_CHECK(found != std::end(kSources), "no data source {}", source.class_name);
  Dataset dataset = found->read(source, base_dir);
  dataset.loc = source.loc;
  return dataset;
}

}  // namespace meshtrain
