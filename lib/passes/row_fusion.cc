#include "passes/row_fusion.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ir/op.h"
#include "passes/memory.h"

namespace meshtrain {
namespace {

constexpr int kWindow = 24;  // steps from one member of a group to the next
constexpr size_t kMostMembers = 32;
constexpr size_t kMostOperands = 40;    // arrays that a kernel reads and writes
constexpr int64_t kMostColumns = 4096;  // of rows on a processor

// The arrays of a group: shards of this shape, whose rows run along the dimensions marked in
// `gone`.
struct Rows {
  AxisMask axes = 0;
  Shape shape;
  std::vector<bool> gone;
  int64_t count = 1;

  bool operator==(const Rows&) const = default;
};

class RowFuser {
 public:
  RowFuser(Program& program, RowTarget target)
      : program_(program),
        on_cpu_(target == RowTarget::kCpu),
        steps_(program.steps),
        writer_(program.buffers.size(), kNone),
        is_placed_(steps_.size()) {
    for (int s = 0; s < size(); ++s) {
      for (const int b : steps_[s].outputs)
        writer_[b] = s;
    }
  }

  void run() {
    std::vector<ProgramStep> order;
    int groups = 0;
    for (int s = 0; s < size(); ++s) {
      if (is_placed_[s])
        continue;
      const auto place = [&](int step, int rows) {
        is_placed_[step] = true;
        order.push_back(std::move(steps_[step]));
        order.back().row_fusion = rows;
      };
      if (!has_group(s)) {
        place(s, kNone);
        continue;
      }
      for (const int other : before_)
        place(other, kNone);
      for (const int member : members_)
        place(member, groups);
      ++groups;
    }
    steps_ = std::move(order);
  }

 private:
  int size() const { return static_cast<int>(steps_.size()); }
  const Buffer& buffer(int b) const { return program_.buffers[b]; }

  static bool is_tape(const ProgramStep& step) {
    return step.fused != kNone || step.op->elementwise;
  }
  static bool is(OpKind kind, const ProgramStep& step) {
    return step.fused == kNone && step.op->kind == kind;
  }
  static bool is_reduction(const ProgramStep& step) {
    return step.fused == kNone && step.op->reduction;
  }

  // Returns the rows of a reduction over the last dimension, and perhaps others, but not all.
  std::optional<Rows> rows_of_reduction(const ProgramStep& step) const {
    if (!is_reduction(step))
      return std::nullopt;
    const Buffer& x = buffer(step.inputs[0]);
    const Buffer& out = buffer(step.outputs[0]);
    Rows rows{x.axes, x.shape, std::vector<bool>(x.shape.size()), 1};
    for (const int64_t axis : std::get<std::vector<int64_t>>(step.attrs.at("axes")))
      rows.gone[static_cast<size_t>(axis)] = true;
    for (size_t d = 0; d < x.shape.size(); ++d)
      rows.count *= rows.gone[d] ? 1 : x.shape[d];
    const bool has_both = !rows.gone.empty() && rows.gone.back() &&
                          std::count(rows.gone.begin(), rows.gone.end(), false) > 0;
    const bool is_local = out.axes == x.axes && out.sharding.partial == 0;
    if (!has_both || !is_local || num_elements(x.shape) < 2 * rows.count)
      return std::nullopt;
    if (on_cpu_ && (!std::is_sorted(rows.gone.begin(), rows.gone.end()) ||
                    num_elements(x.shape) > kMostColumns * rows.count))
      return std::nullopt;
    return rows;
  }

  // The rows of the first reduction nearby of a result of this elementwise step, or of one that
  // reads a large array that it reads, too.
  std::optional<Rows> rows_behind(int first) const {
    const ProgramStep& step = steps_[first];
    const auto has_large_operand = [&](const ProgramStep& other) {
      return std::any_of(step.inputs.begin(), step.inputs.end(), [&](int b) {
        return buffer(b).shape == buffer(step.outputs[0]).shape &&
               std::find(other.inputs.begin(), other.inputs.end(), b) != other.inputs.end();
      });
    };
    for (int s = first + 1; s < std::min(size(), first + kWindow); ++s) {
      if (is_placed_[s] || !is_reduction(steps_[s]))
        continue;
      const int writer = writer_[steps_[s].inputs[0]];
      const bool is_near = writer > first && is_tape(steps_[writer]) && !is_placed_[writer] &&
                           has_large_operand(steps_[writer]);
      std::optional<Rows> rows = rows_of_reduction(steps_[s]);
      if (rows && (writer == first || is_near))
        return rows;
    }
    return std::nullopt;
  }

  // Whether a group begins with this step.
  bool has_group(int first) {
    std::optional<Rows> rows = rows_of_reduction(steps_[first]);
    if (!rows && is_tape(steps_[first]))
      rows = rows_behind(first);
    rows_ = rows.value_or(Rows{});
    before_.clear();
    members_.clear();
    written_.clear();
    skipped_.clear();
    arrays_.clear();
    if (!rows || !joins(first))
      return false;
    for (int s = first + 1, last = first; s < std::min(size(), last + kWindow); ++s) {
      if (!is_placed_[s] && belongs(steps_[s]) && joins(s))
        last = s;
      else if (!is_placed_[s])
        skipped_.insert(steps_[s].outputs.begin(), steps_[s].outputs.end());
    }
    return members_.size() > 1 && std::any_of(members_.begin(), members_.end(),
                                              [&](int s) { return is_reduction(steps_[s]); });
  }

  // Whether a step reads a result of the group, or elementwise a large array that the group reads.
  bool belongs(const ProgramStep& step) const {
    return std::any_of(step.inputs.begin(), step.inputs.end(), [&](int b) {
      return written_.count(b) > 0 ||
             (is_tape(step) && is_whole(buffer(b)) && arrays_.count(b) > 0);
    });
  }

  // Adds a step, behind those between that it needs.
  bool joins(int s) {
    std::vector<int> more, before;
    if (!can_join(s, more, before))
      return false;
    std::sort(more.begin(), more.end());
    std::sort(before.begin(), before.end());
    std::erase_if(more, [&](int member) {  // two ways led there
      return std::binary_search(before.begin(), before.end(), member);
    });
    if (members_.size() + more.size() > kMostMembers)
      return false;
    std::set<int> arrays = arrays_;
    for (const int member : more) {
      for (const std::vector<int>* list : {&steps_[member].inputs, &steps_[member].outputs})
        arrays.insert(list->begin(), list->end());
    }
    if (arrays.size() > kMostOperands)
      return false;
    arrays_ = std::move(arrays);
    for (const int other : before) {
      before_.push_back(other);
      for (const int b : steps_[other].outputs)
        skipped_.erase(b);
    }
    for (const int member : more) {
      members_.push_back(member);
      for (const int b : steps_[member].outputs) {
        written_.insert(b);
        skipped_.erase(b);
      }
    }
    return true;
  }

  // `more`: the step and members that it needs; `before`: what these need and is no member.
  bool can_join(int s, std::vector<int>& more, std::vector<int>& before) const {
    if (std::find(more.begin(), more.end(), s) != more.end())
      return true;
    const ProgramStep& step = steps_[s];
    if (!fits(step))
      return false;
    std::vector<int> members = more, others = before;
    members.push_back(s);
    const bool of_rows = !is_reduction(step) && !is_whole(buffer(step.outputs[0]));
    for (const int b : step.inputs) {
      const bool lies_so = of_rows || is(OpKind::kOneHot, step)
                               ? is_of_rows(buffer(b))
                               : is_whole(buffer(b)) || repeats_along_rows(buffer(b));
      if (written_.count(b) > 0 && !lies_so)
        return false;
      if (skipped_.count(b) > 0 && !(lies_so && can_join(writer_[b], members, others)) &&
          !can_go_before(writer_[b], others))
        return false;
    }
    more = std::move(members);
    before = std::move(others);
    return true;
  }

  // Whether a step on less than whole arrays (weights as columns, numbers of the loss) does not
  // depend on the group, nor what it needs.
  bool can_go_before(int s, std::vector<int>& before) const {
    if (std::find(before.begin(), before.end(), s) != before.end())
      return true;
    const ProgramStep& step = steps_[s];
    const bool is_small =
        (is_tape(step) || is(OpKind::kReshape, step) || is(OpKind::kBroadcast, step)) &&
        std::all_of(step.outputs.begin(), step.outputs.end(), [&](int b) {
          return buffer(b).variable == kNone &&
                 num_elements(buffer(b).shape) < num_elements(rows_.shape);
        });
    std::vector<int> others = before;
    const bool can = is_small && std::all_of(step.inputs.begin(), step.inputs.end(), [&](int b) {
                       return written_.count(b) == 0 &&
                              (skipped_.count(b) == 0 || can_go_before(writer_[b], others));
                     });
    if (!can)
      return false;
    before = std::move(others);
    before.push_back(s);
    return true;
  }

  bool is_whole(const Buffer& b) const { return b.axes == rows_.axes && b.shape == rows_.shape; }
  // One number a row.
  bool is_of_rows(const Buffer& b) const {
    return b.axes == rows_.axes && num_elements(b.shape) == rows_.count;
  }
  // Whether elementwise ops on whole arrays repeat it along each row.
  bool repeats_along_rows(const Buffer& b) const {
    Shape wanted = rows_.shape;
    for (size_t d = 0; d < wanted.size(); ++d)
      wanted[d] = rows_.gone[d] ? 1 : wanted[d];
    return b.shape == wanted;
  }

  bool uses_16_bits(const ProgramStep& step) const {
    const auto has_16_bits = [](DType dtype) { return dtype_size(dtype) == 2; };
    const auto are_narrow = [&](const std::vector<int>& buffers) {
      return std::any_of(buffers.begin(), buffers.end(),
                         [&](int b) { return has_16_bits(buffer(b).dtype); });
    };
    if (are_narrow(step.inputs) || are_narrow(step.outputs))
      return true;
    if (step.fused == kNone)
      return false;
    const auto& tape = program_.fusions[static_cast<size_t>(step.fused)].instructions;
    return std::any_of(tape.begin(), tape.end(), [&](const FusedTape::Instruction& instruction) {
      return has_16_bits(instruction.dtype);
    });
  }

  bool fits(const ProgramStep& step) const {
    const auto all_results = [&](auto&& are) {
      return std::all_of(step.outputs.begin(), step.outputs.end(),
                         [&](int b) { return buffer(b).variable == kNone && are(buffer(b)); });
    };
    const bool whole = all_results([&](const Buffer& b) { return is_whole(b); });
    const bool of_rows = all_results([&](const Buffer& b) { return is_of_rows(b); });
    if (is_reduction(step))
      return of_rows && rows_of_reduction(step) == rows_;
    if (on_cpu_ && (is(OpKind::kOneHot, step) || uses_16_bits(step)))
      return false;
    if (is(OpKind::kReshape, step))
      return of_rows && is_of_rows(buffer(step.inputs[0]));
    if (is(OpKind::kOneHot, step)) {
      const Buffer& hot = buffer(step.outputs[0]);  // of all classes: its shards are one array
      return whole && hot.shape.back() == hot.global_shape.back() &&
             is_of_rows(buffer(step.inputs[0]));
    }
    return (is_tape(step) || is(OpKind::kBroadcast, step)) && (of_rows || whole);
  }

  Program& program_;
  bool on_cpu_;
  std::vector<ProgramStep>& steps_;
  std::vector<int> writer_;  // step of each buffer
  std::vector<bool> is_placed_;
  // The group in the making.
  Rows rows_;
  std::vector<int> before_, members_;
  std::set<int> written_;  // buffers that members write
  std::set<int> skipped_;  // written by steps that remain after the group
  std::set<int> arrays_;   // all buffers of members
};

}  // namespace

void fuse_rows(Program& program, RowTarget target) {
  if (program.fixed_reductions)
    return;
  RowFuser(program, target).run();
  plan_memory(program);
}

}  // namespace meshtrain
