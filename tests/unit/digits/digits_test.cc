#include "data/digits.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "data/digit_strokes.h"

using namespace meshtrain;

namespace {
constexpr int kPixels = 28 * 28;

uint64_t hash_of(const HostTensor& tensor) {
  return hash_bytes(tensor.bytes(), tensor.num_bytes());
}
}  // namespace

TEST_CASE("make_digits: the bytes never change") {
  const DigitImages first = make_digits(100, 1);
  CHECK(hash_of(first.images) == 10257509866670000146ull);
  CHECK(hash_of(first.labels) == 8817560979102200635ull);
  CHECK(hash_of(make_digits(100, 0xFFFFFFFFFFFFFFFF).images) == 14671654084625815071ull);
}

TEST_CASE("make_digits: shapes and types are those of MNIST") {
  const DigitImages digits = make_digits(7, 3);
  CHECK(digits.images.shape() == Shape{7, 28, 28, 1});
  CHECK(digits.images.dtype() == DType::kUInt8);
  CHECK(digits.labels.shape() == Shape{7});
  CHECK(digits.labels.dtype() == DType::kUInt8);
  CHECK(make_digits(0, 3).images.shape() == Shape{0, 28, 28, 1});
  CHECK_THROWS_AS(make_digits(-1, 3), Error);
}

TEST_CASE("make_digits: a larger set begins with the smaller one") {
  const DigitImages small = make_digits(33, 5);
  const DigitImages large = make_digits(57, 5);
  CHECK(std::equal(small.images.bytes(), small.images.bytes() + small.images.num_bytes(),
                   large.images.bytes()));
  CHECK(std::equal(small.labels.bytes(), small.labels.bytes() + small.labels.num_bytes(),
                   large.labels.bytes()));
}

TEST_CASE("make_digits: seeds give different images in different orders") {
  const DigitImages a = make_digits(50, 1);
  const DigitImages b = make_digits(50, 2);
  CHECK(hash_of(a.images) != hash_of(b.images));
  CHECK(hash_of(a.labels) != hash_of(b.labels));
}

TEST_CASE("make_digits: labels are balanced and no image occurs twice") {
  const DigitImages digits = make_digits(1000, 9);
  std::array<int, 10> counts{};
  for (const uint8_t label : digits.labels.span<uint8_t>()) {
    REQUIRE(label < 10);
    ++counts[label];
  }
  CHECK(counts == std::array<int, 10>{100, 100, 100, 100, 100, 100, 100, 100, 100, 100});
  std::vector<uint64_t> hashes;
  for (int i = 0; i < 1000; ++i) {
    hashes.push_back(hash_bytes(digits.images.data<uint8_t>() + i * kPixels, kPixels));
  }
  std::sort(hashes.begin(), hashes.end());
  CHECK(std::adjacent_find(hashes.begin(), hashes.end()) == hashes.end());
}

TEST_CASE("make_digits: ink is where MNIST has it") {
  const DigitImages digits = make_digits(1000, 4);
  const auto pixels = digits.images.span<uint8_t>();
  double sum = 0;
  int64_t inked = 0;
  int darkest = 0;
  double centre_x = 0;
  double centre_y = 0;
  for (int64_t i = 0; i < digits.images.size(); ++i) {
    sum += pixels[i];
    inked += pixels[i] != 0;
    darkest = std::max<int>(darkest, pixels[i]);
    centre_x += pixels[i] * static_cast<double>(i % 28);
    centre_y += pixels[i] * static_cast<double>(i / 28 % 28);
  }
  const double mean = sum / 255 / static_cast<double>(digits.images.size());
  CHECK(mean > 0.11);  // MNIST: 0.131
  CHECK(mean < 0.16);
  const double share = static_cast<double>(inked) / static_cast<double>(digits.images.size());
  CHECK(share > 0.17);  // MNIST: 0.191
  CHECK(share < 0.25);
  CHECK(darkest == 255);
  CHECK(centre_x / sum > 12.5);
  CHECK(centre_x / sum < 14.5);
  CHECK(centre_y / sum > 12.5);
  CHECK(centre_y / sum < 14.5);
  for (int64_t image = 0; image < 1000; ++image) {
    const uint8_t* begin = pixels.data() + image * kPixels;
    CHECK(std::count_if(begin, begin + kPixels, [](uint8_t p) { return p > 127; }) > 20);
  }
}

TEST_CASE("make_digits: the classes differ enough for the nearest mean image") {
  // Far below what training reaches (linear 90%), far above chance: labels belong to images.
  const DigitImages train = make_digits(2000, 1);
  const DigitImages test = make_digits(500, 2);
  std::vector<double> means(10 * kPixels, 0);
  for (int64_t i = 0; i < train.images.size(); ++i) {
    const int label = train.labels.data<uint8_t>()[i / kPixels];
    means[label * kPixels + i % kPixels] += train.images.data<uint8_t>()[i] / 200.0;
  }
  int right = 0;
  for (int64_t image = 0; image < 500; ++image) {
    std::array<double, 10> distance{};
    for (int64_t p = 0; p < 10 * kPixels; ++p) {
      const double d = means[p] - test.images.data<uint8_t>()[image * kPixels + p % kPixels];
      distance[p / kPixels] += d * d;
    }
    const auto nearest = std::min_element(distance.begin(), distance.end()) - distance.begin();
    right += nearest == test.labels.data<uint8_t>()[image];
  }
  CHECK(right > 250);
  CHECK(right < 450);
}

TEST_CASE("digit_styles: every digit is written in several ways inside its box") {
  for (int digit = 0; digit < 10; ++digit) {
    CHECK(digit_styles(digit).size() >= 3);
    for (const DigitStyle& style : digit_styles(digit)) {
      for (const DigitStroke& stroke : style) {
        CHECK(stroke.points.size() >= 2);
        for (const auto& [x, y] : stroke.points) {
          CHECK(std::max(x, -x) <= 70);
          CHECK(std::max(y, -y) <= 100);
        }
      }
    }
  }
}
