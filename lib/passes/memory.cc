#include "passes/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace meshtrain {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t total_bytes(const Buffer& buffer) {
  return aligned(std::max<int64_t>(buffer.piece_bytes * buffer.num_pieces, 1));
}

// Steps between which a buffer holds something: [first, last]; whole-program ones span all steps.
struct Life {
  int first = -1;
  int last = -1;
};

std::vector<Life> lives(const Program& program) {
  const int end = static_cast<int>(program.steps.size());
  std::vector<Life> out(program.buffers.size());
  const auto keep = [&](int buffer) { out[buffer] = {0, end}; };
  for (int s = 0; s < end; ++s) {
    for (const int b : program.steps[s].outputs) {
      out[b] = {s, s};
    }
    for (const int b : program.steps[s].inputs) {
      out[b].last = s;
    }
  }
  for (const ProgramStep& step : program.prologue) {
    std::for_each(step.outputs.begin(), step.outputs.end(), keep);
  }
  for (const auto& input : program.inputs) {
    keep(input.buffer);
  }
  for (const auto& output : program.outputs) {
    out[output.buffer].last = end;
    out[output.buffer].first = std::max(out[output.buffer].first, 0);
  }
  return out;
}

bool same_place_fits(const Buffer& a, const Buffer& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.sharding == b.sharding;
}

// A best-fit allocator over one growing range.
class Arena {
 public:
  int64_t take(int64_t bytes) {
    auto best = free_.end();
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      if (block->second >= bytes && (best == free_.end() || block->second < best->second)) {
        best = block;
      }
    }
    if (best == free_.end()) {
      return grow(bytes);
    }
    const int64_t offset = best->first;
    const int64_t left = best->second - bytes;
    free_.erase(best);
    if (left > 0) {
      free_[offset + bytes] = left;
    }
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    auto next = free_.upper_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += bytes;
        return;
      }
    }
    free_[offset] = bytes;
  }

  int64_t size() const { return size_; }

 private:
  int64_t grow(int64_t bytes) {
    if (!free_.empty()) {
      const auto last = std::prev(free_.end());
      if (last->first + last->second == size_) {  // extend the free end
        const int64_t offset = last->first;
        free_.erase(last);
        size_ = offset + bytes;
        return offset;
      }
    }
    const int64_t offset = size_;
    size_ += bytes;
    return offset;
  }

  std::map<int64_t, int64_t> free_;  // offset to bytes
  int64_t size_ = 0;
};

}  // namespace

bool may_overwrite_operand(const ProgramStep& step) {
  return step.fused != kNone || step.op->elementwise || step.op->name == "optimizer_update";
}

void plan_memory(Program& program) {
  const std::vector<Life> life = lives(program);
  const int end = static_cast<int>(program.steps.size());
  std::vector<Buffer>& buffers = program.buffers;
  Arena arena;
  for (size_t b = 0; b < buffers.size(); ++b) {  // what never moves comes first
    if (buffers[b].variable == kNone && life[b].first == 0 && life[b].last == end) {
      buffers[b].offset = arena.take(total_bytes(buffers[b]));
    }
  }
  const auto is_planned = [&](int b) {
    return buffers[b].variable == kNone && !(life[b].first == 0 && life[b].last == end);
  };
  for (int s = 0; s < end; ++s) {
    const ProgramStep& step = program.steps[s];
    std::vector<int> dying;
    for (const int b : step.inputs) {
      if (is_planned(b) && life[b].last == s &&
          std::find(dying.begin(), dying.end(), b) == dying.end()) {
        dying.push_back(b);
      }
    }
    for (const int output : step.outputs) {
      if (!is_planned(output)) {
        continue;
      }
      const auto heir = !may_overwrite_operand(step)
                            ? dying.end()
                            : std::find_if(dying.begin(), dying.end(), [&](int b) {
                                return same_place_fits(buffers[b], buffers[output]);
                              });
      if (heir != dying.end()) {
        buffers[output].offset = buffers[*heir].offset;
        dying.erase(heir);
      } else {
        buffers[output].offset = arena.take(total_bytes(buffers[output]));
      }
    }
    for (const int b : step.outputs) {
      if (is_planned(b) && life[b].last == s) {
        dying.push_back(b);  // a result that nothing reads
      }
    }
    for (const int b : dying) {
      arena.give(buffers[b].offset, total_bytes(buffers[b]));
    }
  }
  program.arena_bytes = arena.size();
}

std::string memory_plan_problem(const Program& program) {
  const std::vector<Life> life = lives(program);
  const std::vector<Buffer>& buffers = program.buffers;
  for (size_t a = 0; a < buffers.size(); ++a) {
    for (size_t b = a + 1; b < buffers.size(); ++b) {
      const bool both = buffers[a].variable == kNone && buffers[b].variable == kNone &&
                        life[a].first >= 0 && life[b].first >= 0;
      const bool together = life[a].first <= life[b].last && life[b].first <= life[a].last;
      const bool touch = buffers[a].offset < buffers[b].offset + total_bytes(buffers[b]) &&
                         buffers[b].offset < buffers[a].offset + total_bytes(buffers[a]);
      const bool handed_over = (life[a].last == life[b].first || life[b].last == life[a].first) &&
                               buffers[a].offset == buffers[b].offset &&
                               same_place_fits(buffers[a], buffers[b]);
      if (both && together && touch && !handed_over) {
        return fmt::format("buffers {} [{}, {}] and {} [{}, {}] overlap", a, life[a].first,
                           life[a].last, b, life[b].first, life[b].last);
      }
    }
  }
  return {};
}

}  // namespace meshtrain
