// A process contributes one block of memory and receives one. Shards that are not contiguous
// (several operands, or split along an inner dimension) are packed before and unpacked afterwards.
#include "exec/library_collective.h"

#include <algorithm>

#include "exec/region_planner.h"

namespace meshtrain {
namespace {

// To (or from) memory with the views one after the other.
void copy_all(KernelSpecs& specs, const std::vector<View>& views, std::byte* packed, bool pack) {
  specs.emplace_back(BeginGroup{});
  for (const View& view : views) {
    const View in_pack = contiguous_view(packed, view.dtype, view.shape);
    specs.emplace_back(CopySpec{pack ? view : in_pack, pack ? in_pack : view});
    packed += view.num_bytes();
  }
  specs.emplace_back(EndGroup{});
}

class LibraryCollective {
 public:
  // Over the processes that differ along `axes`.
  LibraryCollective(StepContext& context, AxisMask axes)
      : context_(context),
        part_(context.program.part),
        ranks_(part_.group(axes)),
        place_(part_.place_in_group(axes)) {
    for (size_t i = 0; i < context_.step.inputs.size(); ++i) {
      inputs_.push_back(shards(context.input(i), context.input_base(i)));
      outputs_.push_back(shards(context.output(i), context.output_base(i)));
      in_bytes_ += inputs_.back().num_bytes();
      out_bytes_ += outputs_.back().num_bytes();
    }
  }

  void all_gather() {
    if (is_one() && out_bytes_ == count() * in_bytes_ && arriving(outputs_[0].data)[0].empty())
      return context_.add(AllGatherSpec{inputs_[0].data, outputs_[0].data, in_bytes_, ranks_});
    std::byte* const arrived = context_.scratch(count() * in_bytes_);
    std::byte* own = inputs_[0].data;
    if (!is_one()) {
      own = arrived + place_ * in_bytes_;
      copy_all(context_.specs, inputs_, own, true);
    }
    context_.add(AllGatherSpec{own, arrived, in_bytes_, ranks_});
    combine(arriving(arrived));
  }

  void reduce_scatter() {
    std::byte* terms = inputs_[0].data;
    const bool is_ready =
        is_one() && in_bytes_ == count() * out_bytes_ && leaving(terms)[0].empty();
    if (!is_ready) {
      terms = context_.scratch(count() * out_bytes_);
      combine(leaving(terms));
    }
    std::byte* const sums = is_one() ? outputs_[0].data : terms + place_ * out_bytes_;
    context_.add(ReduceScatterSpec{reduction(), outputs_[0].dtype, terms, sums,
                                   out_bytes_ / outputs_[0].item_size(), ranks_});
    if (!is_one())
      copy_all(context_.specs, outputs_, sums, false);
  }

  // The terms of this process are added up first, to where the results will be.
  void all_reduce() {
    std::vector<Regions> terms;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      RegionPlanner planner = make_planner(i);
      planner.plan_to(part_, outputs_[i].data);
      terms.push_back(planner.regions({}, context_.specs));
    }
    combine(terms);
    std::byte* const sums = is_one() ? outputs_[0].data : context_.scratch(out_bytes_);
    if (!is_one())
      copy_all(context_.specs, outputs_, sums, true);
    context_.add(AllReduceSpec{reduction(), outputs_[0].dtype, sums,
                               out_bytes_ / outputs_[0].item_size(), ranks_});
    if (!is_one())
      copy_all(context_.specs, outputs_, sums, false);
  }

 private:
  using Regions = std::vector<Region>;

  static View shards(const Buffer& buffer, std::byte* base) {
    return contiguous_view(base, buffer.dtype, {num_elements(buffer.shape) * buffer.num_shards});
  }
  bool is_one() const { return inputs_.size() == 1; }
  int64_t count() const { return static_cast<int64_t>(ranks_.size()); }
  Reduction reduction() const { return reduction_of(context_.input(0).sharding.combine); }
  RegionPlanner make_planner(size_t i) const {
    return {part_, whole_side(context_.input(i), inputs_[i].data), context_.fused_sums_of_input(i),
            whole_side(context_.output(i), outputs_[i].data)};
  }

  // By operand, what becomes of the inputs of all processes, which are at `arrived`.
  std::vector<Regions> arriving(std::byte* arrived) const {
    std::vector<Regions> out;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      RegionPlanner planner = make_planner(i);
      planner.plan_from([&](int rank) {
        const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
        MESHTRAIN_CHECK(found != ranks_.end(), "{}: rank {} is of another group",
                        context_.step.path, rank);
        return arrived + (found - ranks_.begin()) * in_bytes_;
      });
      out.push_back(planner.regions({}, context_.specs));
      arrived += inputs_[i].num_bytes();
    }
    return out;
  }

  // By operand, my terms of the outputs of all processes, which are to be at `terms`.
  std::vector<Regions> leaving(std::byte* terms) const {
    std::vector<Regions> out;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      RegionPlanner planner = make_planner(i);
      for (int64_t place = 0; place < count(); ++place)
        planner.plan_to(part_.of(ranks_[static_cast<size_t>(place)]), terms + place * out_bytes_);
      out.push_back(planner.regions({}, context_.specs));
      terms += outputs_[i].num_bytes();
    }
    return out;
  }

  void combine(const std::vector<Regions>& regions) {
    context_.add(BeginGroup{});
    for (size_t i = 0; i < regions.size(); ++i) {
      const Buffer& terms = context_.input(i);
      if (!regions[i].empty())
        context_.add(CombineSpec{reduction_of(terms.sharding.combine), terms.dtype, regions[i]});
    }
    context_.add(EndGroup{});
  }

  StepContext& context_;
  const MeshPart& part_;
  std::vector<int> ranks_;
  int64_t place_;                       // of this process among them
  std::vector<View> inputs_, outputs_;  // all shards of each, in one dimension
  int64_t in_bytes_ = 0, out_bytes_ = 0;
};

// Axes along which the shards of operand i are gathered from other processes, or its terms added
// up.
AxisMask moved_axes(const Program& program, const ProgramStep& step, size_t i) {
  const Buffer& from = program.buffers[step.inputs[i]];
  const Buffer& to = program.buffers[step.outputs[i]];
  const AxisMask axes = lowering_of(*step.op) == lower_all_gather
                            ? from.axes & ~to.axes
                            : from.sharding.partial & ~to.sharding.partial;
  return axes & program.part.crossing();
}

// NCCL's maximum of a NaN and a number is the number (fmaxf in its reduce_kernel.h); MPI has
// operations of ours.
bool hides_nan(const Program& program, const ProgramStep& step) {
  return std::any_of(step.inputs.begin(), step.inputs.end(), [&](int b) {
    const Buffer& terms = program.buffers[b];
    return is_floating(terms.dtype) && terms.sharding.combine != Combine::kSum;
  });
}

// Returns the axes of a step that is one call of the library; 0 for other steps. `has_gathers`:
// the library is NCCL.
AxisMask axes_of_library(const Program& program, const ProgramStep& step, bool has_gathers) {
  const LowerOp op = lowering_of(*step.op);
  const bool reduces = !program.fixed_reductions && !(has_gathers && hides_nan(program, step));
  const bool is_made = op == lower_all_gather       ? has_gathers
                       : op == lower_reduce_scatter ? has_gathers && reduces
                                                    : op == lower_all_reduce && reduces;
  return is_made ? moved_axes(program, step, 0) : 0;
}

// Returns the axes of a step that, on GPUs, gathers the sums which each process computed in a fixed
// order; 0 for other steps.
AxisMask axes_of_shares(const Program& program, const ProgramStep& step) {
  if (lowering_of(*step.op) != lower_all_reduce || !program.fixed_reductions)
    return 0;
  const AxisMask axes = moved_axes(program, step, 0);
  const size_t processes = program.part.group(axes).size();
  const bool gathers = std::any_of(step.outputs.begin(), step.outputs.end(), [&](int b) {
    return has_equal_shares(program.buffers[b], processes);
  });
  return gathers ? axes : 0;
}

}  // namespace

Reduction reduction_of(Combine combine) {
  switch (combine) {
    case Combine::kSum:
      return Reduction::kSum;
    case Combine::kMax:
      return Reduction::kMax;
    case Combine::kMin:
      return Reduction::kMin;
  }
  return Reduction::kSum;
}

bool lower_to_library(StepContext& context) {
  const LowerOp op = lowering_of(*context.step.op);
  const Program& program = context.program;
  const AxisMask axes = axes_of_library(program, context.step, context.has_gathers());
  if (axes == 0)
    return false;
  for (size_t i = 1; i < context.step.inputs.size(); ++i)
    MESHTRAIN_CHECK(moved_axes(program, context.step, i) == axes, "{}: other axes",
                    context.step.path);
  LibraryCollective collective(context, axes);
  op == lower_all_gather       ? collective.all_gather()
  : op == lower_reduce_scatter ? collective.reduce_scatter()
                               : collective.all_reduce();
  return true;
}

bool has_equal_shares(const Buffer& sums, size_t processes) {
  return num_elements(sums.shape) % static_cast<int64_t>(processes) == 0;
}

std::vector<std::vector<int>> library_groups(const Program& program) {
  std::vector<std::vector<int>> out;
  for (const std::vector<ProgramStep>* steps : {&program.prologue, &program.steps}) {
    for (const ProgramStep& step : *steps) {
      const AxisMask axes = axes_of_library(program, step, true) | axes_of_shares(program, step);
      if (axes == 0)
        continue;
      std::vector<int> ranks = program.part.group(axes);
      if (std::find(out.begin(), out.end(), ranks) == out.end())
        out.push_back(std::move(ranks));
    }
  }
  return out;
}

void gather_runs(KernelSpecs& specs, const std::vector<View>& whole, int64_t place,
                 const std::vector<int>& ranks) {
  const int64_t count = static_cast<int64_t>(ranks.size());
  int64_t bytes = 0;  // of one process
  for (const View& view : whole)
    bytes += view.num_bytes() / count;
  if (bytes == 0)
    return;
  const auto runs_at = [&](int64_t of) {
    std::vector<View> runs;
    for (const View& view : whole) {
      runs.push_back(contiguous_view(view.data + of * view.num_bytes() / count, view.dtype,
                                     {num_elements(view.shape) / count}));
    }
    return runs;
  };
  if (whole.size() == 1) {
    specs.emplace_back(AllGatherSpec{runs_at(place)[0].data, whole[0].data, bytes, ranks});
    return;
  }
  std::byte* const arrived = add_scratch(specs, count * bytes);
  copy_all(specs, runs_at(place), arrived + place * bytes, true);
  specs.emplace_back(AllGatherSpec{arrived + place * bytes, arrived, bytes, ranks});
  for (int64_t of = 0; of < count; ++of) {
    if (of != place)
      copy_all(specs, runs_at(of), arrived + of * bytes, false);
  }
}

}  // namespace meshtrain
