// Drafts of configs for images: a folder for each class, or a mask for each image.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include "base/text.h"
#include "config/flow.h"
#include "config/source_classes.h"
#include "data/draft_config.h"
#include "data/draft_folder.h"
#include "data/draft_model.h"
#include "data/folder_listing.h"
#include "data/image.h"
#include "data/image_masks.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestImage = 128;  // larger images are made smaller

// A size that fits most images, whether any has colours, and how many cannot be read.
struct ImageForm {
  int64_t height = 0, width = 0;
  bool has_colours = false;
  size_t bad = 0;
};
ImageForm form_of(const std::vector<std::string>& paths) {
  constexpr size_t kLooked = 30;
  std::vector<int64_t> heights, widths;
  ImageForm form;
  const auto look_at = [&](const Image& image) {
    heights.push_back(image.height);
    widths.push_back(image.width);
    for (size_t at = 0; at + 2 < image.num_bytes() && !form.has_colours; at += 3) {
      const uint8_t* pixel = image.pixels.get() + at;
      form.has_colours = pixel[0] != pixel[1] || pixel[1] != pixel[2];
    }
  };
  const size_t looked = std::min(kLooked, paths.size());
  for (size_t i = 0; i < looked; ++i) {
    try {
      look_at(read_image(paths[i * paths.size() / looked], 3));
    } catch (const ConfigError&) {
      if (++form.bad == looked) {
        throw;
      }
    }
  }
  const auto middle = [](std::vector<int64_t>& sizes) {
    std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2),
                     sizes.end());
    return std::min(kLargestImage, sizes[sizes.size() / 2]);
  };
  form.height = middle(heights);
  form.width = middle(widths);
  return form;
}

}  // namespace

std::string draft_class_images(const std::string& path, const ClassParts& parts) {
  const FolderListing listing = list_files(ListedFiles::kImages, parts.train, true);
  const ImageForm form = form_of(listing.paths);
  std::string out =
      draft_head(path, fmt::format("{} images of {} classes",
                                   format_thousands(static_cast<int64_t>(listing.paths.size())),
                                   listing.class_names.size()));
  out += fmt::format(
      "\ndata:\n  train:\n    source: image_folder\n    directory: {}\n"
      "    image_size: [{}, {}]  # others are made so\n    color_mode: {}\n",
      yaml_text(parts.train), form.height, form.width, form.has_colours ? "rgb" : "grayscale");
  out += form.bad == 0
             ? ""
             : fmt::format("    on_bad_record: skip  # {} of those looked at cannot be read\n",
                           form.bad);
  const auto count = static_cast<int64_t>(listing.paths.size());
  const std::string split = draft_parts("image_folder", parts, listing.labels);
  out += split;
  const Shape sample = {form.height, form.width, form.has_colours ? 3 : 1};
  out += model_draft(sample, true, true, output_draft(Shape{}, true, sample), false);
  return out + draft_fit(count, 10, !split.empty());
}

namespace {

// Where the images of a part are, and the masks, as `masks` says it.
struct MaskedFolder {
  std::string images, masks;
  std::vector<std::string> paths, mask_paths;
};

// "masks/*_mask.png" where masks are not called as their images.
std::string pattern_of(const std::string& masks, const std::string& image) {
  const std::string stem = fs::path(image).stem().native();
  const FolderListing listing = list_files(ListedFiles::kImages, masks, false);
  for (const std::string& path : listing.paths) {
    const std::string name = fs::path(path).filename().native();
    if (name.starts_with(stem) && fs::path(path).stem().native() != stem) {
      return masks + "/*" + name.substr(stem.size());
    }
  }
  return masks;
}

// FOLDER/images and FOLDER/masks, where these are there. Throws ConfigError E327 for images without
// a mask.
std::optional<MaskedFolder> find_masked(const std::string& folder) {
  const auto images = subfolder(folder, {"images", "image", "imgs", "img", "JPEGImages"});
  const auto masks = subfolder(folder, {"masks", "mask", "annotations/trimaps", "annotations",
                                        "labels", "trimaps", "SegmentationClass"});
  if (!images || !masks) {
    return std::nullopt;
  }
  MaskedFolder out{*images, *masks, {}, {}};
  out.paths = list_files(ListedFiles::kImages, *images, false).paths;
  out.masks = pattern_of(*masks, out.paths.front());
  out.mask_paths = find_masks(out.paths, out.images, out.masks);
  const auto missing = std::count(out.mask_paths.begin(), out.mask_paths.end(), "");
  if (missing > 0) {
    const auto first = static_cast<size_t>(
        std::find(out.mask_paths.begin(), out.mask_paths.end(), "") - out.mask_paths.begin());
    throw ConfigError(
        "E327", {},
        fmt::format("{} of {} images in `{}` have no mask in `{}`, the first is `{}`", missing,
                    out.paths.size(), out.images, out.masks, out.paths[first]))
        .help("a mask has the name of its image, and perhaps more behind it: cat_1_mask.png");
  }
  return out;
}

// The numbers in some of the masks.
std::vector<int64_t> numbers_in(const std::vector<std::string>& masks) {
  constexpr size_t kLooked = 50;
  ImageSize size;
  size.height = size.width = 256;
  std::vector<int32_t> pixels(static_cast<size_t>(size.height * size.width));
  std::set<int64_t> found;
  const size_t looked = std::min(kLooked, masks.size());
  for (size_t i = 0; i < looked; ++i) {
    read_mask(masks[i * masks.size() / looked], size, {}, pixels.data());
    found.insert(pixels.begin(), pixels.end());
  }
  return {found.begin(), found.end()};
}

// A small U-Net.
std::string masks_model(int64_t height, int64_t width, int channels, size_t classes, bool ignores) {
  return fmt::format(
      "\nmodel:\n  layers:\n    - Input: {{shape: [{0}, {1}, {2}]}}\n"
      "    - Rescaling: {{scale: =1/255}}\n"
      "    - Conv2D: {{name: fine, filters: 16, kernel_size: 3, padding: same, activation: relu}}\n"
      "    - MaxPooling2D\n"
      "    - Conv2D: {{name: middle, filters: 32, kernel_size: 3, padding: same, activation: "
      "relu}}\n"
      "    - MaxPooling2D\n"
      "    - Conv2D: {{filters: 64, kernel_size: 3, padding: same, activation: relu}}\n"
      "    - UpSampling2D: {{name: up_to_middle}}\n"
      "    - Concatenate: {{inputs: [up_to_middle, middle]}}\n"
      "    - Conv2D: {{filters: 32, kernel_size: 3, padding: same, activation: relu}}\n"
      "    - UpSampling2D: {{name: up_to_fine}}\n"
      "    - Concatenate: {{inputs: [up_to_fine, fine]}}\n"
      "    - Conv2D: {{filters: 16, kernel_size: 3, padding: same, activation: relu}}\n"
      "    - Conv2D: {{name: mask, filters: {3}, kernel_size: 1, activation: softmax}}\n"
      "\ncompile:\n  optimizer: {{Adam: {{learning_rate: 0.001}}}}\n"
      "  loss: {4}\n  metrics: [accuracy, {{MeanIoU: {{num_classes: {3}{5}, sparse_y_pred: "
      "false}}}}]\n",
      height, width, channels, classes,
      ignores ? "{SparseCategoricalCrossentropy: {ignore_class: 255}}"
              : "sparse_categorical_crossentropy",
      ignores ? ", ignore_class: 255" : "");
}

std::string masks_config(const std::string& path, const MaskedFolder& train,
                         const std::optional<MaskedFolder>& validation) {
  const ImageForm form = form_of(train.paths);
  const auto whole = [](int64_t side) {  // halved twice
    return std::max<int64_t>(16, side / 4 * 4);
  };
  const int64_t height = whole(form.height), width = whole(form.width);
  std::vector<int64_t> numbers = numbers_in(train.mask_paths);
  constexpr size_t kMostOfJpeg = 2;
  if (numbers.size() > kMostOfJpeg && !ends_with(to_lower(train.mask_paths[0]), ".png")) {
    throw ConfigError("E327", {},
                      fmt::format("`{}` is a JPEG, which changes the numbers of classes: {} are in "
                                  "the masks",
                                  train.mask_paths[0], numbers.size()))
        .help("convert the masks to PNG");
  }
  // 255 beside 0, 1, 2, ... marks pixels of no class, but beside 0 alone a class.
  const bool ignores = numbers.size() > 2 && numbers.back() == 255;
  const size_t classes = numbers.size() - (ignores ? 1 : 0);
  const bool are_classes = numbers[classes - 1] == static_cast<int64_t>(classes) - 1;
  const std::string values =
      are_classes
          ? ""
          : fmt::format("    mask_values: [{}]  # of classes 0, 1, ...\n",
                        fmt::join(numbers.begin(),
                                  numbers.begin() + static_cast<std::ptrdiff_t>(classes), ", ")) +
                (ignores ? "    other_pixels: 255\n" : "");
  std::string out = draft_head(
      path, fmt::format("{} images with masks of {} classes",
                        format_thousands(static_cast<int64_t>(train.paths.size())), classes));
  out += fmt::format(
      "\ndata:\n  train:\n    source: image_folder\n    directory: {}\n    masks: {}\n{}"
      "    image_size: [{}, {}]  # others are made so\n    color_mode: {}\n",
      yaml_text(train.images), yaml_text(train.masks), values, height, width,
      form.has_colours ? "rgb" : "grayscale");
  const auto count = static_cast<int64_t>(train.paths.size());
  const std::string split =
      validation ? fmt::format("  validation: {{source: image_folder, directory: {}, masks: {}}}\n",
                               yaml_text(validation->images), yaml_text(validation->masks))
                 : draft_split(count, 0);
  out += split + "  transform: [{RandomFlip: horizontal}]  # images and masks alike\n";
  return out + masks_model(height, width, form.has_colours ? 3 : 1, classes, ignores) +
         draft_fit(count, 30, !split.empty());
}

}  // namespace

std::optional<std::string> draft_masks(const std::string& path) {
  const auto train = subfolder(path, {"train", "training"});
  const auto masked = find_masked(train.value_or(path));
  if (!masked) {
    return std::nullopt;
  }
  const auto part = subfolder(path, {"val", "valid", "validation"});
  return masks_config(path, *masked, train && part ? find_masked(*part) : std::nullopt);
}

}  // namespace meshtrain
