// A digit is a few strokes: smooth curves (uniform Catmull-Rom splines) through control points. Per
// image the points are moved at random, bent and sheared as handwriting is, and drawn with a pen of
// varying width. Lengths are integers in 1/64 pixel from the templates to the ink.
#include "data/digits.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <span>
#include <vector>

#include "base/philox.h"
#include "data/digit_strokes.h"

namespace meshtrain {

namespace {

constexpr int kSide = 28;
constexpr int kPixels = kSide * kSide;
constexpr int kOne = 64;              // one pixel
constexpr int kSplineSteps = 3;       // straight pieces per pair of control points
constexpr int kEdge = 80;             // the ink fades over this width, 1/64 pixel
constexpr uint32_t kStream = 0xD161;  // Philox stream of this generator

// How far images vary; chosen by measurement (tests/unit/digits/README.md).
constexpr int kJitter = 45;      // of a control point, 1/64 pixel, standard deviation
constexpr int kRotation = 6200;  // radians / 65536
constexpr int kShear = 11000;    // / 65536
constexpr int kStretch = 6500;   // of width and height, / 65536
constexpr int kBend = 6500;      // quadratic terms at the edge of the digit, / 65536
constexpr int kShift = 80;       // 1/64 pixel
constexpr int kNoise = 24;       // of inked pixels, up to this many grey levels either way

struct Point {
  int32_t x = 0;
  int32_t y = 0;
};

// The random numbers of one image, in the order they are asked for.
class Random {
 public:
  Random(uint64_t seed, uint64_t image, uint32_t purpose)
      : seed_(seed), image_(image), purpose_(purpose) {}

  uint32_t bits() {
    if (lane_ == 4) {
      block_ = philox4x32_10({static_cast<uint32_t>(image_), static_cast<uint32_t>(image_ >> 32),
                              kStream + (purpose_ << 16), count_++},
                             seed_);
      lane_ = 0;
    }
    return block_[lane_++];
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
  uint64_t seed_;
  uint64_t image_;
  uint32_t purpose_;
  uint32_t count_ = 0;
  int lane_ = 4;
  PhiloxBlock block_{};
};

// Square roots of 16 i, rounded down: distances for squared distances.
const std::vector<int32_t>& root_table() {
  static const std::vector<int32_t> table = [] {
    std::vector<int32_t> roots(1 << 14);
    int32_t root = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(roots.size()); ++i) {
      while ((root + 1) * (root + 1) <= 16 * i) {
        ++root;
      }
      roots[i] = root;
    }
    return roots;
  }();
  return table;
}

class Canvas {
 public:
  // Draws the straight piece from `a` to `b` with a round pen of radius `radius`.
  void line(Point a, Point b, int32_t radius) {
    const int32_t reach = radius + kEdge / 2;
    const int32_t dx = b.x - a.x;
    const int32_t dy = b.y - a.y;
    const int64_t length2 = int64_t{dx} * dx + int64_t{dy} * dy;
    const int64_t inverse = length2 < 4 ? 0 : (int64_t{1} << 40) / length2;
    const int x_begin = first_pixel(std::min(a.x, b.x) - reach);
    const int x_end = end_pixel(std::max(a.x, b.x) + reach);
    const int y_end = end_pixel(std::max(a.y, b.y) + reach);
    for (int y = first_pixel(std::min(a.y, b.y) - reach); y < y_end; ++y) {
      const int32_t py = y * kOne + kOne / 2 - a.y;
      for (int x = x_begin; x < x_end; ++x) {
        const int32_t px = x * kOne + kOne / 2 - a.x;
        // Where the nearest point lies between a (0) and b (4096).
        const int64_t along = int64_t{px} * dx + int64_t{py} * dy;
        const int64_t t = std::clamp<int64_t>(along * inverse >> 28, 0, 4096);
        const int32_t nx = px - static_cast<int32_t>(dx * t >> 12);
        const int32_t ny = py - static_cast<int32_t>(dy * t >> 12);
        const int32_t distance2 = nx * nx + ny * ny;
        if (distance2 < reach * reach) {
          const int32_t inside = reach - roots_[distance2 >> 4];
          const int32_t ink = std::min(255, inside * 255 / kEdge);
          uint8_t& pixel = pixels_[y * kSide + x];
          pixel = std::max(pixel, static_cast<uint8_t>(ink));
        }
      }
    }
  }
  std::span<const uint8_t, kPixels> pixels() const { return pixels_; }

 private:
  static int first_pixel(int32_t at) { return std::clamp((at + kOne / 2) / kOne - 1, 0, kSide); }
  static int end_pixel(int32_t at) { return std::clamp((at + kOne / 2) / kOne + 1, 0, kSide); }

  std::array<uint8_t, kPixels> pixels_{};
  const int32_t* roots_ = root_table().data();
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
    std::vector<Point> points;
    for (const auto& [x, y] : stroke.points) {
      // Templates are in tenths of a pixel. Rounding towards zero is the same everywhere.
      points.push_back(warp_.apply(
          {x * kOne / 10 + random_.bell(kJitter), y * kOne / 10 + random_.bell(kJitter)}));
    }
    const int n = static_cast<int>(points.size());
    const int pieces = stroke.closed ? n : n - 1;
    const auto at = [&](int i) {
      return stroke.closed ? points[(i + n) % n] : points[std::clamp(i, 0, n - 1)];
    };
    const int32_t slope = random_.bell(14);  // the pen is pressed more at one end
    for (int i = 0; i < pieces; ++i) {
      Point from = at(i);
      for (int step = 1; step <= kSplineSteps; ++step) {
        const Point to = on_spline(at(i - 1), at(i), at(i + 1), at(i + 2), step);
        const int32_t place = 2 * (i * kSplineSteps + step) - pieces * kSplineSteps;
        canvas_.line(from, to, std::max(32, radius_ + slope * place / (pieces * kSplineSteps)));
        from = to;
      }
    }
  }

  // The paper takes ink unevenly.
  void finish(uint8_t* pixels) {
    const int32_t ink = random_.between(216, 256);
    const std::span<const uint8_t, kPixels> drawn = canvas_.pixels();
    for (int i = 0; i < kPixels; i += 4) {
      const uint32_t bits = random_.bits();
      for (int k = 0; k < 4; ++k) {
        const int32_t noise = static_cast<int32_t>(bits >> 8 * k & 255) * (2 * kNoise + 1) / 256;
        const int32_t value = (drawn[i + k] * ink >> 8) + noise - kNoise;
        pixels[i + k] = drawn[i + k] == 0 ? 0 : static_cast<uint8_t>(std::clamp(value, 1, 255));
      }
    }
  }

  Random random_;
  Warp warp_;
  Canvas canvas_;
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

DigitImages make_digits(int64_t samples, uint64_t seed) {
  if (samples < 0) {
    throw Error(ExitCode::kData, fmt::format("cannot draw {} digits", samples));
  }
  DigitImages out{HostTensor(DType::kUInt8, {samples, kSide, kSide, 1}),
                  HostTensor(DType::kUInt8, {samples})};
  std::array<uint8_t, 10> digits{};
  for (int64_t i = 0; i < samples; ++i) {
    if (i % 10 == 0) {
      digits = digits_of(seed, static_cast<uint64_t>(i / 10));
    }
    out.labels.data<uint8_t>()[i] = digits[i % 10];
    Writer(seed, static_cast<uint64_t>(i))
        .write(digits[i % 10], out.images.data<uint8_t>() + i * kPixels);
  }
  return out;
}

}  // namespace meshtrain
