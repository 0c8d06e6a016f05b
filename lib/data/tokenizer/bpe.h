// Byte-pair encoding: a word, as ids of its smallest tokens, merged pair by pair.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/spec.h"

namespace meshtrain {

// Merges ids. Thread-safe.
class BpeMerges {
 public:
  explicit BpeMerges(const std::vector<BpeMerge>& merges);

  // Merges the adjacent pair with the first rule, the leftmost of equal ones, until none is left:
  // n log n for n ids.
  void apply(std::vector<int32_t>& ids) const;

 private:
  struct Rule {
    int32_t rank = 0, result = 0;
  };
  const Rule* find(int32_t left, int32_t right) const;

  std::unordered_map<uint64_t, Rule> rules_;  // by both ids
};

}  // namespace meshtrain
