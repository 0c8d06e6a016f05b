#include "data/epoch_order.h"

#include <bit>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace meshtrain {
namespace {

// Fisher and Yates' shuffle. The bounded number is the high half of range * bits; the few low
// halves that would favour some results are drawn again (Lemire, "Fast Random Integer Generation
// in an Interval", ACM TOMACS 29, 2019).
std::vector<int64_t> shuffled_list(int64_t num_samples, uint64_t seed, uint32_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(num_samples));
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto stream = static_cast<uint32_t>(hash_text("data/shuffle"));
  PhiloxBlock block = {};
  uint64_t drawn = 0;
  const auto next = [&]() -> uint64_t {  // 64 bits, two of each block
    if (drawn % 2 == 0) {
      const uint64_t counter = drawn / 2;
      block = philox4x32_10(
          {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), stream, epoch},
          seed);
    }
    const size_t lane = drawn++ % 2 * 2;
    return uint64_t{block[lane]} << 32 | block[lane + 1];
  };
  for (uint64_t range = order.size(); range > 1; --range) {
    unsigned __int128 product = static_cast<unsigned __int128>(next()) * range;
    if (static_cast<uint64_t>(product) < range) {
      const uint64_t favoured = -range % range;
      while (static_cast<uint64_t>(product) < favoured) {
        product = static_cast<unsigned __int128>(next()) * range;
      }
    }
    std::swap(order[range - 1], order[static_cast<size_t>(product >> 64)]);
  }
  return order;
}

uint64_t low(uint64_t number, int bits) {
  return number & ((uint64_t{1} << bits) - 1);
}

}  // namespace

EpochOrder::EpochOrder(int64_t num_samples) : num_samples_(num_samples) {}

EpochOrder::EpochOrder(int64_t num_samples, int64_t seed, int64_t epoch, int64_t listed)
    : num_samples_(num_samples),
      is_shuffled_(num_samples > 1),
      seed_(static_cast<uint64_t>(seed)),
      epoch_(static_cast<uint32_t>(epoch)) {
  if (num_samples <= listed) {
    list_ = shuffled_list(num_samples, seed_, epoch_);
    return;
  }
  // The smallest power of two that holds all samples: on average less than two walks.
  const int bits = std::bit_width(static_cast<uint64_t>(num_samples - 1));
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
}

// Four rounds: the parts change places after each, so that their widths do, too.
uint64_t EpochOrder::permute(uint64_t number) const {
  static const auto kStream = static_cast<uint32_t>(hash_text("data/shuffle/keyed"));
  int left_bits = high_bits_, right_bits = low_bits_;
  uint64_t left = number >> low_bits_, right = low(number, low_bits_);
  for (uint32_t round = 0; round < 4; ++round) {
    const PhiloxBlock block =
        philox4x32_10({static_cast<uint32_t>(right), round, kStream, epoch_}, seed_);
    const uint64_t mixed = left ^ low(block[0], left_bits);
    left = right;
    right = mixed;
    std::swap(left_bits, right_bits);
  }
  return left << right_bits | right;
}

int64_t EpochOrder::at(int64_t place) const {
  MESHTRAIN_CHECK(place >= 0 && place < num_samples_, "place {} of {}", place, num_samples_);
  if (!is_shuffled_) {
    return place;
  }
  if (!list_.empty()) {
    return list_[static_cast<size_t>(place)];
  }
  auto number = static_cast<uint64_t>(place);
  do {
    number = permute(number);
  } while (number >= static_cast<uint64_t>(num_samples_));
  return static_cast<int64_t>(number);
}

std::vector<int64_t> EpochOrder::rows(int64_t begin, int64_t count) const {
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    out[static_cast<size_t>(i)] = at(begin + i);
  }
  return out;
}

}  // namespace meshtrain
