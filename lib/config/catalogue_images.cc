// Images and masks of them: their arguments, and the column transforms Image and Mask.
#include <algorithm>

#include "config/catalogue_args.h"
#include "config/source_classes.h"

namespace meshtrain {
namespace {

std::vector<Spec> joined(std::initializer_list<std::vector<Spec>> parts) {
  std::vector<Spec> out;
  for (const std::vector<Spec>& part : parts) {
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// Where the files of a column are.
std::vector<Spec> file_column_args() {
  return {make_spec("column", ValueKind::kText, "", "names of files").required(),
          make_spec("directory", ValueKind::kPath, ".", "what the names are relative to"),
          text("extension", "null", "stands behind each name, as \".png\"")};
}

ClassSpec column_of_files(const char* name, const char* help, std::vector<Spec> args) {
  return make_class(name, help, joined({file_column_args(), image_size_args(), std::move(args)}));
}

}  // namespace

std::vector<Spec> image_size_args() {
  using S = ImageFormat;
  return {key("image_size", &S::image_size, "height and width"),
          key("crop_to_aspect_ratio", &S::crop_to_aspect_ratio,
              "the largest middle part of that shape"),
          key("pad_to_aspect_ratio", &S::pad_to_aspect_ratio, "black bars up to that shape")};
}

std::vector<Spec> image_color_args() {
  using S = ImageFormat;
  return {key("color_mode", &S::color_mode, "1, 3 or 4 channels"),
          key("interpolation", &S::interpolation, "between pixels, without antialiasing")
              .one_of({"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"})};
}

std::vector<Spec> mask_value_args() {
  using S = ImageFormat;
  Spec values =
      make_spec("mask_values", ValueKind::kIntOrList, "null",
                "numbers of pixels in the order of their classes; null: the numbers are classes");
  return {stored_key(values.least(0), &S::mask_values,
                     [](const ConfigValue& value, const StoreScope&) {
                       return value.is_list() ? value.integers()
                                              : std::vector<int64_t>{value.integer()};
                     }),
          key("other_pixels", &S::other_pixels, "class of all other pixels; errors when null")
              .least(0)};
}

void check_image_size(const ImageFormat& format, Diagnostics& diagnostics) {
  if (format.image_size->size() > 2) {
    diagnostics.error("E113", format.image_size.loc, "`image_size` is height and width")
        .help("write `[180, 180]`");
  }
  if (format.crop_to_aspect_ratio && format.pad_to_aspect_ratio) {
    diagnostics.error("E113", format.pad_to_aspect_ratio.loc,
                      "`crop_to_aspect_ratio` and `pad_to_aspect_ratio` exclude each other");
  }
}

void check_mask_values(const ImageFormat& format, Diagnostics& diagnostics) {
  const std::vector<int64_t> values = format.mask_values->value_or(std::vector<int64_t>());
  for (auto at = values.begin(); at != values.end(); ++at) {
    if (std::find(values.begin(), at, *at) != at) {
      diagnostics.error("E113", format.mask_values.loc,
                        fmt::format("`mask_values` has {} twice", *at));
    }
  }
  if (format.other_pixels->has_value() && values.empty()) {
    diagnostics
        .error("E113", format.other_pixels.loc,
               "`other_pixels` acts on numbers that `mask_values` does not list")
        .help("`mask_values: [0]` and `other_pixels: 1` make all but 0 class 1");
  }
}

ImageFormat image_format(const ConfigObject& transform) {
  ImageFormat format;
  Diagnostics diagnostics;
  for (const Spec& arg : joined({image_size_args(), image_color_args(), mask_value_args()})) {
    if (const auto given = transform.args.find(arg.name); given != transform.args.end()) {
      arg.store(static_cast<ClassOptions*>(&format), given->second, {{}, diagnostics, true});
    }
  }
  diagnostics.throw_if_errors();
  return format;
}

std::vector<ClassSpec> image_column_classes() {
  return {
      column_of_files("Image", "images, from the files that a column names", image_color_args()),
      column_of_files("Mask", "a class for each pixel, from the files that a column names",
                      mask_value_args())};
}

std::vector<int64_t> mask_values_of(const ConfigObject& source) {
  std::vector<ImageFormat> formats;
  if (const auto folder = options_if<ImageFolderOptions>(source); folder) {
    formats.push_back(*folder);
  }
  for (const ConfigObject* transform : column_transforms(source)) {
    if (transform->class_name == "Mask") {
      formats.push_back(image_format(*transform));
    }
  }
  return formats.size() == 1 ? formats[0].mask_values->value_or(std::vector<int64_t>())
                             : std::vector<int64_t>();
}

void check_has_masks(const ConfigObject& train, const ConfigObject& other,
                     Diagnostics& diagnostics) {
  const auto trains = options_if<ImageFolderOptions>(train);
  const auto tests = options_if<ImageFolderOptions>(other);
  if (trains && tests && trains->reads_masks() && tests->labels() != LabelMode::kNone &&
      !tests->reads_masks()) {
    diagnostics.error("E113", other.loc, "`masks` is missing, which `data.train` has")
        .help("write the folder of the masks of these images");
  }
}

}  // namespace meshtrain
