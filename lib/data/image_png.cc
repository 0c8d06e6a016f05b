// PNG by libpng. Its errors leave by longjmp, so that the functions it may leave own nothing.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "data/image.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

// libpng makes room for several rows of up to eight bytes a pixel before it looks at the first of
// them.
constexpr png_uint_32 kMaxSide = 1 << 18;
// The limit of an unpacked chunk without pixels.
constexpr size_t kMaxChunkBytes = size_t{1} << 20;
// Deflate's 1032, and eight pixels of a bit each in a byte.
constexpr int64_t kMaxPngRatio = 1032 * 8;

struct Decoder {
  std::span<const std::byte> rest;
  char message[160] = "";
  png_structp png = nullptr;
  png_infop info = nullptr;
  int passes = 1;  // over the rows: 7 of an interlaced image

  explicit Decoder(std::span<const std::byte> bytes);
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

void on_error(png_structp png, png_const_charp message) {
  auto* const decoder = static_cast<Decoder*>(png_get_error_ptr(png));
  std::strncpy(decoder->message, message, sizeof(decoder->message) - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto* const decoder = static_cast<Decoder*>(png_get_io_ptr(png));
  if (count > decoder->rest.size()) {
    png_error(png, "the file ends early: truncated?");
  }
  std::memcpy(to, decoder->rest.data(), count);
  decoder->rest = decoder->rest.subspan(count);
}

Decoder::Decoder(std::span<const std::byte> bytes) : rest(bytes) {
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
  MESHTRAIN_CHECK(png != nullptr);
  info = png_create_info_struct(png);
  MESHTRAIN_CHECK(info != nullptr);
}

// Asks for 8 bits of `channels`, RGB first where the image has colours and grey is wanted; of
// kAsStored for no alpha, and 8 bits of colours. Libpng may leave it by longjmp.
void convert_channels(const Decoder& decoder, int channels) {
  png_structp png = decoder.png;
  const int color_type = png_get_color_type(png, decoder.info);
  png_set_packing(png);
  if (channels == kAsStored) {
    png_set_strip_alpha(png);
    if (color_type == PNG_COLOR_TYPE_RGB || color_type == PNG_COLOR_TYPE_RGB_ALPHA) {
      png_set_strip_16(png);
    }
    return;
  }
  png_set_strip_16(png);
  if (color_type == PNG_COLOR_TYPE_PALETTE) {
    png_set_palette_to_rgb(png);
  } else if ((color_type & PNG_COLOR_MASK_COLOR) == 0) {
    png_set_expand_gray_1_2_4_to_8(png);
  }
  if (channels > 1 && (color_type & PNG_COLOR_MASK_COLOR) == 0) {
    png_set_gray_to_rgb(png);
  }
  if (channels == 4) {
    if (png_get_valid(png, decoder.info, PNG_INFO_tRNS) != 0) {
      png_set_tRNS_to_alpha(png);
    } else if ((color_type & PNG_COLOR_MASK_ALPHA) == 0) {
      png_set_add_alpha(png, 255, PNG_FILLER_AFTER);
    }
  } else {
    png_set_strip_alpha(png);  // palette_to_rgb also makes alpha of tRNS
  }
}

// Reads up to the pixels and asks for `channels`. False, with decoder.message, when it fails.
bool read_header(Decoder& decoder, int channels) {
  png_structp png = decoder.png;
  if (setjmp(png_jmpbuf(png)) != 0) {
    return false;
  }
  png_set_read_fn(png, &decoder, read_bytes);
  png_set_chunk_malloc_max(png, kMaxChunkBytes);
  png_read_info(png, decoder.info);
  if (png_get_image_width(png, decoder.info) > kMaxSide ||
      png_get_image_height(png, decoder.info) > kMaxSide) {
    png_error(png, "a side of more than 262144 pixels");
  }
  convert_channels(decoder, channels);
  decoder.passes = png_set_interlace_handling(png);
  png_read_update_info(png, decoder.info);
  return true;
}

// Row y to rows[y], or every row to rows[0] where `keeps` is false.
bool read_rows(Decoder& decoder, png_bytep* rows, bool keeps) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) {
    return false;
  }
  const png_uint_32 height = png_get_image_height(decoder.png, decoder.info);
  for (int pass = 0; pass < decoder.passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) {
      png_read_row(decoder.png, rows[keeps ? y : 0], nullptr);
    }
  }
  png_read_end(decoder.png, nullptr);
  return true;
}

void check(bool is_good, const Decoder& decoder, const std::string& name) {
  if (!is_good) {
    read_error("E322", name, "libpng: {}", decoder.message);
  }
}

}  // namespace

Image decode_png(std::span<const std::byte> bytes, const std::string& name, int channels) {
  Decoder decoder(bytes);
  check(read_header(decoder, channels), decoder, name);
  const auto height = static_cast<int64_t>(png_get_image_height(decoder.png, decoder.info));
  const auto width = static_cast<int64_t>(png_get_image_width(decoder.png, decoder.info));
  const int bytes_of_channel = png_get_bit_depth(decoder.png, decoder.info) == 16 ? 2 : 1;
  const int found = png_get_channels(decoder.png, decoder.info) * bytes_of_channel;
  const size_t row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  check_size(height, width, bytes.size(), kMaxPngRatio, name);
  if (is_read_twice(height, width, found, bytes.size())) {
    Decoder first(bytes);
    check(read_header(first, channels), first, name);
    std::vector<png_byte> row(row_bytes);
    png_bytep rows[] = {row.data()};
    check(read_rows(first, rows, false), first, name);
  }
  Image image = make_image(height, width, found);
  MESHTRAIN_CHECK(row_bytes * static_cast<size_t>(height) == image.num_bytes());
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y) {
    rows[y] = image.pixels.get() + y * row_bytes;
  }
  check(read_rows(decoder, rows.data(), true), decoder, name);
  if (found == channels || channels == kAsStored) {
    return image;
  }
  MESHTRAIN_CHECK(found == 3 && channels == 1);
  return to_grey(image);
}

std::string encode_png(const Image& grey) {
  MESHTRAIN_CHECK(grey.channels == 1);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(grey.width);
  image.height = static_cast<png_uint_32>(grey.height);
  image.format = PNG_FORMAT_GRAY;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  const bool is_written =
      png_image_write_to_memory(&image, bytes.data(), &size, 0, grey.pixels.get(), 0, nullptr) != 0;
  MESHTRAIN_CHECK(is_written, "libpng: {}", image.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace meshtrain
