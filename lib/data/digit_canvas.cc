#include "data/digit_canvas.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace meshtrain {
namespace {

constexpr int kOne = kDigitOne;
constexpr int kEdge = 80;  // the ink fades over this width, 1/64 pixel

// One straight segment in the terms of the inner loop.
struct Segment {
  int32_t ax, ay, dx, dy;
  int32_t reach;   // the distance at which the ink ends
  double inverse;  // 4096 / length^2, but for rounding
  int x_begin, x_end, y_begin, y_end;
};

// Pixels with centres between two places, inclusive: the first, and one past the last.
int first_pixel(int32_t at) {
  return std::clamp((at + kOne / 2 - 1) >> 6, 0, kDigitSide);
}
int end_pixel(int32_t at) {
  return std::clamp((at + kOne / 2) >> 6, 0, kDigitSide);
}

// Inlined into one function for each set of instructions. Pixels beyond the end of the segment's
// box are out of its reach, so that whole vectors are drawn.
[[gnu::always_inline]] inline void draw(const Segment segment, int32_t* __restrict ink) {
  for (int y = segment.y_begin; y < segment.y_end; ++y) {
    const int32_t py = y * kOne + kOne / 2 - segment.ay;
    for (int begin = segment.x_begin; begin < segment.x_end; begin += DigitCanvas::kLanes) {
      int32_t* pixels = ink + y * DigitCanvas::kStride + begin;
      const int32_t px_begin = begin * kOne + kOne / 2 - segment.ax;
      for (int lane = 0; lane < DigitCanvas::kLanes; ++lane) {
        const int32_t px = px_begin + lane * kOne;
        // The position of the nearest point between a (0) and b (4096). Within these ends the
        // product, without its power of two a whole number below 2^41, is exact.
        const double along = px * segment.dx + py * segment.dy;
        const double place = std::min(std::max(along * segment.inverse, 0.0), 4096.0);
        const auto t = static_cast<int32_t>(place);
        const int32_t nx = px - (segment.dx * t >> 12);
        const int32_t ny = py - (segment.dy * t >> 12);
        const int32_t distance2 = nx * nx + ny * ny;
        // Rounded down; single precision suffices for squares below 2^24.
        const auto distance = static_cast<int32_t>(std::sqrt(static_cast<float>(distance2 & ~15)));
        // inside * 255 / kEdge, rounded down.
        const auto inside = static_cast<uint32_t>(std::max(0, segment.reach - distance));
        const auto value = static_cast<int32_t>(std::min(255u, inside * 255 * 52429 >> 22));
        const bool is_inked = distance2 < segment.reach * segment.reach;
        pixels[lane] = std::max(pixels[lane], is_inked ? value : 0);
      }
    }
  }
}

// A row at a time in whole vectors, of which the last reads and makes four pixels too many.
[[gnu::always_inline]] inline void shade(const int32_t* drawn, int32_t ink, int32_t noise,
                                         const uint8_t* bytes, uint8_t* __restrict pixels) {
  for (int y = 0; y < kDigitSide; ++y) {
    std::array<uint8_t, DigitCanvas::kPaddedSide> row;
    for (int x = 0; x < DigitCanvas::kPaddedSide; ++x) {
      const int32_t grey = drawn[y * DigitCanvas::kStride + x];
      const int32_t change = bytes[y * kDigitSide + x] * (2 * noise + 1) >> 8;
      const int32_t value = std::min(255, std::max(1, (grey * ink >> 8) + change - noise));
      row[x] = static_cast<uint8_t>(grey == 0 ? 0 : value);
    }
    std::memcpy(pixels + y * kDigitSide, row.data(), kDigitSide);
  }
}

// philox4x32_10 of eight blocks whose counters follow each other in their last word.
[[gnu::always_inline]] inline void random_blocks(const PhiloxBlock& first, uint64_t key,
                                                 uint32_t* __restrict out) {
  constexpr int kBlocks = DigitCanvas::kRandomBlocks;
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int b = 0; b < kBlocks; ++b) {
    c0[b] = first[0];
    c1[b] = first[1];
    c2[b] = first[2];
    c3[b] = first[3] + static_cast<uint32_t>(b);
  }
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int b = 0; b < kBlocks; ++b) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0[b];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2[b];
      c0[b] = static_cast<uint32_t>(p1 >> 32) ^ c1[b] ^ k0;
      c1[b] = static_cast<uint32_t>(p1);
      c2[b] = static_cast<uint32_t>(p0 >> 32) ^ c3[b] ^ k1;
      c3[b] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int b = 0; b < kBlocks; ++b) {
    out[4 * b] = c0[b];
    out[4 * b + 1] = c1[b];
    out[4 * b + 2] = c2[b];
    out[4 * b + 3] = c3[b];
  }
}

void random_v1(const PhiloxBlock& first, uint64_t key, uint32_t* out) {
  random_blocks(first, key, out);
}
void draw_v1(const Segment& segment, int32_t* ink) {
  draw(segment, ink);
}
void shade_v1(const int32_t* drawn, int32_t ink, int32_t noise, const uint8_t* bytes,
              uint8_t* pixels) {
  shade(drawn, ink, noise, bytes, pixels);
}
#if defined(__x86_64__)
[[gnu::target("arch=x86-64-v3")]] void random_v3(const PhiloxBlock& first, uint64_t key,
                                                 uint32_t* out) {
  random_blocks(first, key, out);
}
[[gnu::target("arch=x86-64-v3")]] void draw_v3(const Segment& segment, int32_t* ink) {
  draw(segment, ink);
}
[[gnu::target("arch=x86-64-v3")]] void shade_v3(const int32_t* drawn, int32_t ink, int32_t noise,
                                                const uint8_t* bytes, uint8_t* pixels) {
  shade(drawn, ink, noise, bytes, pixels);
}
bool has_v3() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("x86-64-v3") != 0;
}
const auto kDraw = has_v3() ? draw_v3 : draw_v1;
const auto kShade = has_v3() ? shade_v3 : shade_v1;
const auto kRandom = has_v3() ? random_v3 : random_v1;
#else
const auto kDraw = draw_v1;
const auto kShade = shade_v1;
const auto kRandom = random_v1;
#endif

}  // namespace

void DigitCanvas::line(DigitPoint a, DigitPoint b, int32_t radius) {
  Segment segment{};
  segment.ax = a.x;
  segment.ay = a.y;
  segment.dx = b.x - a.x;
  segment.dy = b.y - a.y;
  segment.reach = radius + kEdge / 2;
  const int64_t length2 = int64_t{segment.dx} * segment.dx + int64_t{segment.dy} * segment.dy;
  segment.inverse = length2 < 4 ? 0.0 : 0x1p-28 * static_cast<double>((int64_t{1} << 40) / length2);
  segment.x_begin = first_pixel(std::min(a.x, b.x) - segment.reach);
  segment.x_end = end_pixel(std::max(a.x, b.x) + segment.reach);
  segment.y_begin = first_pixel(std::min(a.y, b.y) - segment.reach);
  segment.y_end = end_pixel(std::max(a.y, b.y) + segment.reach);
  kDraw(segment, ink_.data());
}

void DigitCanvas::random(const PhiloxBlock& first, uint64_t key, uint32_t* out) {
  kRandom(first, key, out);
}

void DigitCanvas::finish(int32_t ink, int32_t noise, const uint8_t* bytes, uint8_t* pixels) const {
  kShade(ink_.data(), ink, noise, bytes, pixels);
}

}  // namespace meshtrain
