// Source image_folder: Keras' image_dataset_from_directory. Images are decoded when they are read.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "base/system_calls.h"
#include "base/text.h"
#include "data/epoch_order.h"
#include "data/image_listing.h"
#include "data/image_resize.h"
#include "data/learned.h"
#include "data/source_files.h"
#include "data/sources.h"

namespace meshtrain {
namespace {

int channels_of(ColorMode mode) {
  return mode == ColorMode::kGrayscale ? 1 : mode == ColorMode::kRgb ? 3 : 4;
}

// Images of one size, float32 from 0 to 255.
class ImageRows final : public Rows {
 public:
  using Paths = std::shared_ptr<const std::vector<std::string>>;

  ImageRows(Paths paths, ImageSize size, int channels, SourceLoc loc)
      : paths_(std::move(paths)),
        size_(std::move(size)),
        shape_{static_cast<int64_t>(paths_->size()), size_.height, size_.width, channels},
        loc_(std::move(loc)) {}

  DType dtype() const override { return DType::kFloat32; }
  const Shape& shape() const override { return shape_; }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    for (const int64_t row : order) {
      MESHTRAIN_CHECK(row >= 0 && row < size(), "row {} of {}", row, size());
      read_one((*paths_)[static_cast<size_t>(row)], reinterpret_cast<float*>(to));
      to += row_bytes();
    }
  }

 private:
  void read_one(const std::string& path, float* to) const {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      throw ConfigError(
          "E321", loc_,
          fmt::format("`{}` is not there any more, it was when the folder was listed", path));
    }
    try {
      resize_image(read_image(path, static_cast<int>(shape_[3])), size_, to);
    } catch (const ConfigError& bad) {
      const Diagnostic& problem = bad.diagnostics().list().front();
      throw ConfigError(problem.code, loc_, problem.message)
          .help("`on_bad_record: skip` leaves such images out");
    }
  }

  Paths paths_;
  ImageSize size_;
  Shape shape_;
  SourceLoc loc_;
};

// Returns the problem of each image, or "". Decodes all images on all cores.
std::vector<std::string> find_bad(const std::vector<std::string>& paths, int channels) {
  std::vector<std::string> problems(paths.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < paths.size(); i = next++) {
      try {
        read_image(paths[i], channels);
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
std::vector<std::string> drop_bad(ImageListing& listing, const ImageFolderOptions& source,
                                  int channels) {
  std::vector<std::string> problems = find_bad(listing.paths, channels);
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
  size_t kept = 0;
  for (size_t i = 0; i < problems.size(); ++i) {
    if (problems[i].empty()) {
      listing.paths[kept] = listing.paths[i];
      if (!listing.labels.empty()) {
        listing.labels[kept] = listing.labels[i];
      }
      ++kept;
    }
  }
  listing.paths.resize(kept);
  listing.labels.resize(listing.labels.empty() ? 0 : kept);
  std::erase(problems, "");
  return problems;
}

// The images `order` of the listing.
void take(ImageListing& listing, std::span<const int64_t> order) {
  std::vector<std::string> paths;
  std::vector<int32_t> labels;
  for (const int64_t i : order) {
    paths.push_back(std::move(listing.paths[static_cast<size_t>(i)]));
    if (!listing.labels.empty()) {
      labels.push_back(listing.labels[static_cast<size_t>(i)]);
    }
  }
  listing.paths = std::move(paths);
  listing.labels = std::move(labels);
}

// Keras' seed, validation_split and subset: the order is shuffled once, its last part is for
// validation.
void shuffle_and_split(ImageListing& listing, const ImageFolderOptions& source) {
  const auto count = static_cast<int64_t>(listing.paths.size());
  if (!source.seed) {
    return;
  }
  std::vector<int64_t> order = EpochOrder(count, *source.seed, 0).rows(0, count);
  if (const auto& [split, loc] = source.validation_split; split) {
    const auto validation = static_cast<int64_t>(*split * static_cast<double>(count));
    if (validation == 0) {
      throw ConfigError("E316", loc,
                        fmt::format("`validation_split: {}` of {} images leaves none to validate",
                                    format_shortest(*split), count));
    }
    const auto middle = order.end() - validation;
    source.subset.value == ImageSubset::kTraining ? order.erase(middle, order.end())
                                                  : order.erase(order.begin(), middle);
  }
  take(listing, order);
}

HostTensor make_labels(const ImageListing& listing, LabelMode mode) {
  const auto count = static_cast<int64_t>(listing.labels.size());
  if (mode == LabelMode::kInt) {
    HostTensor labels(DType::kInt32, {count});
    std::copy(listing.labels.begin(), listing.labels.end(), labels.data<int32_t>());
    return labels;
  }
  const int64_t width =
      mode == LabelMode::kBinary ? 1 : static_cast<int64_t>(listing.class_names.size());
  HostTensor labels(DType::kFloat32, {count, width});
  for (int64_t i = 0; i < count; ++i) {
    const int32_t label = listing.labels[static_cast<size_t>(i)];
    labels.data<float>()[width == 1 ? i : i * width + label] =
        mode == LabelMode::kBinary ? static_cast<float>(label) : 1.0f;
  }
  return labels;
}

ImageSize size_of(const ImageFolderOptions& source) {
  const std::vector<int64_t>& sides = source.image_size.value;
  ImageSize size;
  size.height = sides[0];
  size.width = sides.back();  // one number: a square
  size.interpolation = source.interpolation;
  size.crop_to_aspect_ratio = source.crop_to_aspect_ratio;
  size.pad_to_aspect_ratio = source.pad_to_aspect_ratio;
  return size;
}

std::string counted(int64_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

Dataset read_image_folder_source(const ImageFolderOptions& source, const SourceContext& context) {
  const ImageSize size = size_of(source);
  const int channels = channels_of(source.color_mode);
  const LabelMode mode = source.labels();
  const bool has_labels = mode != LabelMode::kNone;
  ImageListing listing =
      list_images(resolve(context.base_dir, source.directory), has_labels, source.class_names.value,
                  source.follow_links, source.directory.loc, source.class_names.loc);
  const size_t classes = listing.class_names.size();
  // When classes are known, load_run_data() compares all of them and names the difference.
  if (mode == LabelMode::kBinary && classes != 2 && context.known == nullptr) {
    throw ConfigError("E113", source.label_mode.loc,
                      fmt::format("`label_mode: binary` needs two classes; `{}` has {}",
                                  source.directory.value, classes));
  }
  std::vector<std::string> details, skipped;
  if (has_labels) {
    details.push_back(fmt::format("{} class{}", classes, classes == 1 ? "" : "es"));
  }
  if (source.on_bad_record.value == BadRecord::kSkip) {
    skipped = drop_bad(listing, source, channels);
    if (!skipped.empty()) {
      details.push_back(fmt::format("{} left out", counted(std::ssize(skipped), "bad image")));
    }
  }
  if (listing.ignored > 0) {
    details.push_back(fmt::format("{} ignored", counted(listing.ignored, "other file")));
  }
  shuffle_and_split(listing, source);
  if (const auto& subset = source.subset.value) {
    details.emplace_back(word_of(*subset));
  }
  Dataset dataset;
  dataset.description = fmt::format("image_folder {}", source.directory.value);
  if (!details.empty()) {
    dataset.description += ": " + join(details, ", ");
  }
  if (has_labels) {
    dataset.targets.push_back({"y", make_rows(make_labels(listing, mode))});
    dataset.class_names = std::move(listing.class_names);
    dataset.learned = std::make_shared<LearnedData>(
        LearnedData{context.source.class_name, {}, {}, dataset.class_names});
  }
  dataset.files = std::make_shared<std::vector<std::string>>(std::move(listing.paths));
  dataset.inputs.push_back(
      {"x", std::make_shared<ImageRows>(dataset.files, size, channels, source.directory.loc)});
  dataset.skipped = std::move(skipped);
  return dataset;
}

}  // namespace meshtrain
