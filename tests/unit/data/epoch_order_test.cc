#include "data/epoch_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace meshtrain {
namespace {

std::vector<int64_t> order(const EpochOrder& whole) {
  return whole.rows(0, whole.size());
}

TEST_CASE("epoch_order: a permutation that is a pure function of seed and epoch") {
  CHECK(order(EpochOrder(5)) == std::vector<int64_t>{0, 1, 2, 3, 4});
  CHECK(EpochOrder(0, 1, 0).size() == 0);
  CHECK(order(EpochOrder(1, 1, 0)) == std::vector<int64_t>{0});
  for (const int64_t n : {2, 10, 1000, 60000}) {
    std::vector<int64_t> samples = order(EpochOrder(n, 1337, 3));
    CHECK(samples == order(EpochOrder(n, 1337, 3)));
    std::sort(samples.begin(), samples.end());
    CHECK(samples == order(EpochOrder(n)));
  }
  // A promise: a resumed run of an older version keeps the same order.
  CHECK(order(EpochOrder(10, 1337, 0)) == std::vector<int64_t>{5, 2, 6, 1, 7, 8, 3, 0, 4, 9});
  CHECK(order(EpochOrder(100, 1, 0)) != order(EpochOrder(100, 1, 1)));
  CHECK(order(EpochOrder(100, 1, 0)) != order(EpochOrder(100, 2, 0)));
}

TEST_CASE("epoch_order: every order of three comes equally often") {
  for (const int64_t listed : {EpochOrder::kListed, int64_t{0}}) {
    CAPTURE(listed);
    int counts[27] = {};
    for (int64_t epoch = 0; epoch < 6000; ++epoch) {
      const std::vector<int64_t> samples = order(EpochOrder(3, 7, epoch, listed));
      ++counts[samples[0] * 9 + samples[1] * 3 + samples[2]];
    }
    int orders = 0;
    for (const int count : counts) {
      orders += count > 0;
      CHECK((count == 0 || (count > 880 && count < 1120)));
    }
    CHECK(orders == 6);
  }
}

TEST_CASE("epoch_order: the keyed permutation has every sample once") {
  for (const int64_t n : {2, 3, 7, 8, 9, 100, 1023, 1024, 1025, 50000}) {
    CAPTURE(n);
    std::vector<int64_t> samples = order(EpochOrder(n, 5, 2, 0));
    CHECK((n < 100 || samples != order(EpochOrder(n))));
    CHECK((n < 100 || samples != order(EpochOrder(n, 5, 3, 0))));
    CHECK((n < 100 || samples != order(EpochOrder(n, 6, 2, 0))));
    std::sort(samples.begin(), samples.end());
    CHECK(samples == order(EpochOrder(n)));
  }
}

// Mean of the distances between what neighbours in the order are in the file; a third of `n` where
// the order is uniform.
TEST_CASE("epoch_order: the keyed permutation leaves no trace of the order of the file") {
  constexpr int64_t kSamples = 40000;
  double distance = 0, product = 0;
  std::vector<int> thirds(9);
  int fixed = 0;
  const std::vector<int64_t> samples = order(EpochOrder(kSamples, 1, 0, 0));
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t sample = samples[static_cast<size_t>(i)];
    fixed += sample == i;
    ++thirds[static_cast<size_t>(3 * i / kSamples * 3 + 3 * sample / kSamples)];
    const double half = (kSamples - 1) / 2.0;
    product += (static_cast<double>(i) - half) * (static_cast<double>(sample) - half);
    distance +=
        i == 0 ? 0 : std::abs(static_cast<double>(sample - samples[static_cast<size_t>(i - 1)]));
  }
  CHECK(distance / kSamples == doctest::Approx(kSamples / 3.0).epsilon(0.02));
  // A correlation of n places has the deviation 1 / sqrt(n).
  CHECK(std::abs(product / kSamples / (kSamples / 12.0 * kSamples)) < 4 / std::sqrt(kSamples));
  CHECK(fixed < 8);
  for (const int count : thirds) {
    CHECK(std::abs(count - kSamples / 9.0) < 200);
  }
}

TEST_CASE("epoch_order: any place of a trillion samples at once") {
  constexpr int64_t kTrillion = 1'000'000'000'000;
  const EpochOrder large(kTrillion, 3, 1);
  const std::vector<int64_t> batch = large.rows(kTrillion - 1000, 1000);
  CHECK(batch.back() == large.at(kTrillion - 1));
  CHECK(batch.front() == EpochOrder(kTrillion, 3, 1).at(kTrillion - 1000));
  CHECK(std::set<int64_t>(batch.begin(), batch.end()).size() == 1000);
  CHECK(*std::max_element(batch.begin(), batch.end()) < kTrillion);
  CHECK(*std::min_element(batch.begin(), batch.end()) >= 0);
  // A promise: a resumed run of an older version keeps the same order.
  CHECK(EpochOrder(1000, 1337, 0, 0).rows(0, 5) == std::vector<int64_t>{238, 68, 723, 742, 254});
}

}  // namespace
}  // namespace meshtrain
