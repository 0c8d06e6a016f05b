// The order of samples in an epoch.
#pragma once

#include <cstdint>
#include <vector>

namespace meshtrain {

// A pure function of (seed, epoch): a resumed run gets the same order, and any position in it in
// constant time.
//
// Up to kListed samples it is Fisher and Yates' shuffle, as a list. For more samples, a list would
// take too much memory and time: it is a keyed permutation, a Feistel network over the numbers of
// the samples with Philox as its function (four rounds: Luby and Rackoff, "How to Construct
// Pseudorandom Permutations from Pseudorandom Functions", SIAM J. Comput. 17, 1988), applied again
// until the result is a sample (cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite
// Domains", CT-RSA 2002).
class EpochOrder {
 public:
  static constexpr int64_t kListed = int64_t{1} << 24;

  // The order of the file.
  explicit EpochOrder(int64_t num_samples);
  // Shuffled. `listed` is other than kListed in tests only.
  EpochOrder(int64_t num_samples, int64_t seed, int64_t epoch, int64_t listed = kListed);

  int64_t size() const { return num_samples_; }
  // Returns the sample (from 0) at a position of the order.
  int64_t at(int64_t place) const;
  // Returns the samples at positions [begin, begin + count).
  std::vector<int64_t> rows(int64_t begin, int64_t count) const;

 private:
  uint64_t permute(uint64_t number) const;

  int64_t num_samples_;
  bool is_shuffled_ = false;
  uint64_t seed_ = 0;
  uint32_t epoch_ = 0;
  int high_bits_ = 0, low_bits_ = 0;  // of a sample's number, as the network takes it apart
  std::vector<int64_t> list_;         // empty: not listed
};

}  // namespace meshtrain
