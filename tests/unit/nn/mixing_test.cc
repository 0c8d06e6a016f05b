// MixUp and CutMix: partners, weights and rectangles.
#include "nn/mixing.h"

#include <cmath>
#include <set>

#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

ConfigObject mixing(const char* class_name, const char* argument, Arg value) {
  return make_object(Category::kTransform, class_name, {{argument, std::move(value)}});
}

// Inputs and targets of a batch as a training step has them.
std::vector<HostTensor> mixed(const ConfigObject& object, const HostTensor& x, const HostTensor& y,
                              int64_t step) {
  return run({&x, &y}, [&](Builder& b, const std::vector<ValueId>& in) {
    CallContext context{.builder = b,
                        .training = true,
                        .step = b.constant(static_cast<double>(step), DType::kInt64),
                        .seed = 7,
                        .compute_dtype = DType::kFloat32};
    std::vector<ValueId> inputs = {in[0]}, targets = {in[1]};
    mix_batch(context, object, inputs, targets);
    return std::vector<ValueId>{inputs[0], targets[0]};
  });
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
  }
  const auto count = static_cast<double>(values.size());
  return {sum / count, squares / count - sum * sum / (count * count)};
}

TEST_CASE("MixUp mixes each sample with one of a random order, by beta-distributed weights") {
  constexpr int64_t kBatch = 400;
  HostTensor x(DType::kFloat64, {kBatch, kBatch}), y(DType::kFloat64, {kBatch, 2});
  for (int64_t i = 0; i < kBatch; ++i) {
    x.set(i * kBatch + i, 1);  // a sample says who it is
    y.set(2 * i, static_cast<double>(i));
    y.set(2 * i + 1, 1);
  }
  std::set<std::vector<double>> orders;
  for (const double alpha : {0.2, 1.0, 4.0}) {
    CAPTURE(alpha);
    const std::vector<HostTensor> out = mixed(mixing("MixUp", "alpha", alpha), x, y, 3);
    std::vector<double> weights, order;
    int alone = 0;
    for (int64_t i = 0; i < kBatch; ++i) {
      const double weight = out[0].at(i * kBatch + i);
      int64_t partner = i;
      for (int64_t j = 0; j < kBatch; ++j) {
        partner = j != i && out[0].at(i * kBatch + j) > 0 ? j : partner;
      }
      if (partner == i) {  // its own partner, or the weight 1
        ++alone;
        continue;
      }
      CHECK(std::abs(out[0].at(i * kBatch + partner) - (1 - weight)) < 1e-6);
      const double label =
          weight * static_cast<double>(i) + (1 - weight) * static_cast<double>(partner);
      CHECK(std::abs(out[1].at(2 * i) - label) < 1e-3);
      CHECK(std::abs(out[1].at(2 * i + 1) - 1) < 1e-6);
      weights.push_back(weight);
      order.push_back(static_cast<double>(partner));
    }
    CHECK(std::set<double>(order.begin(), order.end()).size() == order.size());
    CHECK(alone < 40);
    const Moments found = moments(weights);
    CHECK(std::abs(found.mean - 0.5) < 0.06);
    CHECK(std::abs(found.variance / (0.25 / (2 * alpha + 1)) - 1) < 0.25);
    const std::vector<HostTensor> again = mixed(mixing("MixUp", "alpha", alpha), x, y, 3);
    CHECK(numbers(again[0]) == numbers(out[0]));
    CHECK(numbers(mixed(mixing("MixUp", "alpha", alpha), x, y, 4)[0]) != numbers(out[0]));
  }
}

TEST_CASE("CutMix pastes a rectangle, and targets have its share") {
  constexpr int64_t kBatch = 300, kRows = 20, kColumns = 30;
  HostTensor x(DType::kUInt8, {kBatch, kRows, kColumns, 2}), y(DType::kFloat32, {kBatch});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, static_cast<double>(i / (kRows * kColumns * 2) % 250));
  }
  for (int64_t i = 0; i < kBatch; ++i) {
    y.set(i, static_cast<double>(i % 250));
  }
  const ConfigObject object = mixing("CutMix", "factor", {1.0, 1.0});
  const std::vector<HostTensor> out = mixed(object, x, y, 0);
  REQUIRE(out[0].dtype() == DType::kFloat32);
  std::vector<double> weights;
  for (int64_t n = 0; n < kBatch; ++n) {
    const auto at = [&](int64_t i, int64_t j, int64_t c) {
      return out[0].at(((n * kRows + i) * kColumns + j) * 2 + c);
    };
    const double own = y.at(n);
    double other = own;
    int64_t top = kRows, bottom = -1, left = kColumns, right = -1, count = 0;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        CHECK(at(i, j, 0) == at(i, j, 1));
        if (at(i, j, 0) != own) {
          CHECK((other == own || other == at(i, j, 0)));
          other = at(i, j, 0);
          ++count;
          top = std::min(top, i), bottom = std::max(bottom, i);
          left = std::min(left, j), right = std::max(right, j);
        }
      }
    }
    if (count == 0) {
      continue;
    }
    CHECK(count == (bottom - top + 1) * (right - left + 1));
    const double weight = (out[1].at(n) - other) / (own - other);
    // The rectangle's sides are within a pixel of those that the share is of.
    const auto height = static_cast<double>(bottom - top + 1);
    const auto width = static_cast<double>(right - left + 1);
    CHECK((1 - weight) * kRows * kColumns > (height - 1) * (width - 1) - 1e-3);
    CHECK((1 - weight) * kRows * kColumns < (height + 1) * (width + 1) + 1e-3);
    weights.push_back(weight);
  }
  const Moments found = moments(weights);  // Beta(1, 1), but for those too small to be seen
  CHECK(weights.size() > 270);
  CHECK(std::abs(found.mean - 0.5) < 0.07);
  CHECK(std::abs(found.variance * 12 - 1) < 0.25);
}

TEST_CASE("CutMix with little alpha takes whole images or none") {
  HostTensor x(DType::kFloat32, {64, 8, 8, 1}), y(DType::kFloat32, {64});
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, static_cast<double>(i / 64));
  }
  for (int64_t i = 0; i < 64; ++i) {
    y.set(i, static_cast<double>(i));
  }
  const std::vector<HostTensor> out = mixed(mixing("CutMix", "factor", 0.0), x, y, 0);
  int taken = 0;
  for (int64_t n = 0; n < 64; ++n) {
    CHECK(std::isfinite(out[1].at(n)));
    CHECK(std::abs(out[1].at(n) - out[0].at(n * 64)) < 1e-3);
    taken += out[0].at(n * 64) != x.at(n * 64) ? 1 : 0;
  }
  CHECK(taken > 16);
  CHECK(taken < 48);
}

}  // namespace
}  // namespace meshtrain::testing
