// Source image_folder: Keras' image_dataset_from_directory. Images are decoded when they are read.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "base/system_calls.h"
#include "base/text.h"
#include "data/folder_listing.h"
#include "data/image_masks.h"
#include "data/learned.h"
#include "data/source_files.h"
#include "data/sources.h"

namespace meshtrain {
namespace {

constexpr const char* kSkipHelp = "`on_bad_record: skip` leaves such images out";

// Decodes an image, and its mask where it has one, only to see whether that is possible.
void try_image(const FolderListing& listing, size_t i, const ImageFolderOptions& source) {
  read_image(listing.paths[i], channels_of(source.color_mode));
  if (listing.masks.empty()) {
    return;
  }
  if (listing.masks[i].empty()) {
    throw ConfigError("E300", {}, fmt::format("`{}` has no mask", listing.paths[i]));
  }
  const ImageSize size = size_of(source);
  std::vector<int32_t> pixels(static_cast<size_t>(size.height * size.width));
  read_mask(listing.masks[i], size, classes_of(source), pixels.data());
}

// Returns the problem of each image, or "". Decodes all images on all cores.
std::vector<std::string> find_bad(const FolderListing& listing, const ImageFolderOptions& source) {
  const std::vector<std::string>& paths = listing.paths;
  std::vector<std::string> problems(paths.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < paths.size(); i = next++) {
      try {
        try_image(listing, i, source);
      } catch (const ConfigError& error) {
        problems[i] = error.diagnostics().list().front().message;
      } catch (const std::exception& error) {
        problems[i] = fmt::format("`{}`: {}", paths[i], error.what());
      }
    }
  };
  std::vector<std::jthread> threads;
  const size_t count = std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), 64);
  for (size_t i = 1; i < std::min(count, paths.size()); ++i) {
    threads.push_back(quiet_thread(work));
  }
  work();
  threads.clear();  // waits for them
  return problems;
}

// Takes the images out that cannot be decoded; returns their problems. Which ones is decided here,
// once, so that the order of an epoch is a function of (seed, epoch) alone.
std::vector<std::string> drop_bad(FolderListing& listing, const ImageFolderOptions& source) {
  std::vector<std::string> problems = find_bad(listing, source);
  const int64_t bad = std::count_if(problems.begin(), problems.end(),
                                    [](const std::string& problem) { return !problem.empty(); });
  if (bad > source.max_bad_records) {
    ConfigError error("E322", source.on_bad_record.loc,
                      fmt::format("{} of {} images cannot be read; `max_bad_records` allows {}",
                                  bad, problems.size(), source.max_bad_records));
    int shown = 0;
    for (const std::string& problem : problems) {
      if (!problem.empty() && shown++ < 3) {
        error.note(problem);
      }
    }
    throw error;
  }
  std::vector<int64_t> good;
  for (size_t i = 0; i < problems.size(); ++i) {
    if (problems[i].empty()) {
      good.push_back(static_cast<int64_t>(i));
    }
  }
  listing.take(good);
  std::erase(problems, "");
  return problems;
}

// The masks of all images. Without one, an image is left out with `on_bad_record: skip`.
void add_masks(FolderListing& listing, const ImageFolderOptions& source,
               const SourceContext& context) {
  listing.masks = find_masks(listing.paths, resolve(context.base_dir, source.directory),
                             resolve(context.base_dir, source.masks));
  const int64_t missing = std::count(listing.masks.begin(), listing.masks.end(), "");
  if (missing == 0 || source.on_bad_record.value == BadRecord::kSkip) {
    return;
  }
  const auto first = static_cast<size_t>(std::find(listing.masks.begin(), listing.masks.end(), "") -
                                         listing.masks.begin());
  throw ConfigError("E300", source.masks.loc,
                    fmt::format("{} of {} images have no mask in `{}`, the first is `{}`", missing,
                                listing.paths.size(), source.masks.value, listing.paths[first]))
      .help(
          "a mask is named as its image; for others write the pattern: `masks: "
          "masks/*_mask.png`");
}

}  // namespace

Dataset read_image_folder_source(const ImageFolderOptions& source, const SourceContext& context) {
  const LabelMode mode = source.labels();
  const bool has_masks = source.reads_masks(), has_labels = mode != LabelMode::kNone && !has_masks;
  FolderListing listing = list_files(
      ListedFiles::kImages, resolve(context.base_dir, source.directory), has_labels,
      source.class_names.value, source.follow_links, source.directory.loc, source.class_names.loc);
  const size_t classes = listing.class_names.size();
  // When classes are known, load_run_data() compares all of them and names the difference.
  if (has_labels && context.known == nullptr) {
    check_binary(listing, mode, source.label_mode.loc, source.directory);
  }
  std::vector<std::string> details, skipped;
  if (has_masks) {
    add_masks(listing, source, context);
    details.emplace_back("masks");
  } else if (has_labels) {
    details.push_back(fmt::format("{} class{}", classes, classes == 1 ? "" : "es"));
  }
  if (source.on_bad_record.value == BadRecord::kSkip) {
    skipped = drop_bad(listing, source);
    if (!skipped.empty()) {
      details.push_back(fmt::format("{} left out", counted(std::ssize(skipped), "bad image")));
    }
  }
  if (listing.ignored > 0) {
    details.push_back(fmt::format("{} ignored", counted(listing.ignored, "other file")));
  }
  shuffle_and_split(listing, source.seed, source.validation_split, source.subset.value);
  if (const auto& subset = source.subset.value) {
    details.emplace_back(word_of(*subset));
  }
  Dataset dataset;
  dataset.description = fmt::format("image_folder {}", source.directory.value);
  if (!details.empty()) {
    dataset.description += ": " + join(details, ", ");
  }
  if (has_labels) {
    dataset.targets.push_back({"y", make_rows(listing.label_array(mode))});
    dataset.class_names = std::move(listing.class_names);
  }
  if (has_masks) {
    auto masks = std::make_shared<std::vector<std::string>>(std::move(listing.masks));
    dataset.targets.push_back(
        {"y", make_image_masks(std::move(masks), source, source.masks.loc, kSkipHelp)});
    dataset.class_names = source.class_names->value_or(std::vector<std::string>());
  }
  if (!dataset.class_names.empty()) {
    dataset.learned = std::make_shared<LearnedData>(
        LearnedData{context.source.class_name, {}, {}, dataset.class_names});
  }
  dataset.files = std::make_shared<std::vector<std::string>>(std::move(listing.paths));
  dataset.inputs.push_back(
      {"x", make_image_rows(dataset.files, source, source.directory.loc, kSkipHelp)});
  dataset.skipped = std::move(skipped);
  return dataset;
}

}  // namespace meshtrain
