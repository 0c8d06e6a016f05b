// Images from PNG and JPEG files, by libpng and libjpeg-turbo.
//
// Channels are converted as Pillow does (ITU-R BT.601 luma for grey, alpha dropped for RGB, 255
// where alpha is missing). 16 bits per channel become their high byte, as in TensorFlow. Gamma,
// colour profiles and EXIF orientation are ignored, as in Keras' image_dataset_from_directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

namespace meshtrain {

struct Image {
  struct Free {
    void operator()(uint8_t* pixels) const { std::free(pixels); }
  };

  int64_t height = 0, width = 0;
  int channels = 0;
  std::unique_ptr<uint8_t, Free> pixels;  // (height, width, channels)

  size_t num_bytes() const {
    return static_cast<size_t>(height * width) * static_cast<size_t>(channels);
  }
};

// Instead of a number of channels: the numbers of the file. Of a palette these are its indices, and
// 16 bits per channel are two channels, the high byte first. JPEG images become grey.
constexpr int kAsStored = 0;

// Decodes an image. `channels`: 1 grey, 3 RGB, 4 RGBA, or kAsStored. The first bytes decide the
// format, never the name. `name` is the file's name in messages. Throws ConfigError E322 (exit 3):
// empty, another format, damaged or cut short (with what the library said), or with more pixels
// declared than the bytes can hold or than 2^27; a PNG also with a side over 2^18.
Image decode_image(std::span<const std::byte> bytes, const std::string& name, int channels);
// The same from a file of at most 256 MiB. Throws E300 when it is not there or cannot be read.
Image read_image(const std::string& path, int channels);

// The bytes of a PNG file of a grey image.
std::string encode_png(const Image& grey);

// The decoders of one format (image_png.cc, image_jpeg.cc) and what they share.
Image decode_png(std::span<const std::byte> bytes, const std::string& name, int channels);
Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name, int channels);
// Throws E322 for sizes that cannot be. `max_ratio`: pixels that a byte of the file can stand for.
void check_size(int64_t height, int64_t width, size_t file_bytes, int64_t max_ratio,
                const std::string& name);
// Returns whether an image needs so much more memory than its file that the file is validated in a
// first pass without storing pixels. A false size or a truncated file then costs no memory.
bool is_read_twice(int64_t height, int64_t width, int channels, size_t file_bytes);
Image make_image(int64_t height, int64_t width, int channels);  // all zero
// RGB to grey, as Pillow's convert("L").
Image to_grey(const Image& rgb);

}  // namespace meshtrain
