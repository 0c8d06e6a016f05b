// A digit is a few strokes: smooth curves (uniform Catmull-Rom splines) through control points. Per
// image the points are moved at random, bent and sheared as handwriting is, and drawn with a pen of
// varying width. Lengths are integers in 1/64 pixel from the templates to the ink.
#include "data/digits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "base/philox.h"
#include "base/system_calls.h"
#include "data/digit_canvas.h"
#include "data/digit_strokes.h"

namespace meshtrain {

namespace {

using Point = DigitPoint;

constexpr int kSide = kDigitSide;
constexpr int kPixels = kDigitPixels;
constexpr int kOne = kDigitOne;
constexpr int kMaxStrokePoints = 32;
constexpr int kSplineSteps = 3;  // straight segments per pair of control points
constexpr int64_t kImagesPerThread = 500;
constexpr uint32_t kStream = 0xD161;  // Philox stream of this generator

// How far images vary; chosen by measurement (tests/unit/digits/README.md).
constexpr int kJitter = 45;      // of a control point, 1/64 pixel, standard deviation
constexpr int kRotation = 6200;  // radians / 65536
constexpr int kShear = 11000;    // / 65536
constexpr int kStretch = 6500;   // of width and height, / 65536
constexpr int kBend = 6500;      // quadratic terms at the edge of the digit, / 65536
constexpr int kShift = 80;       // 1/64 pixel
constexpr int kNoise = 24;       // of inked pixels, up to this many grey levels either way

// The random numbers of one image, in the order they are asked for.
class Random {
 public:
  Random(uint64_t seed, uint64_t image, uint32_t purpose)
      : seed_(seed), image_(image), purpose_(purpose) {}

  uint32_t bits() {
    if (lane_ == 4) {
      block_ = philox4x32_10(counter(), seed_);
      ++count_;
      lane_ = 0;
    }
    return block_[lane_++];
  }
  // The next numbers, many at once.
  void fill(std::span<uint32_t> out) {
    size_t i = 0;
    while (i < out.size() && lane_ < 4) {
      out[i++] = block_[lane_++];
    }
    constexpr size_t kMany = 4 * DigitCanvas::kRandomBlocks;
    for (; i + kMany <= out.size(); i += kMany) {
      DigitCanvas::random(counter(), seed_, &out[i]);
      count_ += DigitCanvas::kRandomBlocks;
    }
    while (i < out.size()) {
      out[i++] = bits();
    }
  }
  // Uniform in low .. high, both included.
  int32_t between(int32_t low, int32_t high) {
    const uint64_t range = static_cast<uint64_t>(high - low) + 1;
    return low + static_cast<int32_t>(bits() * range >> 32);
  }
  // Bell-shaped with standard deviation `sigma`: the sum of four uniform bytes, never beyond 3.5.
  int32_t bell(int32_t sigma) {
    const uint32_t b = bits();
    const int32_t sum =
        static_cast<int32_t>((b & 255) + (b >> 8 & 255) + (b >> 16 & 255) + (b >> 24)) - 510;
    return sum * sigma / 148;  // 148: the standard deviation of the sum
  }

 private:
  PhiloxBlock counter() const {
    return {static_cast<uint32_t>(image_), static_cast<uint32_t>(image_ >> 32),
            kStream + (purpose_ << 16), count_};
  }

  uint64_t seed_;
  uint64_t image_;
  uint32_t purpose_;
  uint32_t count_ = 0;
  int lane_ = 4;
  PhiloxBlock block_{};
};

// A random smooth map of the plane, made of a rotation, shear, stretch, bends and a shift.
class Warp {
 public:
  explicit Warp(Random& random) {
    const int64_t angle = random.bell(kRotation);
    const int64_t shear = random.bell(kShear);
    const int64_t width = kUnit + random.bell(kStretch);
    const int64_t height = kUnit + random.bell(kStretch) - kUnit / 16;
    // Taylor series: exact to 1e-4 for the half radian that occurs at most.
    const int64_t square = angle * angle >> 16;
    const int64_t sine = angle - (angle * square >> 16) / 6;
    const int64_t cosine = kUnit - square / 2 + (square * square >> 16) / 24;
    xx_ = cosine * width >> 16;
    xy_ = (cosine * shear >> 16) - sine;
    xy_ = xy_ * height >> 16;
    yx_ = sine * width >> 16;
    yy_ = (cosine + (sine * shear >> 16)) * height >> 16;
    for (int64_t& bend : bends_) {
      bend = random.bell(kBend);
    }
    shift_ = {random.bell(kShift), random.bell(kShift)};
  }

  Point apply(Point p) const {
    const int64_t x = p.x;
    const int64_t y = p.y;
    // Relative to a digit's half height of 10 pixels.
    const int64_t square_y = y * y / (10 * kOne);
    const int64_t square_x = x * x / (10 * kOne);
    const int64_t both = x * y / (10 * kOne);
    const int64_t u = x + ((bends_[0] * square_y + bends_[1] * both) >> 16);
    const int64_t v = y + ((bends_[2] * square_x + bends_[3] * both) >> 16);
    constexpr int64_t kCentre = kSide / 2 * kOne;
    return {static_cast<int32_t>(kCentre + shift_.x + ((xx_ * u + xy_ * v) >> 16)),
            static_cast<int32_t>(kCentre + shift_.y + ((yx_ * u + yy_ * v) >> 16))};
  }

 private:
  static constexpr int64_t kUnit = 65536;
  int64_t xx_, xy_, yx_, yy_;
  std::array<int64_t, 4> bends_;
  Point shift_;
};

// The point `step` of kSplineSteps between p1 and p2, on the Catmull-Rom curve through all four.
Point on_spline(Point p0, Point p1, Point p2, Point p3, int step) {
  // Twice the weights, times kSplineSteps^3.
  constexpr int n = kSplineSteps;
  const int s = step;
  const int w0 = -s * n * n + 2 * s * s * n - s * s * s;
  const int w1 = 2 * n * n * n - 5 * s * s * n + 3 * s * s * s;
  const int w2 = s * n * n + 4 * s * s * n - 3 * s * s * s;
  const int w3 = -s * s * n + s * s * s;
  constexpr int kTotal = 2 * n * n * n;
  return {(w0 * p0.x + w1 * p1.x + w2 * p2.x + w3 * p3.x) / kTotal,
          (w0 * p0.y + w1 * p1.y + w2 * p2.y + w3 * p3.y) / kTotal};
}

class Writer {
 public:
  Writer(uint64_t seed, uint64_t image) : random_(seed, image, 1), warp_(random_) {}

  void write(int digit, uint8_t* pixels) {
    const std::span<const DigitStyle> styles = digit_styles(digit);
    const DigitStyle& style = styles[random_.between(0, static_cast<int32_t>(styles.size()) - 1)];
    radius_ = std::max(42, 84 + random_.bell(22));
    for (const DigitStroke& stroke : style) {
      draw(stroke);
    }
    finish(pixels);
  }

 private:
  void draw(const DigitStroke& stroke) {
    std::array<Point, kMaxStrokePoints> points;
    int n = 0;
    for (const auto& [x, y] : stroke.points) {
      // Templates are in tenths of a pixel. Rounding towards zero is the same everywhere.
      const int32_t jitter_x = random_.bell(kJitter);
      const int32_t jitter_y = random_.bell(kJitter);
      points.at(n++) = warp_.apply({x * kOne / 10 + jitter_x, y * kOne / 10 + jitter_y});
    }
    const int segments = stroke.closed ? n : n - 1;
    const auto at = [&](int i) {
      return stroke.closed ? points[(i + n) % n] : points[std::clamp(i, 0, n - 1)];
    };
    const int32_t slope = random_.bell(14);  // the pen is pressed more at one end
    for (int i = 0; i < segments; ++i) {
      Point from = at(i);
      for (int step = 1; step <= kSplineSteps; ++step) {
        const Point to = on_spline(at(i - 1), at(i), at(i + 1), at(i + 2), step);
        const int32_t place = 2 * (i * kSplineSteps + step) - segments * kSplineSteps;
        canvas_.line(from, to, std::max(32, radius_ + slope * place / (segments * kSplineSteps)));
        from = to;
      }
    }
  }

  // The paper takes ink unevenly.
  void finish(uint8_t* pixels) {
    const int32_t ink = random_.between(216, 256);
    std::array<uint32_t, kPixels / 4 + 1> words{};
    random_.fill(std::span(words).first(kPixels / 4));
    static_assert(std::endian::native == std::endian::little, "a number's lowest byte is first");
    canvas_.finish(ink, kNoise, reinterpret_cast<const uint8_t*>(words.data()), pixels);
  }

  Random random_;
  Warp warp_;
  DigitCanvas canvas_;
  int32_t radius_ = 0;
};

// The order of the ten digits in the ten images that begin at 10 * `group`.
std::array<uint8_t, 10> digits_of(uint64_t seed, uint64_t group) {
  std::array<uint8_t, 10> digits;
  std::iota(digits.begin(), digits.end(), uint8_t{0});
  Random random(seed, group, 0);
  for (int i = 9; i > 0; --i) {
    std::swap(digits[i], digits[random.between(0, i)]);
  }
  return digits;
}

}  // namespace

namespace {

// Images [begin, end), of which `begin` is the first of a group of ten.
void draw_images(int64_t begin, int64_t end, uint64_t seed, DigitImages& out) {
  std::array<uint8_t, 10> digits{};
  for (int64_t i = begin; i < end; ++i) {
    if (i % 10 == 0) {
      digits = digits_of(seed, static_cast<uint64_t>(i / 10));
    }
    out.labels.data<uint8_t>()[i] = digits[i % 10];
    Writer(seed, static_cast<uint64_t>(i))
        .write(digits[i % 10], out.images.data<uint8_t>() + i * kPixels);
  }
}

}  // namespace

DigitImages make_digits(int64_t samples, uint64_t seed) {
  if (samples < 0) {
    throw Error(ExitCode::kData, fmt::format("cannot draw {} digits", samples));
  }
  DigitImages out{HostTensor(DType::kUInt8, {samples, kSide, kSide, 1}),
                  HostTensor(DType::kUInt8, {samples})};
  // Images depend on their number alone, so that threads share the work as they like.
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1,
                                              std::max<int64_t>(1, samples / kImagesPerThread));
  const int64_t share = (samples + 10 * threads - 1) / (10 * threads) * 10;  // whole groups
  std::vector<std::jthread> helpers;
  for (int64_t t = 1; t < threads && t * share < samples; ++t) {
    const auto draw = [&out, t, share, samples, seed] {
      draw_images(t * share, std::min((t + 1) * share, samples), seed, out);
    };
    try {
      helpers.push_back(quiet_thread(draw));
    } catch (const std::system_error&) {  // no more threads for this user
      draw();
    }
  }
  draw_images(0, std::min(share, samples), seed, out);
  helpers.clear();
  return out;
}

}  // namespace meshtrain
