// What random layers draw: the right distributions, per sample and step, and nothing at inference.
#include <cmath>
#include <numbers>
#include <set>

#include "nn_testing.h"
#include "support/splitmix.h"

namespace meshtrain::testing {
namespace {

using meshtrain::test::splitmix_signed;

// The layer's output for x in a training step; step -1: at inference.
HostTensor run_layer(const std::string& class_name, const HostTensor& x, int64_t step,
                     const NamedArgs& args = {}, int64_t seed = 7) {
  Arg shape = std::initializer_list<Arg>{};
  ConfigValue::List sizes;
  for (size_t i = 1; i < x.shape().size(); ++i) {
    sizes.push_back(Arg(static_cast<int>(x.shape()[i])));
  }
  shape.data = std::move(sizes);
  std::vector<LayerConfig> layers = {make_layer_config("Input", "a", {}, {{"shape", shape}}),
                                     make_layer_config(class_name, "layer", {"a"}, args)};
  Diagnostics diagnostics;
  const Model model(make_model_config(std::move(layers)), x.dtype(), diagnostics);
  REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
  auto results = run({&x}, [&](Builder& b, const std::vector<ValueId>& in) {
    const ValueId at = b.constant(static_cast<double>(std::max<int64_t>(step, 0)), DType::kInt64);
    return model.apply(b, in, {}, step >= 0, at, seed, nullptr);
  });
  return std::move(results[0]);
}

HostTensor filled(Shape shape, double value) {
  HostTensor out(DType::kFloat32, std::move(shape));
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, value);
  }
  return out;
}

// All elements different.
HostTensor counted(Shape shape) {
  HostTensor out(DType::kFloat32, std::move(shape));
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, static_cast<double>(i));
  }
  return out;
}

struct Summary {
  double mean = 0, deviation = 0;
};

Summary summary(const HostTensor& x) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    sum += x.at(i);
    squares += x.at(i) * x.at(i);
  }
  const auto count = static_cast<double>(x.size());
  return {sum / count, std::sqrt(squares / count - sum * sum / (count * count))};
}

bool equal(const HostTensor& a, const HostTensor& b) {
  return numbers(a) == numbers(b);
}

TEST_CASE("GaussianNoise adds normal numbers that are new in every step") {
  const HostTensor x = filled({64, 100}, 3);
  const HostTensor y = run_layer("GaussianNoise", x, 0, {{"stddev", 0.5}});
  const Summary found = summary(y);
  CHECK(std::abs(found.mean - 3) < 0.02);
  CHECK(std::abs(found.deviation - 0.5) < 0.02);
  int beyond = 0;  // 2 standard deviations: 4.55%
  for (int64_t i = 0; i < y.size(); ++i) {
    beyond += std::abs(y.at(i) - 3) > 1 ? 1 : 0;
  }
  CHECK(std::abs(beyond / 6400.0 - 0.0455) < 0.01);
  CHECK(equal(y, run_layer("GaussianNoise", x, 0, {{"stddev", 0.5}})));
  CHECK(!equal(y, run_layer("GaussianNoise", x, 1, {{"stddev", 0.5}})));
  CHECK(!equal(y, run_layer("GaussianNoise", x, 0, {{"stddev", 0.5}}, 8)));
  CHECK(equal(y, run_layer("GaussianNoise", x, 0, {{"stddev", 0.5}, {"seed", 7}}, 8)));
  CHECK(equal(x, run_layer("GaussianNoise", x, -1, {{"stddev", 0.5}})));
}

TEST_CASE("GaussianDropout multiplies by numbers around 1") {
  const HostTensor y = run_layer("GaussianDropout", filled({64, 100}, 2), 0, {{"rate", 0.2}});
  const Summary found = summary(y);
  CHECK(std::abs(found.mean - 2) < 0.05);
  CHECK(std::abs(found.deviation - 2 * 0.5) < 0.03);  // sqrt(0.2 / 0.8)
}

TEST_CASE("AlphaDropout keeps mean and variance of normal inputs") {
  const HostTensor x = run_layer("GaussianNoise", filled({100, 100}, 0), 3, {{"stddev", 1.0}});
  const HostTensor y = run_layer("AlphaDropout", x, 0, {{"rate", 0.3}});
  CHECK(std::abs(summary(y).mean - summary(x).mean) < 0.05);
  CHECK(std::abs(summary(y).deviation - summary(x).deviation) < 0.05);
  std::map<double, int> counts;
  for (const double v : numbers(y)) {
    ++counts[v];
  }
  int dropped = 0;  // all to the same number
  for (const auto& [value, count] : counts) {
    dropped = std::max(dropped, count);
  }
  CHECK(std::abs(dropped / 10000.0 - 0.3) < 0.02);
}

TEST_CASE("SpatialDropout drops whole channels of each sample") {
  const HostTensor y = run_layer("SpatialDropout2D", filled({16, 3, 3, 8}, 1), 0, {{"rate", 0.5}});
  int dropped = 0;
  for (int64_t n = 0; n < 16; ++n) {
    for (int64_t c = 0; c < 8; ++c) {
      const double first = y.at(n * 72 + c);
      CHECK((first == 0 || first == 2));
      dropped += first == 0 ? 1 : 0;
      for (int64_t p = 1; p < 9; ++p) {
        CHECK(y.at(n * 72 + p * 8 + c) == first);
      }
    }
  }
  CHECK(dropped > 40);
  CHECK(dropped < 90);
}

TEST_CASE("RandomFlip mirrors an image along all its axes or not at all") {
  const HostTensor x = counted({32, 3, 4, 2});
  const HostTensor y = run_layer("RandomFlip", x, 0);
  int flipped = 0;
  for (int64_t n = 0; n < 32; ++n) {
    const bool mirrored = y.at(n * 24) != x.at(n * 24);
    flipped += mirrored ? 1 : 0;
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t from = mirrored ? 11 - i : i;  // both axes: the pixels backwards
      CHECK(y.at(n * 24 + 2 * i) == x.at(n * 24 + 2 * from));
    }
  }
  CHECK(flipped > 6);
  CHECK(flipped < 26);
  const HostTensor sideways = run_layer("RandomFlip", x, 0, {{"mode", "horizontal"}});
  for (int64_t n = 0; n < 32; ++n) {
    const double first = sideways.at(n * 24);
    CHECK((first == x.at(n * 24) || first == x.at(n * 24 + 6)));
  }
}

TEST_CASE("RandomCrop takes a window of each image and the middle at inference") {
  const HostTensor x = counted({40, 6, 5, 1});
  const NamedArgs args = {{"height", 4}, {"width", 3}};
  const HostTensor y = run_layer("RandomCrop", x, 0, args);
  REQUIRE(y.shape() == Shape{40, 4, 3, 1});
  std::set<int64_t> places;
  for (int64_t n = 0; n < 40; ++n) {
    const auto place = static_cast<int64_t>(y.at(n * 12)) - n * 30;
    places.insert(place);
    for (int64_t i = 0; i < 12; ++i) {
      CHECK(y.at(n * 12 + i) == static_cast<double>(n * 30 + place + i / 3 * 5 + i % 3));
    }
    CHECK(place / 5 <= 2);
    CHECK(place % 5 <= 2);
  }
  CHECK(places.size() >= 7);  // of 9
  const HostTensor middle = run_layer("RandomCrop", x, -1, args);
  CHECK(middle.at(0) == 6);
  CHECK(middle.at(12) == 36);
}

TEST_CASE("Rotations and shifts and zooms and colours are drawn for each image") {
  HostTensor x(DType::kFloat32, {8, 5, 5, 1});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, 100 + 50 * splitmix_signed(1, static_cast<uint64_t>(i % 25)));  // one image
  }
  const std::pair<const char*, NamedArgs> cases[] = {
      {"RandomRotation", {{"factor", 0.2}}},
      {"RandomTranslation", {{"height_factor", 0.2}, {"width_factor", 0.1}}},
      {"RandomZoom", {{"height_factor", 0.3}}},
      {"RandomContrast", {{"factor", 0.5}}},
      {"RandomShear", {{"x_factor", 0.3}}},
      {"RandomPerspective", {{"factor", {1.0, 1.0}}}},
      {"RandomSharpness", {{"factor", 1.0}}},
      {"RandomErasing", {{"factor", {1.0, 1.0}}}},
      {"RandomBrightness", {{"factor", 0.2}}}};
  for (const auto& [class_name, args] : cases) {
    CAPTURE(class_name);
    const HostTensor y = run_layer(class_name, x, 0, args);
    std::set<std::vector<double>> images;
    const std::vector<double> all = numbers(y);
    for (int64_t n = 0; n < 8; ++n) {
      images.insert(std::vector<double>(all.begin() + n * 25, all.begin() + (n + 1) * 25));
    }
    CHECK(images.size() == 8);
    CHECK(equal(y, run_layer(class_name, x, 0, args)));
    CHECK(!equal(y, run_layer(class_name, x, 1, args)));
    CHECK(equal(x, run_layer(class_name, x, -1, args)));
  }
}

TEST_CASE("RandomPerspective takes places from where a homography says") {
  // Columns, rows and ones: results are places, and where the ones are they are in the image.
  constexpr int64_t kRows = 9, kColumns = 7;
  HostTensor x(DType::kFloat64, {4, kRows, kColumns, 3});
  for (int64_t i = 0; i < x.size(); i += 3) {
    x.set(i, static_cast<double>(i / 3 % kColumns));
    x.set(i + 1, static_cast<double>(i / 3 / kColumns % kRows));
    x.set(i + 2, 1);
  }
  const HostTensor y = run_layer("RandomPerspective", x, 0, {{"factor", {1.0, 1.0}}});
  int seen = 0;
  for (int64_t n = 0; n < 4; ++n) {
    const auto at = [&](int64_t i, int64_t j, int64_t c) {
      return y.at(((n * kRows + i) * kColumns + j) * 3 + c);
    };
    CHECK(at(0, 0, 0) == 0);  // this corner stays
    CHECK(at(0, 0, 1) == 0);
    // column = k j / (1 + g j + h i), row = m i / (1 + g j + h i)
    const double k_over_m = at(1, 1, 0) / at(1, 1, 1);
    const auto divisor = [&](int64_t i, int64_t j) { return static_cast<double>(j) / at(i, j, 0); };
    const double along = divisor(1, 2) - divisor(1, 1), down = divisor(2, 1) - divisor(1, 1);
    for (int64_t i = 1; i < kRows; ++i) {
      for (int64_t j = 1; j < kColumns; ++j) {
        if (std::abs(at(i, j, 2) - 1) > 1e-12 || std::abs(at(2, 2, 2) - 1) > 1e-12) {
          continue;  // outside of the image
        }
        ++seen;
        CHECK(std::abs(at(i, j, 0) / at(i, j, 1) * static_cast<double>(i) / static_cast<double>(j) -
                       k_over_m) < 1e-9);
        const double expected =
            divisor(1, 1) + along * static_cast<double>(j - 1) + down * static_cast<double>(i - 1);
        CHECK(std::abs(divisor(i, j) - expected) < 1e-9);
      }
    }
  }
  CHECK(seen > 40);
}

TEST_CASE("RandomElasticTransform takes places from nearby, by smooth shifts of the stated size") {
  constexpr int64_t kRows = 40, kColumns = 48, kImages = 8, kRim = 8;
  HostTensor x(DType::kFloat64, {kImages, kRows, kColumns, 2});  // columns and rows
  for (int64_t i = 0; i < x.size(); i += 2) {
    x.set(i, static_cast<double>(i / 2 % kColumns));
    x.set(i + 1, static_cast<double>(i / 2 / kColumns % kRows));
  }
  for (const double scale : {1.0, 0.5}) {
    CAPTURE(scale);
    const NamedArgs args = {{"factor", {1.0, 1.0}}, {"scale", {scale, scale}}};
    const HostTensor y = run_layer("RandomElasticTransform", x, 0, args);
    double squares = 0, steps = 0;
    int64_t count = 0;
    const auto shift = [&](int64_t n, int64_t i, int64_t j, int64_t c) {
      const int64_t at = ((n * kRows + i) * kColumns + j) * 2 + c;
      return y.at(at) - x.at(at);
    };
    for (int64_t n = 0; n < kImages; ++n) {
      for (int64_t i = kRim; i < kRows - kRim; ++i) {
        for (int64_t j = kRim; j < kColumns - kRim; ++j) {
          for (int64_t c = 0; c < 2; ++c) {
            squares += shift(n, i, j, c) * shift(n, i, j, c);
            steps += std::pow(shift(n, i, j + 1, c) - shift(n, i, j, c), 2);
            ++count;
          }
        }
      }
    }
    // Normal numbers of this width, smoothed by a Gaussian of it: 1 / (2 width sqrt(pi)) is left.
    const double width = 0.05 * kRows * scale;
    const double expected = 0.1 * kColumns * scale / (2 * std::sqrt(std::numbers::pi));
    const double found = std::sqrt(squares / static_cast<double>(count));
    CHECK(found > 0.85 * expected);
    CHECK(found < 1.15 * expected);
    const double correlation = 1 - steps / squares / 2;
    CHECK(std::abs(correlation - std::exp(-1 / (4 * width * width))) < 0.04);
    CHECK(equal(y, run_layer("RandomElasticTransform", x, 0, args)));
    CHECK(!equal(y, run_layer("RandomElasticTransform", x, 1, args)));
    CHECK(equal(x, run_layer("RandomElasticTransform", x, -1, args)));
  }
  const NamedArgs narrow = {{"factor", {1.0, 1.0}}, {"value_range", {3.0, 20.0}}};
  for (const double value : numbers(run_layer("RandomElasticTransform", x, 0, narrow))) {
    CHECK(value >= 3);
    CHECK(value <= 20);
  }
}

TEST_CASE("AugMix draws chains and weights in each step") {
  HostTensor x(DType::kFloat32, {2, 5, 5, 3});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, 100 + 50 * splitmix_signed(1, static_cast<uint64_t>(i)));
  }
  std::set<std::vector<double>> results;
  for (int64_t step = 0; step < 20; ++step) {
    const HostTensor y = run_layer("AugMix", x, step);
    results.insert(numbers(y));
    CHECK((step % 8 != 0 || equal(y, run_layer("AugMix", x, step))));
    for (const double value : numbers(y)) {
      CHECK(value >= 0);
      CHECK(value <= 255);
    }
  }
  CHECK(results.size() == 20);
  CHECK(equal(x, run_layer("AugMix", x, -1)));
  // One chain of one change is a straight line from the image to what the change makes of it.
  const NamedArgs single = {{"num_chains", 1}, {"chain_depth", 1}, {"all_ops", false}};
  const std::vector<double> from = numbers(x), to = numbers(run_layer("AutoContrast", x, 0));
  int on_line = 0, unchanged = 0;
  for (int64_t step = 0; step < 60; ++step) {
    const std::vector<double> y = numbers(run_layer("AugMix", x, step, single));
    const double share = (y[0] - from[0]) / (to[0] - from[0]);
    bool fits = share > 1e-4, same = true;
    for (size_t i = 0; i < y.size(); ++i) {
      fits = fits && std::abs(y[i] - from[i] - share * (to[i] - from[i])) < 1e-3;
      same = same && std::abs(y[i] - from[i]) < 1e-3;
    }
    on_line += fits ? 1 : 0;
    unchanged += same ? 1 : 0;
  }
  CHECK(on_line > 1);  // each of eight choices in about 7 of 60 steps
  CHECK(on_line < 20);
  CHECK(unchanged > 1);
  CHECK(unchanged < 25);
}

TEST_CASE("RandAugment draws its changes in each step") {
  HostTensor x(DType::kFloat32, {2, 5, 5, 3});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, 100 + 50 * splitmix_signed(1, static_cast<uint64_t>(i)));
  }
  std::set<std::vector<double>> results;
  for (int64_t step = 0; step < 80; ++step) {
    const HostTensor y = run_layer("RandAugment", x, step, {{"num_ops", 1}});
    results.insert(numbers(y));
    CHECK((step % 8 != 0 || equal(y, run_layer("RandAugment", x, step, {{"num_ops", 1}}))));
  }
  CHECK(results.size() > 40);
  for (const char* same_each_time : {"AutoContrast", "Equalization"}) {
    CHECK(results.contains(numbers(run_layer(same_each_time, x, 0))));
  }
  CHECK(equal(x, run_layer("RandAugment", x, -1)));
}

TEST_CASE("Hues, saturations and greys are drawn for each image") {
  HostTensor x(DType::kFloat32, {8, 2, 2, 3});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, 100 + 50 * splitmix_signed(1, static_cast<uint64_t>(i % 12)));  // one image
  }
  const std::pair<const char*, NamedArgs> cases[] = {{"RandomHue", {{"factor", 0.5}}},
                                                     {"RandomSaturation", {{"factor", 0.9}}},
                                                     {"RandomColorDegeneration", {{"factor", 0.9}}},
                                                     {"RandomColorJitter", {{"hue_factor", 0.5}}}};
  for (const auto& [class_name, args] : cases) {
    CAPTURE(class_name);
    const std::vector<double> all = numbers(run_layer(class_name, x, 0, args));
    std::set<std::vector<double>> images;
    for (int64_t n = 0; n < 8; ++n) {
      images.insert(std::vector<double>(all.begin() + n * 12, all.begin() + (n + 1) * 12));
      for (int64_t i = 0; i < 12; ++i) {
        CHECK(all[static_cast<size_t>(n * 12 + i)] >= 0);
        CHECK(all[static_cast<size_t>(n * 12 + i)] <= 255);
      }
    }
    CHECK(images.size() == 8);
    CHECK(equal(x, run_layer(class_name, x, -1, args)));
  }
}

TEST_CASE("RandomErasing fills a rectangle of the drawn size and nothing else") {
  const HostTensor x = counted({16, 20, 30, 2});
  const HostTensor y = run_layer("RandomErasing", x, 0,
                                 {{"factor", {1.0, 1.0}},
                                  {"scale", {0.25, 0.25}},
                                  {"fill_value", 200000.0},
                                  {"value_range", {0.0, 1e6}}});
  for (int64_t n = 0; n < 16; ++n) {
    int64_t top = 20, bottom = -1, left = 30, right = -1, count = 0;
    for (int64_t i = 0; i < 20 * 30; ++i) {
      const int64_t at = (n * 600 + i) * 2;
      const bool is_erased = y.at(at) == 200000;
      CHECK((y.at(at + 1) == 200000) == is_erased);
      if (is_erased) {
        ++count;
        top = std::min(top, i / 30), bottom = std::max(bottom, i / 30);
        left = std::min(left, i % 30), right = std::max(right, i % 30);
      } else {
        CHECK(y.at(at) == x.at(at));
      }
    }
    CHECK(bottom - top + 1 == 10);
    CHECK(right - left + 1 == 15);
    CHECK(count == 150);
  }
}

TEST_CASE("RandomInvert mirrors pixels within their range, for about half of the images") {
  const HostTensor x = filled({200, 1, 1, 1}, 0.25);
  const HostTensor y =
      run_layer("RandomInvert", x, 0, {{"factor", {0.5, 0.5}}, {"value_range", {-1.0, 2.0}}});
  int inverted = 0;
  for (int64_t n = 0; n < 200; ++n) {
    CHECK((y.at(n) == 0.25 || y.at(n) == 0.75));
    inverted += y.at(n) == 0.75 ? 1 : 0;
  }
  CHECK(inverted > 70);
  CHECK(inverted < 130);
}

TEST_CASE("RandomContrast with one number only adds contrast") {
  const HostTensor x = floats({2, 1, 2, 1}, {100, 110, 100, 110});
  for (int64_t step = 0; step < 5; ++step) {
    const HostTensor y = run_layer("RandomContrast", x, step, {{"factor", 0.5}});
    for (const int64_t n : {0, 1}) {
      CHECK(y.at(2 * n + 1) - y.at(2 * n) >= 10);
      CHECK(y.at(2 * n + 1) - y.at(2 * n) <= 15);
    }
  }
}

}  // namespace
}  // namespace meshtrain::testing
