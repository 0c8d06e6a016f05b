#include "passes/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace meshtrain {
namespace {

constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t arena_bytes_of(const Buffer& buffer, int64_t shards) {
  return aligned(std::max<int64_t>(buffer.shard_bytes * shards, 1));
}

int64_t total_bytes(const Buffer& buffer) {
  return arena_bytes_of(buffer, buffer.num_shards);
}

// Steps between which a buffer holds something: [first, last]; whole-program ones span all steps.
struct Life {
  int first = -1;
  int last = -1;
};

// For each step the first and the last of its row group; itself where it is in none.
std::vector<Life> row_groups(const Program& program) {
  const int end = static_cast<int>(program.steps.size());
  std::vector<Life> out(program.steps.size());
  for (int s = 0, first = 0; s < end; ++s) {
    const int rows = program.steps[s].row_fusion;
    if (s == 0 || rows == kNone || rows != program.steps[s - 1].row_fusion)
      first = s;
    for (int member = first; member <= s; ++member)
      out[member] = {first, s};
  }
  return out;
}

// Inputs of a group live until its end, outputs from its beginning. Values that only the group
// itself reads need no memory.
void widen(std::vector<Life>& lives, const Program& program) {
  const std::vector<Life> groups = row_groups(program);
  const int end = static_cast<int>(groups.size());
  for (Life& life : lives) {
    const bool begins = life.first >= 0 && life.first < end;
    const Life group = begins ? groups[life.first] : Life{};
    if (begins && program.steps[life.first].row_fusion != kNone && life.last <= group.last) {
      life = {};
      continue;
    }
    if (begins)
      life.first = group.first;
    if (life.last >= 0 && life.last < end)
      life.last = groups[life.last].last;
  }
}

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
  widen(out, program);
  return out;
}

bool same_place_fits(const Buffer& a, const Buffer& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.sharding == b.sharding;
}

// A best-fit allocator over one growing range: of the free blocks that are large enough the
// smallest, of equal ones the first.
class Arena {
 public:
  int64_t take(int64_t bytes) {
    const auto best = by_size_.lower_bound({bytes, 0});
    if (best == by_size_.end()) {
      return grow(bytes);
    }
    const auto [size, offset] = *best;
    erase(free_.find(offset));
    if (size > bytes) {
      insert(offset + bytes, size - bytes);
    }
    return offset;
  }

  void give(int64_t offset, int64_t bytes) {
    auto next = free_.upper_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        offset = previous->first;
        bytes += previous->second;
        erase(previous);
      }
    }
    insert(offset, bytes);
  }

  int64_t size() const { return size_; }

 private:
  using Blocks = std::map<int64_t, int64_t>;

  int64_t grow(int64_t bytes) {
    if (!free_.empty()) {
      const auto last = std::prev(free_.end());
      if (last->first + last->second == size_) {  // extend the free end
        const int64_t offset = last->first;
        erase(last);
        size_ = offset + bytes;
        return offset;
      }
    }
    const int64_t offset = size_;
    size_ += bytes;
    return offset;
  }

  void insert(int64_t offset, int64_t bytes) {
    free_[offset] = bytes;
    by_size_.insert({bytes, offset});
  }
  Blocks::iterator erase(Blocks::iterator block) {
    by_size_.erase({block->second, block->first});
    return free_.erase(block);
  }

  Blocks free_;                                    // offset to bytes
  std::set<std::pair<int64_t, int64_t>> by_size_;  // bytes and offset of the same
  int64_t size_ = 0;
};

}  // namespace

bool may_overwrite_operand(const ProgramStep& step) {
  return step.fused != kNone || step.op->elementwise || step.op->in_place;
}

namespace {

// Gives every buffer its offset, in the order of the steps.
class MemoryPlanner {
 public:
  // `one_shard`: as a device of a real mesh, which holds one shard of each buffer.
  MemoryPlanner(const Program& program, bool one_shard)
      : program_(program),
        one_shard_(one_shard),
        life_(lives(program)),
        groups_(row_groups(program)),
        end_(static_cast<int>(program.steps.size())),
        offsets_(program.buffers.size(), 0),
        seen_at_(program.buffers.size(), -1) {}

  void run() {
    for (size_t b = 0; b < offsets_.size(); ++b) {  // what never moves comes first
      if (program_.buffers[b].variable == kNone && is_whole_life(static_cast<int>(b))) {
        offsets_[b] = arena_.take(bytes(static_cast<int>(b)));
      }
    }
    for (int s = 0; s < end_; ++s) {
      if (program_.steps[s].row_fusion == kNone) {
        place_results(s);
      } else if (groups_[s].first == s) {
        place_group(groups_[s]);
      }
    }
  }

  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t arena_bytes() const { return arena_.size(); }

 private:
  bool is_whole_life(int b) const { return life_[b].first == 0 && life_[b].last == end_; }
  bool is_planned(int b) const {
    return program_.buffers[b].variable == kNone && life_[b].first >= 0 && !is_whole_life(b);
  }
  int64_t bytes(int b) const {
    const Buffer& buffer = program_.buffers[b];
    return arena_bytes_of(buffer, one_shard_ ? 1 : buffer.num_shards);
  }

  // Places the outputs of a row fusion. A result reuses the memory of an operand of its size and
  // type that dies in the group and has no reader after the step of the result. Only whole arrays
  // are reused: several threads read one number of a row.
  void place_group(const Life& group) {
    std::map<int, int> dying;  // operands, and the last step that reads each
    int64_t whole = 0;
    for (int s = group.first; s <= group.last; ++s) {
      for (const int b : program_.steps[s].inputs) {
        if (is_planned(b) && life_[b].first < group.first && life_[b].last == group.last) {
          dying[b] = s;
        }
      }
      for (const int b : program_.steps[s].outputs) {
        whole = std::max(whole, num_elements(program_.buffers[b].shape));
      }
    }
    for (int s = group.first; s <= group.last; ++s) {
      const int last_reader = may_overwrite_operand(program_.steps[s]) ? s : s - 1;
      for (const int b : program_.steps[s].outputs) {
        if (!is_planned(b)) {
          continue;
        }
        const auto heir = std::find_if(dying.begin(), dying.end(), [&](const auto& operand) {
          const Buffer& other = program_.buffers[operand.first];
          return operand.second <= last_reader && num_elements(other.shape) == whole &&
                 same_place_fits(other, program_.buffers[b]);
        });
        if (heir != dying.end()) {
          offsets_[b] = offsets_[heir->first];
          dying.erase(heir);
        } else {
          offsets_[b] = arena_.take(bytes(b));
        }
      }
    }
    for (const auto& [b, reader] : dying) {
      arena_.give(offsets_[b], bytes(b));
    }
  }

  void place_results(int s) {
    const ProgramStep& step = program_.steps[s];
    SmallVector<int, 8> dying;
    for (const int b : step.inputs) {
      if (is_planned(b) && life_[b].last == s && seen_at_[b] != s) {
        dying.push_back(b);
        seen_at_[b] = s;
      }
    }
    const bool may_overwrite = may_overwrite_operand(step);
    for (const int output : step.outputs) {
      if (!is_planned(output)) {
        continue;
      }
      const auto heir =
          !may_overwrite ? dying.end() : std::find_if(dying.begin(), dying.end(), [&](int b) {
            return same_place_fits(program_.buffers[b], program_.buffers[output]);
          });
      if (heir != dying.end()) {
        offsets_[output] = offsets_[*heir];
        dying.erase(heir);
      } else {
        offsets_[output] = arena_.take(bytes(output));
      }
    }
    for (const int b : step.outputs) {
      if (is_planned(b) && life_[b].last == s) {
        dying.push_back(b);  // a result that nothing reads
      }
    }
    for (const int b : dying) {
      arena_.give(offsets_[b], bytes(b));
    }
  }

  const Program& program_;
  bool one_shard_;
  std::vector<Life> life_;
  std::vector<Life> groups_;  // of each step
  int end_;
  std::vector<int64_t> offsets_;
  std::vector<int> seen_at_;  // the step that a buffer was last found dying at
  Arena arena_;
};

}  // namespace

void plan_memory(Program& program) {
  MemoryPlanner planner(program, false);
  planner.run();
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    program.buffers[b].offset = planner.offsets()[b];
  }
  program.arena_bytes = planner.arena_bytes();
  for (const Buffer& buffer : program.buffers) {  // also of what has no memory
    if (buffer.variable == kNone)
      program.arena_bytes = std::max(program.arena_bytes, total_bytes(buffer));
  }
}

std::vector<bool> have_memory(const Program& program) {
  const std::vector<Life> life = lives(program);
  std::vector<bool> out(life.size());
  for (size_t b = 0; b < life.size(); ++b)
    out[b] = life[b].first >= 0 && program.buffers[b].variable == kNone;
  return out;
}

int64_t arena_bytes_per_device(const Program& program) {
  MemoryPlanner planner(program, true);
  planner.run();
  return planner.arena_bytes();
}

std::string memory_plan_problem(const Program& program) {
  const std::vector<Life> life = lives(program), groups = row_groups(program);
  const std::vector<Buffer>& buffers = program.buffers;
  const auto begins_where_ends = [&](size_t a, size_t b) {
    const int first = life[a].first, last = life[b].last;
    const bool is_step = first >= 0 && first < static_cast<int>(groups.size());
    return first == last || (is_step && groups[first].last == last);
  };
  for (size_t a = 0; a < buffers.size(); ++a) {
    for (size_t b = a + 1; b < buffers.size(); ++b) {
      const bool both = buffers[a].variable == kNone && buffers[b].variable == kNone &&
                        life[a].first >= 0 && life[b].first >= 0;
      const bool together = life[a].first <= life[b].last && life[b].first <= life[a].last;
      const bool touch = buffers[a].offset < buffers[b].offset + total_bytes(buffers[b]) &&
                         buffers[b].offset < buffers[a].offset + total_bytes(buffers[a]);
      const bool handed_over = (begins_where_ends(a, b) || begins_where_ends(b, a)) &&
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
