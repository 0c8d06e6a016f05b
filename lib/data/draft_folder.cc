// Drafts of configs for folders: which kind they are of, and those for texts.
#include "data/draft_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "config/flow.h"
#include "data/draft_config.h"
#include "data/draft_model.h"
#include "data/folder_listing.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

ClassParts class_parts(const std::string& path) {
  const auto train = subfolder(path, {"train", "training"});
  ClassParts parts{path, subfolder(path, {"val", "valid", "validation"}),
                   subfolder(path, {"test", "testing"})};
  for (std::optional<std::string>* part : {&parts.validation, &parts.test}) {
    if (*part && !has_folders(**part)) {
      part->reset();  // files without classes are to be predicted
    }
  }
  if (!train || !(parts.validation || parts.test || has_folders(*train))) {
    return {path, std::nullopt, std::nullopt};
  }
  parts.train = *train;
  return parts;
}

// As many words as nine of ten texts have, of some of them.
int64_t words_of_most(const std::vector<std::string>& paths) {
  constexpr size_t kLooked = 300;
  constexpr int64_t kFewest = 10, kMost = 400;
  std::vector<int64_t> counts;
  const size_t looked = std::min(kLooked, paths.size());
  for (size_t i = 0; i < looked; ++i) {
    const std::string text = read_file(paths[i * paths.size() / looked], uint64_t{1} << 22);
    int64_t words = 0;
    bool was_space = true;
    for (const char c : text) {
      const bool is_space = std::isspace(static_cast<unsigned char>(c)) != 0;
      words += was_space && !is_space ? 1 : 0;
      was_space = is_space;
    }
    counts.push_back(words);
  }
  const auto most = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() * 9 / 10);
  std::nth_element(counts.begin(), most, counts.end());
  return std::clamp((*most + 9) / 10 * 10, kFewest, kMost);
}

// The classes without those that IMDB's reviews call `unsup`, which have no label.
std::vector<std::string> labelled_classes(std::vector<std::string> classes) {
  constexpr size_t kFewest = 2;
  if (classes.size() > kFewest) {
    std::erase(classes, "unsup");
  }
  return classes;
}

}  // namespace

std::optional<std::string> subfolder(const std::string& path,
                                     std::initializer_list<const char*> names) {
  std::error_code error;
  for (const char* const name : names) {
    if (fs::is_directory(path + "/" + name, error)) {
      return path + "/" + name;
    }
  }
  return std::nullopt;
}

std::string draft_parts(const char* source, const ClassParts& parts,
                        const std::vector<int32_t>& labels) {
  const auto part = [&](const char* name, const std::string& folder) {
    return fmt::format("  {}: {{source: {}, directory: {}}}\n", name, source, yaml_text(folder));
  };
  HostTensor ids(DType::kInt32, {static_cast<int64_t>(labels.size())});
  std::copy(labels.begin(), labels.end(), ids.data<int32_t>());
  return (parts.validation ? part("validation", *parts.validation)
                           : draft_split(std::ssize(labels),
                                         largest_class_of(make_rows(std::move(ids))).value_or(0))) +
         (parts.test ? part("test", *parts.test) : "");
}

std::string draft_class_texts(const std::string& path, const ClassParts& parts) {
  const auto list = [&](const std::optional<std::vector<std::string>>& classes) {
    return list_files(ListedFiles::kTexts, parts.train, true, classes);
  };
  FolderListing listing = list(std::nullopt);
  const std::vector<std::string> classes = labelled_classes(listing.class_names);
  const bool leaves_out = classes.size() < listing.class_names.size();
  listing = leaves_out ? list(classes) : std::move(listing);
  const int64_t words = words_of_most(listing.paths);
  std::string out =
      draft_head(path, fmt::format("{} texts of {} classes",
                                   format_thousands(std::ssize(listing.paths)), classes.size()));
  out += fmt::format("\ndata:\n  train:\n    source: text_folder\n    directory: {}\n",
                     yaml_text(parts.train));
  out += leaves_out ? fmt::format("    class_names: [{}]  # without unsup\n", join(classes, ", "))
                    : "";
  out += fmt::format(
      "    preprocessing:\n      - TextVectorization: {{column: text, max_tokens: 10000, "
      "output_sequence_length: {}}}  # others are cut\n",
      words);
  const std::string split = draft_parts("text_folder", parts, listing.labels);
  out += split;
  const OutputDraft head = output_draft(Shape{}, true, {words});
  out += fmt::format(
      "\nmodel:\n  layers:\n    - Input: {{shape: [{}], dtype: int32}}\n"
      "    - Embedding: {{input_dim: =vocabulary_size(), output_dim: 32, mask_zero: true}}\n"
      "    - GlobalAveragePooling1D\n    - Dropout: 0.2\n{}"
      "\ncompile:\n  optimizer: {{Adam: {{learning_rate: 0.003}}}}\n{}",
      words, head.layers, head.compile);
  return out + draft_fit(std::ssize(listing.paths), 10, !split.empty());
}

std::string draft_folder_config(const std::string& path) {
  if (auto masked = draft_masks(path)) {
    return *masked;
  }
  const ClassParts parts = class_parts(path);
  const bool are_texts =
      !has_files(ListedFiles::kImages, parts.train) && has_files(ListedFiles::kTexts, parts.train);
  return are_texts ? draft_class_texts(path, parts) : draft_class_images(path, parts);
}

}  // namespace meshtrain
