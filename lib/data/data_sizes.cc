#include "data/data_sizes.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "data/column_transform.h"
#include "data/learned.h"
#include "data/sources.h"
#include "data/tokenizer/tokenizer.h"

namespace meshtrain {
namespace {

// One more than the largest label, or the width of one-hot rows; nothing where these are no
// classes.
std::optional<int64_t> count_classes(const Rows& labels) {
  const Shape& shape = labels.shape();
  if (shape.size() == 2 && shape[1] > 1) {
    return shape[1];
  }
  if (labels.row_bytes() != dtype_size(labels.dtype())) {
    return std::nullopt;
  }
  double largest = -1;
  bool are_classes = true;
  labels.for_each_block([&](int64_t, const HostTensor& block) {
    for (int64_t i = 0; i < block.size(); ++i) {
      const double label = block.at(i);
      are_classes = are_classes && label >= 0 && label == std::floor(label) && label < 0x7fffffff;
      largest = std::max(largest, label);
    }
  });
  return are_classes && largest >= 0 ? std::optional(static_cast<int64_t>(largest) + 1)
                                     : std::nullopt;
}

// `learned`: null where nothing is.
void add_vocabularies(const ConfigObject& train, const LearnedData* learned, DataSizes& sizes) {
  if (learned != nullptr) {
    for (const auto& [column, texts] : learned->csv.categories) {
      sizes.vocabularies[column] = static_cast<int64_t>(texts.size());
    }
  }
  for (const ConfigObject* config : column_transforms(train)) {
    const std::string& column = config->string(config->args.contains("name") ? "name" : "column");
    const auto table = learned->csv.tables.find(column);
    const auto transform = make_column_transform(*config);
    transform->use(table == learned->csv.tables.end() ? ColumnTable{} : table->second);
    sizes.vocabularies[column] = transform->depth();
  }
  if (options_if<TextFolderOptions>(train)) {
    sizes.vocabularies[""] = sizes.vocabularies[kTextColumn];
  }
  if (const auto text = options_if<TextOptions>(train)) {
    sizes.vocabularies[""] = text->has_bytes() ? 256
                             : text->tokenizer().empty()
                                 ? static_cast<int64_t>(learned->characters.size())
                                 : Tokenizer(learned->tokenizer, text->tokenizer()).size();
  }
  if (const auto lines = options_if<LinesOptions>(train)) {
    sizes.vocabularies[""] = Tokenizer(learned->tokenizer, lines->folder()).size();
  }
  if (const auto tokens = options_if<TokensOptions>(train); tokens && tokens->vocabulary) {
    sizes.vocabularies[""] = *tokens->vocabulary;
  }
}

}  // namespace

DataSizes data_sizes_of(const ConfigObject& train, const LearnedData& learned) {
  DataSizes sizes;
  add_vocabularies(train, &learned, sizes);
  if (!learned.class_names.empty()) {
    sizes.classes[""] = static_cast<int64_t>(learned.class_names.size());
  }
  return sizes;
}

DataSizes read_data_sizes(const DataConfig& config, double held_out) {
  const ConfigObject& train = *config.train;
  const bool learns = !column_transforms(train).empty();
  Dataset data = learns ? load_dataset(train, config, nullptr, {.held_out = held_out})
                        : read_source(train, config.base_dir);
  if (learns && (config.split.validation > 0 || config.split.test > 0)) {
    const SplitRows parts = draw_split(data, config.split, config.seed);
    data = load_dataset(train, config, nullptr, {.trained_rows = &parts[0]});
  }
  DataSizes sizes;
  add_vocabularies(train, data.learned.get(), sizes);
  const bool is_only = data.targets.size() == 1;
  for (const Dataset::Array& target : data.targets) {
    const auto named = static_cast<int64_t>(data.class_names.size());
    if (const auto count =
            is_only && named > 0 ? std::optional(named) : count_classes(*target.rows)) {
      sizes.classes[target.name] = *count;
      if (is_only) {
        sizes.classes[""] = *count;
      }
    }
  }
  return sizes;
}

}  // namespace meshtrain
