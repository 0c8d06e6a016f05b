#include "data/tokenizer/bpe.h"

#include <queue>
#include <tuple>

namespace meshtrain {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// An id of the word, linked with those beside it.
struct Symbol {
  int32_t id = 0, before = -1, behind = -1;  // places; -1: none
  bool is_merged = false;                    // into the one before
};

// A pair that may be merged; another merge may have changed it since.
struct Candidate {
  int32_t rank = 0, place = 0, result = 0;        // `place` is of the left one
  bool operator<(const Candidate& other) const {  // the top of a queue is the largest
    return std::tie(rank, place) > std::tie(other.rank, other.place);
  }
};

}  // namespace

BpeMerges::BpeMerges(const std::vector<BpeMerge>& merges) {
  rules_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    // Of a pair that is there twice the last one counts.
    rules_[pair_key(merges[i].left, merges[i].right)] = {static_cast<int32_t>(i), merges[i].result};
  }
}

const BpeMerges::Rule* BpeMerges::find(int32_t left, int32_t right) const {
  const auto found = rules_.find(pair_key(left, right));
  return found == rules_.end() ? nullptr : &found->second;
}

void BpeMerges::apply(std::vector<int32_t>& ids) const {
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(ids.size());
  std::priority_queue<Candidate> queue;
  const auto add = [&](int32_t place) {
    const Symbol& left = symbols[static_cast<size_t>(place)];
    if (left.behind < 0) {
      return;
    }
    const int32_t right = symbols[static_cast<size_t>(left.behind)].id;
    if (const Rule* rule = find(left.id, right)) {
      queue.push({rule->rank, place, rule->result});
    }
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)] = {ids[static_cast<size_t>(i)], i - 1,
                                       i + 1 < count ? i + 1 : -1};
  }
  for (int32_t i = 0; i < count; ++i) {
    add(i);
  }
  while (!queue.empty()) {
    const Candidate pair = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<size_t>(pair.place)];
    if (left.is_merged || left.behind < 0) {
      continue;
    }
    Symbol& right = symbols[static_cast<size_t>(left.behind)];
    // As `tokenizers`: another pair with the same result is merged in place of the queued one.
    if (const Rule* rule = find(left.id, right.id);
        rule == nullptr || rule->result != pair.result) {
      continue;
    }
    right.is_merged = true;
    left.id = pair.result;
    left.behind = right.behind;
    if (left.behind >= 0) {
      symbols[static_cast<size_t>(left.behind)].before = pair.place;
    }
    add(pair.place);
    if (left.before >= 0) {
      add(left.before);
    }
  }
  ids.clear();
  for (int32_t at = count > 0 ? 0 : -1; at >= 0; at = symbols[static_cast<size_t>(at)].behind) {
    ids.push_back(symbols[static_cast<size_t>(at)].id);
  }
}

}  // namespace meshtrain
