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

constexpr png_uint_32 kMaxSide = 1 << 20;
// Of a chunk that is no pixels, unpacked.
constexpr size_t kMaxChunkBytes = size_t{1} << 20;
// Deflate's 1032, and eight pixels of a bit each in a byte.
constexpr int64_t kMaxRatio = 1032 * 8;

// Images larger than this and twice the file are decoded once to see whether they are whole.
constexpr size_t kTrustedBytes = size_t{8} << 20;

struct Decoder {
  std::span<const std::byte> rest;
  char message[160] = "";
  png_structp png = nullptr;
  png_infop info = nullptr;

  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
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

// Reads up to the pixels and asks for 8 bits of `channels` (RGB first where the image has colours
// and grey is wanted). False, with decoder.message, when it fails.
bool read_header(Decoder& decoder, int channels) {
  png_structp png = decoder.png;
  if (setjmp(png_jmpbuf(png)) != 0) {
    return false;
  }
  png_set_read_fn(png, &decoder, read_bytes);
  png_set_user_limits(png, kMaxSide, kMaxSide);
  png_set_chunk_malloc_max(png, kMaxChunkBytes);
  png_read_info(png, decoder.info);
  const int color_type = png_get_color_type(png, decoder.info);
  png_set_strip_16(png);
  png_set_packing(png);
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
  png_set_interlace_handling(png);
  png_read_update_info(png, decoder.info);
  return true;
}

bool read_rows(Decoder& decoder, png_bytep* rows) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) {
    return false;
  }
  png_read_image(decoder.png, rows);
  png_read_end(decoder.png, nullptr);
  return true;
}

// The same without keeping them: all rows in the place of one.
bool skip_rows(Decoder& decoder, png_bytep row) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) {
    return false;
  }
  const int passes =
      png_get_interlace_type(decoder.png, decoder.info) == PNG_INTERLACE_NONE ? 1 : 7;
  const png_uint_32 height = png_get_image_height(decoder.png, decoder.info);
  for (int pass = 0; pass < passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) {
      png_read_row(decoder.png, row, nullptr);
    }
  }
  png_read_end(decoder.png, nullptr);
  return true;
}

[[noreturn]] void damaged(const Decoder& decoder, const std::string& name) {
  read_error("E322", name, "libpng: {}", decoder.message);
}

void begin(Decoder& decoder, const std::string& name, int channels) {
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, on_error, on_warning);
  MESHTRAIN_CHECK(decoder.png != nullptr);
  decoder.info = png_create_info_struct(decoder.png);
  MESHTRAIN_CHECK(decoder.info != nullptr);
  if (!read_header(decoder, channels)) {
    damaged(decoder, name);
  }
}

}  // namespace

Image decode_png(std::span<const std::byte> bytes, const std::string& name, int channels) {
  Decoder decoder{bytes};
  begin(decoder, name, channels);
  const auto height = static_cast<int64_t>(png_get_image_height(decoder.png, decoder.info));
  const auto width = static_cast<int64_t>(png_get_image_width(decoder.png, decoder.info));
  const int found = png_get_channels(decoder.png, decoder.info);
  Image image = make_image(height, width, found, bytes.size(), kMaxRatio, name);
  const size_t row_bytes = png_get_rowbytes(decoder.png, decoder.info);
  if (image.num_bytes() > 2 * bytes.size() + kTrustedBytes) {
    // Once without taking memory: the file may not hold what it declares.
    Decoder trial{bytes};
    begin(trial, name, channels);
    std::vector<png_byte> row(row_bytes);
    if (!skip_rows(trial, row.data())) {
      damaged(trial, name);
    }
  }
  MESHTRAIN_CHECK(row_bytes * static_cast<size_t>(height) == image.num_bytes());
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y) {
    rows[y] = image.pixels.get() + y * row_bytes;
  }
  if (!read_rows(decoder, rows.data())) {
    damaged(decoder, name);
  }
  MESHTRAIN_CHECK(found == channels || (found == 3 && channels == 1));
  return found == channels ? std::move(image) : to_grey(image);
}

}  // namespace meshtrain
