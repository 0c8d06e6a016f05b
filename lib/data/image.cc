#include "data/image.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 27;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 28;
constexpr size_t kTrustedPixels = size_t{1} << 23;

struct Format {
  const char* magic;  // without its zero bytes
  const char* name;
};
// Formats that are refused by name; Keras reads the first two.
constexpr Format kOtherFormats[] = {{"GIF8", "a GIF file"},  {"BM", "a BMP file"},
                                    {"RIFF", "a WebP file"}, {"II*", "a TIFF file"},
                                    {"MM", "a TIFF file"},   {"%PDF", "a PDF file"}};

}  // namespace

void check_size(int64_t height, int64_t width, size_t file_bytes, int64_t max_ratio,
                const std::string& name) {
  if (height <= 0 || width <= 0) {
    read_error("E322", name, "there is no image in the file: truncated?");
  }
  if (height > kMaxPixels / width) {
    read_error("E322", name, "the image declares {}x{} pixels; at most {} are read", width, height,
               format_thousands(kMaxPixels));
  }
  if (height * width / max_ratio > static_cast<int64_t>(file_bytes)) {
    read_error("E322", name, "the image declares {}x{} pixels in {} bytes, which cannot be", width,
               height, format_thousands(static_cast<int64_t>(file_bytes)));
  }
}

bool is_read_twice(int64_t height, int64_t width, int channels, size_t file_bytes) {
  return static_cast<size_t>(height * width * channels) > 2 * file_bytes + kTrustedPixels;
}

Image make_image(int64_t height, int64_t width, int channels) {
  Image image{height, width, channels, nullptr};
  image.pixels.reset(static_cast<uint8_t*>(std::calloc(image.num_bytes(), 1)));
  if (image.pixels == nullptr) {
    throw std::bad_alloc();
  }
  return image;
}

Image to_grey(const Image& rgb) {
  Image grey = make_image(rgb.height, rgb.width, 1);
  const size_t count = grey.num_bytes();
  const uint8_t* from = rgb.pixels.get();
  for (size_t i = 0; i < count; ++i, from += 3) {
    // 0.299, 0.587 and 0.114 in 16 bits, rounded.
    grey.pixels.get()[i] = static_cast<uint8_t>(
        (from[0] * 19595u + from[1] * 38470u + from[2] * 7471u + 0x8000u) >> 16);
  }
  return grey;
}

Image decode_image(std::span<const std::byte> bytes, const std::string& name, int channels) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) {
    read_error("E322", name, "the file is empty");
  }
  if (text.starts_with("\x89PNG\r\n\x1a\n")) {
    return decode_png(bytes, name, channels);
  }
  if (text.starts_with("\xff\xd8\xff")) {
    return decode_jpeg(bytes, name, channels == kAsStored ? 1 : channels);
  }
  for (const Format& format : kOtherFormats) {
    if (text.starts_with(format.magic)) {
      read_error("E322", name, "{}; only PNG and JPEG images are read: convert it", format.name);
    }
  }
  read_error("E322", name, "no PNG or JPEG image (it begins with {})",
             hex_bytes(bytes.first(std::min<size_t>(bytes.size(), 8))));
}

Image read_image(const std::string& path, int channels) {
  const InputFile file = open_input(path, "E300", "E300");
  if (file.size() > kMaxFileBytes) {
    read_error("E322", path, "a file of {}; images have at most {}",
               format_bytes(static_cast<int64_t>(file.size())),
               format_bytes(static_cast<int64_t>(kMaxFileBytes)));
  }
  std::vector<std::byte> bytes(file.size());
  file.read_at(0, bytes.data(), bytes.size());
  return decode_image(bytes, path, channels);
}

}  // namespace meshtrain
