// JPEG by libjpeg-turbo's own interface, which reports errors without longjmp.
#include <turbojpeg.h>

#include <memory>
#include <string_view>

#include "data/image.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

// Every block of 8 x 8 pixels takes a bit at least.
constexpr int64_t kMaxJpegRatio = 64 * 8;

struct Close {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Handle = std::unique_ptr<void, Close>;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Decodes into `image`, whose size may also be an eighth of the file's. Bytes that belong to
// nothing between two markers are common in photographs of the web and harmless; everything else
// that the library warns of (an early end, wrong codes) means wrong pixels.
void decompress(void* handle, std::span<const std::byte> bytes, const std::string& name,
                int pixel_format, Image& image) {
  for (const int on_warning : {TJFLAG_STOPONWARNING, 0}) {
    const int failed =
        tjDecompress2(handle, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                      image.pixels.get(), static_cast<int>(image.width), 0,
                      static_cast<int>(image.height), pixel_format, TJFLAG_LIMITSCANS | on_warning);
    const std::string_view message = tjGetErrorStr2(handle);
    const bool is_harmless = tjGetErrorCode(handle) == TJERR_WARNING &&
                             message.find("extraneous bytes") != std::string_view::npos;
    if (failed == 0 || (is_harmless && on_warning == 0)) {
      return;
    }
    if (!is_harmless) {
      read_error("E322", name, "libjpeg: {}", message);
    }
  }
}

// Whether the CMYK values are inverted, as Adobe's programs write them: there is an APP14 marker.
bool has_adobe_marker(std::string_view text) {
  for (size_t at = 2; at + 9 <= text.size() && text[at] == '\xff';) {
    const auto marker = static_cast<uint8_t>(text[at + 1]);
    if (marker == 0xda) {  // the pixels begin
      break;
    }
    if (marker == 0xee && text.substr(at + 4, 5) == "Adobe") {
      return true;
    }
    at += 2 + (static_cast<size_t>(static_cast<uint8_t>(text[at + 2])) << 8 |
               static_cast<uint8_t>(text[at + 3]));
  }
  return false;
}

// CMYK to RGB or RGBA without colour profiles, as Pillow and TensorFlow do it.
Image from_cmyk(const Image& cmyk, bool is_inverted, int channels) {
  Image out = make_image(cmyk.height, cmyk.width, channels);
  const uint8_t* from = cmyk.pixels.get();
  uint8_t* to = out.pixels.get();
  for (int64_t i = 0; i < cmyk.height * cmyk.width; ++i, from += 4, to += channels) {
    const int flip = is_inverted ? 0 : 255;
    const int k = from[3] ^ flip;
    for (int c = 0; c < 3; ++c) {
      to[c] = static_cast<uint8_t>(((from[c] ^ flip) * k + 127) / 255);
    }
    if (channels == 4) {
      to[3] = 255;
    }
  }
  return out;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name, int channels) {
  const Handle handle(tjInitDecompress());
  MESHTRAIN_CHECK(handle != nullptr);
  int width = 0, height = 0, subsampling = 0, color_space = 0;
  if (tjDecompressHeader3(handle.get(), reinterpret_cast<const unsigned char*>(bytes.data()),
                          bytes.size(), &width, &height, &subsampling, &color_space) != 0) {
    read_error("E322", name, "libjpeg: {}", tjGetErrorStr2(handle.get()));
  }
  const bool is_cmyk = color_space == TJCS_CMYK || color_space == TJCS_YCCK;
  const bool is_grey = color_space == TJCS_GRAY && channels == 1;
  const int decoded = is_cmyk || channels == 4 ? 4 : is_grey ? 1 : 3;
  const int pixel_format = is_cmyk        ? TJPF_CMYK
                           : decoded == 4 ? TJPF_RGBA
                           : decoded == 1 ? TJPF_GRAY
                                          : TJPF_RGB;
  check_size(height, width, bytes.size(), kMaxJpegRatio, name);
  if (is_read_twice(height, width, decoded, bytes.size())) {
    // A progressive image takes its memory at once, for the coefficients: at least it must end.
    if (text_of(bytes).rfind("\xff\xd9") == std::string_view::npos) {
      read_error("E322", name, "the file ends early: truncated?");
    }
    Image small = make_image((height + 7) / 8, (width + 7) / 8, decoded);
    decompress(handle.get(), bytes, name, pixel_format, small);
  }
  Image image = make_image(height, width, decoded);
  decompress(handle.get(), bytes, name, pixel_format, image);
  if (is_cmyk) {
    image = from_cmyk(image, has_adobe_marker(text_of(bytes)), channels == 4 ? 4 : 3);
  }
  return image.channels == channels ? std::move(image) : to_grey(image);
}

}  // namespace meshtrain
