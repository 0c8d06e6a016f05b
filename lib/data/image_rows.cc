#include "data/image_rows.h"

#include <fmt/format.h>

#include <filesystem>

namespace meshtrain {
namespace {

using Decode = std::function<void(const std::string& path, std::byte* to)>;

class DecodedRows final : public Rows {
 public:
  DecodedRows(ImagePaths paths, DType dtype, const Shape& row_shape, Decode decode, SourceLoc loc,
              std::string help)
      : paths_(std::move(paths)),
        dtype_(dtype),
        shape_{std::ssize(*paths_)},
        decode_(std::move(decode)),
        loc_(std::move(loc)),
        help_(std::move(help)) {
    shape_.insert(shape_.end(), row_shape.begin(), row_shape.end());
  }

  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    for (const int64_t row : order) {
      check_row(row);
      read_one((*paths_)[static_cast<size_t>(row)], to);
      to += row_bytes();
    }
  }

 private:
  void read_one(const std::string& path, std::byte* to) const {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      throw ConfigError(
          "E321", loc_,
          fmt::format("`{}` is not there any more, it was when the data were opened", path));
    }
    try {
      decode_(path, to);
    } catch (const ConfigError& bad) {
      const Diagnostic& problem = bad.diagnostics().list().front();
      ConfigError located(problem.code, loc_, problem.message);
      if (!help_.empty()) {
        located.help(help_);
      }
      throw located;
    }
  }

  ImagePaths paths_;
  DType dtype_;
  Shape shape_;
  Decode decode_;
  SourceLoc loc_;
  std::string help_;
};

}  // namespace

ImageSize size_of(const ImageFormat& format) {
  const std::vector<int64_t>& sides = format.image_size.value;
  ImageSize size;
  size.height = sides[0];
  size.width = sides.back();  // one number: a square
  size.interpolation = format.interpolation;
  size.crop_to_aspect_ratio = format.crop_to_aspect_ratio;
  size.pad_to_aspect_ratio = format.pad_to_aspect_ratio;
  return size;
}

int channels_of(ColorMode mode) {
  return mode == ColorMode::kGrayscale ? 1 : mode == ColorMode::kRgb ? 3 : 4;
}

RowsPtr make_decoded_rows(ImagePaths paths, DType dtype, const Shape& row_shape, Decode decode,
                          SourceLoc loc, std::string help) {
  return std::make_shared<DecodedRows>(std::move(paths), dtype, row_shape, std::move(decode),
                                       std::move(loc), std::move(help));
}

RowsPtr make_image_rows(ImagePaths paths, const ImageFormat& format, SourceLoc loc,
                        std::string help) {
  const ImageSize size = size_of(format);
  const int channels = channels_of(format.color_mode);
  const auto decode = [size, channels](const std::string& path, std::byte* to) {
    resize_image(read_image(path, channels), size, reinterpret_cast<float*>(to));
  };
  return make_decoded_rows(std::move(paths), DType::kFloat32, {size.height, size.width, channels},
                           decode, std::move(loc), std::move(help));
}

}  // namespace meshtrain
