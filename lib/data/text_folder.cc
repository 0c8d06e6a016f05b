// Source text_folder: Keras' text_dataset_from_directory. The texts are a column of a table
// (csv_table.h), whose transforms make numbers of them.
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "config/source_like.h"
#include "data/csv_table.h"
#include "data/folder_listing.h"
#include "data/learned.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "data/table_dataset.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMostText = kMaxCsvRecord / 2 - 64;  // bytes: a record with each quote doubled

// A table of one row, as CSV.
std::string table_of_text(const std::string& path) {
  const std::string text = read_file(path, kMostText);
  std::string out = std::string(kTextColumn) + "\n\"";
  for (const char c : std::string_view(text).substr(starts_with(text, "\xEF\xBB\xBF") ? 3 : 0)) {
    out.append(c == '"' ? 2 : 1, c);
  }
  return out + "\"\n";
}

CsvTable read_texts(const TextFolderOptions& source, const FolderListing& listing,
                    const SourceContext& context, const CsvLearned* learned) {
  CsvSettings settings;
  settings.header = CsvSettings::Header::kYes;
  settings.missing_texts = {};
  settings.base_dir = context.base_dir;
  for (const ConfigValue& transform : source.preprocessing.list()) {
    settings.preprocessing.push_back(&transform.object());
  }
  CsvTableReader reader(settings, learned);
  for (const std::string& path : listing.paths) {
    const std::string table = table_of_text(path);
    std::string_view rest = table;
    CsvRecords records(path, settings.separator, [&](char* to, size_t count) {
      count = rest.copy(to, count);
      rest.remove_prefix(count);
      return count;
    });
    reader.read(records);
  }
  return reader.finish(learned_rows(source, reader.num_rows(), context.limits));
}

FolderListing list_texts(const TextFolderOptions& source, const SourceContext& context) {
  const LabelMode mode = source.labels();
  FolderListing listing = list_files(
      ListedFiles::kTexts, resolve(context.base_dir, source.directory), mode != LabelMode::kNone,
      source.class_names.value, source.follow_links, source.directory.loc, source.class_names.loc);
  // When classes are known, load_run_data() compares all of them and names the difference.
  if (mode != LabelMode::kNone && context.known == nullptr) {
    check_binary(listing, mode, source.label_mode.loc, source.directory);
  }
  shuffle_and_split(listing, source.seed, source.validation_split, source.subset.value);
  return listing;
}

// What the training data teach; `object` is their source.
CsvLearned learn_from(const ConfigObject& object, const SourceContext& context) {
  const auto source = read_options<TextFolderOptions>(object);
  return read_texts(source, list_texts(source, context), context, nullptr).learned;
}

std::string description_of(const TextFolderOptions& source, const FolderListing& listing) {
  std::vector<std::string> details;
  if (const size_t classes = listing.class_names.size(); classes > 0) {
    details.push_back(fmt::format("{} class{}", classes, classes == 1 ? "" : "es"));
  }
  if (listing.ignored > 0) {
    details.push_back(
        fmt::format("{} other file{} ignored", listing.ignored, listing.ignored == 1 ? "" : "s"));
  }
  if (const auto& subset = source.subset.value) {
    details.emplace_back(word_of(*subset));
  }
  return fmt::format("text_folder {}{}", source.directory.value,
                     details.empty() ? "" : ": " + join(details, ", "));
}

}  // namespace

Dataset read_text_folder_source(const TextFolderOptions& source, const SourceContext& context) {
  Dataset dataset;
  FolderListing listing = list_texts(source, context);
  CsvLearned from_training;
  const CsvLearned* like = context.known != nullptr ? &context.known->csv : nullptr;
  Reads reads;
  if (const ConfigObject* const train = training_source(context.source);
      like == nullptr && train != nullptr) {
    reads.run(train->loc, [&] { from_training = learn_from(*train, context); });
    reads.finish();
    like = &from_training;
  }
  CsvTable table;
  reads.run(source.directory.loc, [&] { table = read_texts(source, listing, context, like); });
  reads.finish();
  dataset.description = description_of(source, listing);
  add_inputs(table, dataset);
  if (source.labels() != LabelMode::kNone) {
    dataset.targets.push_back({"y", make_rows(listing.label_array(source.labels()))});
    dataset.class_names = std::move(listing.class_names);
  }
  if (context.known == nullptr) {
    dataset.learned = std::make_shared<LearnedData>(
        LearnedData{context.source.class_name, std::move(table.learned), {}, dataset.class_names});
  }
  dataset.files = std::make_shared<std::vector<std::string>>(std::move(listing.paths));
  return dataset;
}

}  // namespace meshtrain
