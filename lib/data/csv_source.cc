// The source csv.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "config/scalars.h"
#include "config/source_like.h"
#include "data/csv_columns.h"
#include "data/csv_table.h"
#include "data/guess_source.h"
#include "data/gunzip.h"
#include "data/learned.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "data/table_dataset.h"
#include "data/table_profile.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxShownClasses = 10;
constexpr int64_t kFirstRows = 1000;  // of each file, where only the beginning is read

// A text is one column, (rows,); a list is several, (rows, columns).
CsvArray array_of(const std::string& name, const ConfigValue& value) {
  CsvArray array{name, {}, !value.is_list()};
  if (array.is_vector) {
    array.columns.push_back({value.string(), value.loc});
  } else {
    for (const ConfigValue& column : value.list()) {
      array.columns.push_back({column.string(), column.loc});
    }
  }
  return array;
}

// One array, or by name those of a model with several inputs or outputs.
std::vector<CsvArray> arrays_of(const ConfigValue& value, const char* name) {
  std::vector<CsvArray> arrays;
  if (value.is_dict()) {
    for (const auto& [key, columns] : value.dict()) {
      arrays.push_back(array_of(key, columns));
    }
  } else if (!value.is_null()) {
    arrays.push_back(array_of(name, value));
  }
  return arrays;
}

CsvSettings settings_of(const CsvOptions& source) {
  CsvSettings settings;
  settings.separator = source.separator == "tab" ? '\t' : source.separator[0];
  settings.decimal = source.decimal->front();
  settings.header = source.header;
  settings.inputs = arrays_of(source.features, "x");
  for (CsvArray& array : settings.inputs) {  // features of one column are still features
    array.is_vector = array.is_vector && source.features.is_dict();
  }
  settings.targets = arrays_of(source.label, "y");
  if (!source.sample_weight->empty()) {
    settings.weight = {source.sample_weight, source.sample_weight.loc};
  }
  if (!source.group->empty()) {
    settings.group = {source.group, source.group.loc};
  }
  if (!source.categorical.is_null()) {
    settings.categorical = array_of("", source.categorical).columns;
  }
  for (const auto& [column, texts] : source.vocabulary.dict()) {
    settings.vocabularies.push_back({{column, texts.loc}, texts.strings()});
  }
  if (!source.one_hot.is_null()) {
    settings.one_hot = array_of("", source.one_hot).columns;
  }
  settings.mask_token = source.mask_token;
  settings.oov_token = source.oov_token;
  for (const auto& [column, parts] : source.dates.dict()) {
    std::vector<DatePart> numbers;
    for (const std::string& part : parts.strings()) {
      numbers.push_back(find_word_of<DatePart>(part).value());
    }
    settings.dates.push_back({{column, parts.loc}, std::move(numbers)});
  }
  settings.date_format = source.date_format;
  if (!source.preprocessing.is_null()) {
    for (const ConfigValue& transform : source.preprocessing.list()) {
      settings.preprocessing.push_back(&transform.object());
    }
  }
  settings.dtype = parse_dtype(source.dtype).value();
  const std::string& missing = source.missing.value;
  if (missing == "mean") {
    settings.missing = CsvSettings::Missing::kMean;
  } else if (missing == "previous") {
    settings.missing = CsvSettings::Missing::kPrevious;
  } else if (missing != "error") {
    settings.missing = CsvSettings::Missing::kValue;
    settings.missing_value = try_number(missing).value();
  }
  if (const auto& texts = source.missing_texts) {
    settings.missing_texts = {texts->begin(), texts->end()};
  }
  return settings;
}

// `max_rows`: CsvSettings.
CsvTable read_files(const CsvOptions& source, const std::string& base_dir,
                    const CsvLearned* learned, const ReadLimits& limits = {},
                    int64_t max_rows = 0) {
  CsvSettings settings = settings_of(source);
  settings.base_dir = base_dir;
  settings.max_rows = max_rows;
  settings.model_inputs = limits.inputs;
  CsvTableReader reader(settings, learned);
  bool is_first = true;
  for (const auto& [path, loc] : find_files(source.path, base_dir)) {
    const InputFile file = open_input(path, "E300", "E300");
    char beginning[4] = {};
    file.read_at(0, reinterpret_cast<std::byte*>(beginning),
                 std::min<uint64_t>(file.size(), sizeof(beginning)));
    refuse_foreign_table({beginning, sizeof(beginning)}, path);
    if (std::exchange(is_first, false) && learned == nullptr &&
        settings.header == CsvHeaderMode::kAuto &&
        has_numbers_in_header(unpacked_beginning(file, size_t{1} << 16, "E310"),
                              settings.separator)) {
      settings.header = CsvHeaderMode::kYes;
    }
    GunzipBytes bytes(file, "E310");
    CsvRecords records(path, settings.separator, [&](char* to, size_t count) {
      return bytes.read(reinterpret_cast<std::byte*>(to), count);
    });
    reader.read(records);
  }
  return reader.finish(learned_rows(source, reader.num_rows(), limits));
}

// "3 classes of species: setosa, versicolor, virginica": which class is which id.
std::string shown_classes(const std::string& column, const std::vector<std::string>& classes) {
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(classes.size(), kMaxShownClasses); ++i) {
    shown.push_back(shown_text(classes[i]));
  }
  return fmt::format(", {} classes of {}: {}{}", classes.size(), column, join(shown, ", "),
                     shown.size() < classes.size() ? ", ..." : "");
}

CsvTable read_files_at(const CsvOptions& source, const SourceContext& context,
                       const CsvLearned* learned, int64_t max_rows) {
  Reads reads;
  CsvTable table;
  reads.run(source.path.loc, [&] {
    table = read_files(source, context.base_dir, learned, context.limits, max_rows);
  });
  reads.finish();
  return table;
}

// Takes the arrays out of the table.
Dataset dataset_of(const CsvOptions& source, CsvTable& table) {
  Dataset dataset;
  dataset.description = fmt::format("csv {}", shown_paths(source.path));
  for (const std::string& label : table.labels) {
    const auto classes = table.learned.categories.find(label);
    if (classes != table.learned.categories.end()) {
      dataset.description += shown_classes(label, classes->second);
      dataset.class_names = table.labels.size() == 1 ? classes->second : dataset.class_names;
    }
  }
  add_inputs(table, dataset);
  for (NamedTensor& target : table.targets) {
    dataset.targets.push_back({target.name, take_rows(table, target), table.columns[target.name]});
  }
  if (!table.groups.empty()) {
    dataset.groups = std::make_shared<SampleGroups>(
        SampleGroups{source.group.value, std::move(table.group_names), std::move(table.groups)});
  }
  if (table.weight) {
    dataset.sample_weight = make_rows(std::move(*table.weight));
  }
  return dataset;
}

}  // namespace

Dataset read_csv_source(const CsvOptions& source, const SourceContext& context) {
  if (context.limits.beginning && source.one_hot.is_null() && source.preprocessing.is_null()) {
    CsvTable table = read_files_at(source, context, nullptr, kFirstRows);
    Dataset dataset = dataset_of(source, table);
    dataset.class_names.clear();
    return dataset;
  }
  CsvLearned learned;
  const CsvLearned* like = context.known ? &context.known->csv : nullptr;
  const ConfigObject* const train = training_source(context.source);
  Reads reads;
  if (like == nullptr && train != nullptr) {
    const auto options = read_options<CsvOptions>(*train);
    reads.run(options.path.loc, [&] {
      learned =
          read_files(options, context.base_dir, nullptr, {.inputs = context.limits.inputs}).learned;
    });
    reads.finish();
    like = &learned;
  }
  CsvTable table = read_files_at(source, context, like, 0);
  Dataset dataset = dataset_of(source, table);
  if (context.known == nullptr) {
    dataset.learned = std::make_shared<LearnedData>(LearnedData{
        context.source.class_name, like ? learned : table.learned, {}, dataset.class_names});
  }
  return dataset;
}

}  // namespace meshtrain
