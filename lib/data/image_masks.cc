#include "data/image_masks.h"

#include <algorithm>
#include <filesystem>

#include "data/image.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// "MASKS/NAME" with the extension of the file that is there.
std::string with_extension(const std::string& path) {
  for (const char* extension : {".png", ".jpg", ".jpeg", ".PNG", ".JPG", ".JPEG"}) {
    if (is_file(path + extension)) {
      return path + extension;
    }
  }
  return "";
}

// The numbers of a stored image as one channel of bytes, or two: the high byte first.
Image one_number_a_pixel(Image image, const std::string& path) {
  if (image.channels <= 2) {
    return image;
  }
  Image grey = make_image(image.height, image.width, 1);
  const uint8_t* pixel = image.pixels.get();
  for (size_t i = 0; i < grey.num_bytes(); ++i, pixel += image.channels) {
    if (pixel[0] != pixel[1] || pixel[1] != pixel[2]) {
      read_error("E322", path, "the mask has colours, where each pixel is to be one number");
    }
    grey.pixels.get()[i] = pixel[0];
  }
  return grey;
}

}  // namespace

MaskClasses classes_of(const ImageFormat& format) {
  return {format.mask_values->value_or(std::vector<int64_t>()), format.other_pixels.value};
}

std::vector<std::string> find_masks(const std::vector<std::string>& images,
                                    const std::string& folder, const std::string& masks) {
  std::vector<std::string> out;
  const size_t star = masks.find('*');
  for (const std::string& image : images) {
    const std::string name =
        fs::path(image).lexically_relative(folder).replace_extension().native();
    if (star == std::string::npos) {
      out.push_back(with_extension((fs::path(masks) / name).native()));
      continue;
    }
    const std::string path = masks.substr(0, star) + name + masks.substr(star + 1);
    out.push_back(is_file(path) ? path : "");
  }
  return out;
}

std::string folder_of_masks(const std::string& masks) {
  const size_t star = masks.find('*');
  if (star == std::string::npos) {
    return masks;
  }
  const std::string folder = fs::path(masks.substr(0, star) + "x").parent_path().native();
  return folder.empty() ? "." : folder;
}

void read_mask(const std::string& path, const ImageSize& size, const MaskClasses& classes,
               int32_t* to) {
  const Image mask = one_number_a_pixel(read_image(path, kAsStored), path);
  ImageSize nearest = size;
  nearest.interpolation = "nearest";
  const auto count = static_cast<size_t>(size.height * size.width);
  std::vector<float> bytes(count * static_cast<size_t>(mask.channels));
  resize_image(mask, nearest, bytes.data());
  for (size_t i = 0; i < count; ++i) {
    const int64_t number = mask.channels == 1
                               ? static_cast<int64_t>(bytes[i])
                               : static_cast<int64_t>(bytes[2 * i] * 256 + bytes[2 * i + 1]);
    const auto found = std::find(classes.values.begin(), classes.values.end(), number);
    if (classes.values.empty()) {
      to[i] = static_cast<int32_t>(number);
    } else if (found != classes.values.end()) {
      to[i] = static_cast<int32_t>(found - classes.values.begin());
    } else if (classes.others) {
      to[i] = static_cast<int32_t>(*classes.others);
    } else {
      throw ConfigError("E312", {},
                        fmt::format("`{}`: a pixel is {}, which `mask_values` does not list; "
                                    "`other_pixels` gives all others a class",
                                    path, number));
    }
  }
}

RowsPtr make_image_masks(ImagePaths masks, const ImageFormat& format, SourceLoc loc,
                         std::string help) {
  const ImageSize size = size_of(format);
  const auto decode = [size, classes = classes_of(format)](const std::string& path, std::byte* to) {
    read_mask(path, size, classes, reinterpret_cast<int32_t*>(to));
  };
  return make_decoded_rows(std::move(masks), DType::kInt32, {size.height, size.width, 1}, decode,
                           std::move(loc), std::move(help));
}

}  // namespace meshtrain
