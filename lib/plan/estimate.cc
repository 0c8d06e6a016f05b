#include "plan/estimate.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/plan_summary.h"

namespace meshtrain {
namespace {

// Work of one step of the program on one device; on virtual devices that of all of them.
struct Work : StepWork {
  bool is_product = false;
  MatmulType type = MatmulType::kFloat32;
};

MatmulType matmul_type(DType dtype, bool allow_tf32) {
  switch (dtype) {
    case DType::kFloat64:
      return MatmulType::kFloat64;
    case DType::kBFloat16:
      return MatmulType::kBFloat16;
    case DType::kFloat16:
      return MatmulType::kFloat16;
    default:
      return allow_tf32 ? MatmulType::kTf32 : MatmulType::kFloat32;
  }
}

class Estimator {
 public:
  Estimator(const EstimateInput& input, const Hardware& hardware)
      : input_(input),
        hardware_(hardware),
        ready_(input.program.buffers.size(), 0),
        maker_(input.program.buffers.size(), kNone) {
    out_.hardware = hardware;
    out_.devices = input.mesh.num_devices();
    out_.hosts = (out_.devices + hardware.per_host - 1) / hardware.per_host;
    out_.fits = hardware.memory == 0 || input.memory <= hardware.memory;
    for (int axis = 0; axis < input.mesh.num_axes(); ++axis) {
      out_.axes.push_back({input.mesh.axis_name(axis), group(AxisMask{1} << axis)});
    }
  }

  Estimate run() {
    for (const ProgramStep& step : input_.program.steps) {
      communicates(*step.op) ? add_call(step) : add_kernel(step);
    }
    MESHTRAIN_CHECK(out_.calls.size() == input_.collectives.size(), "{} of {} collectives",
                    out_.calls.size(), input_.collectives.size());
    if (network_free_ > compute_free_) {  // nothing left that would hide it
      charge(out_.calls.size() - 1, network_free_ - compute_free_);
    }
    finish();
    return std::move(out_);
  }

 private:
  GroupShape group(AxisMask axes) const {
    return group_along(input_.mesh, axes, hardware_.per_host);
  }

  const Buffer& buffer(int b) const { return input_.program.buffers[static_cast<size_t>(b)]; }

  double bytes(int b) const {
    const int64_t shards = hardware_.is_virtual ? buffer(b).num_shards : 1;
    return static_cast<double>(buffer(b).shard_bytes * shards);
  }

  double bytes(const std::vector<int>& buffers) const {
    double total = 0;
    for (const int b : buffers) {
      total += bytes(b);
    }
    return total;
  }

  Work work_of(const ProgramStep& step) const {
    Work work{step_work(input_.program, step, hardware_.is_virtual)};
    if (work.flops == 0) {
      return work;
    }
    work.is_product = step.op->is_product;
    // Older devices have no TF32: its rate is that of float32 there.
    const auto rate = [&](MatmulType type) { return hardware_.matmul[static_cast<size_t>(type)]; };
    const bool has_tf32 = rate(MatmulType::kTf32) != rate(MatmulType::kFloat32);
    work.type = work.is_product
                    ? matmul_type(buffer(step.inputs[0]).dtype,
                                  input_.allow_tf32 && has_tf32 && !hardware_.is_virtual)
                    : MatmulType::kFloat32;
    return work;
  }

  void add_kernel(const ProgramStep& step) {
    const Work work = work_of(step);
    const double products = work.flops / hardware_.matmul[static_cast<size_t>(work.type)];
    const double moves = work.bytes / memory_rate(hardware_, work.bytes);
    (products > moves ? out_.compute : out_.memory) += std::max(products, moves);
    const double begin = hardware_.kernel * input_.launch_share;
    out_.launch += begin;
    ++kernel_steps_;
    if (work.is_product) {
      product_flops_[static_cast<size_t>(work.type)] += work.flops;
    }
    wait_for(step.inputs);
    note_readers(step.inputs);
    compute_free_ += begin + std::max(products, moves);
    for (const int b : step.outputs) {
      ready_[static_cast<size_t>(b)] = compute_free_;
      maker_[static_cast<size_t>(b)] = kNone;
    }
  }

  // Only collectives can be late: kernels run in order.
  void wait_for(const std::vector<int>& inputs) {
    double latest = compute_free_;
    int late = kNone;
    for (const int b : inputs) {
      if (ready_[static_cast<size_t>(b)] > latest) {
        latest = ready_[static_cast<size_t>(b)];
        late = maker_[static_cast<size_t>(b)];
      }
    }
    if (late != kNone) {
      charge(static_cast<size_t>(late), latest - compute_free_);
      compute_free_ = latest;
    }
  }

  // A wait for call `last`, behind which others may have been in the queue: to each no more than
  // it takes.
  void charge(size_t last, double wait) {
    for (size_t c = last + 1; c-- > 0 && wait > 0;) {
      EstimatedCall& call = out_.calls[c];
      const double part = std::min(wait, std::max(call.seconds - call.exposed, 0.0));
      call.exposed += part;
      wait -= part;
    }
  }

  // When the last gather's result is first read: the next one may begin then.
  void note_readers(const std::vector<int>& inputs) {
    for (const int b : inputs) {
      if (last_gather_ != kNone && maker_[static_cast<size_t>(b)] == last_gather_) {
        next_gather_ = compute_free_;
        last_gather_ = kNone;
      }
    }
  }

  CollectiveCall call_of(const ProgramStep& step, const PlannedCollective& planned,
                         GroupShape group) const {
    CollectiveCall call{.kind = planned.kind,
                        .bytes = static_cast<double>(planned.bytes),
                        .is_packed = step.inputs.size() > 1,
                        .fixed = input_.fixed_reductions};
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const Buffer& from = buffer(step.inputs[i]);
      const Buffer& to = buffer(step.outputs[i]);
      if (planned.kind == MoveKind::kAllReduce) {
        const bool is_even = num_elements(to.shape) % group.devices == 0;
        call.uneven += is_even ? 0 : static_cast<double>(from.shard_bytes);
      } else if (planned.kind == MoveKind::kAllGather || planned.kind == MoveKind::kReduceScatter) {
        call.is_packed = call.is_packed || differs_inside(from.sharding, to.sharding);
      }
    }
    return call;
  }

  // Stores the difference to the other kind of reductions for a note.
  CallTime library_time(CollectiveCall call, GroupShape group) {
    const CallTime time = collective_time(hardware_, call, group);
    call.fixed = false;
    fixed_costs_ += time.seconds - collective_time(hardware_, call, group).seconds;
    return time;
  }

  // In how another dimension than the first is split: what one device has is no run of the whole.
  static bool differs_inside(const Sharding& a, const Sharding& b) {
    for (size_t d = 1; d < a.dims.size(); ++d) {
      if (a.dims[d] != b.dims[d]) {
        return true;
      }
    }
    return false;
  }

  void add_call(const ProgramStep& step) {
    const PlannedCollective& planned = input_.collectives[out_.calls.size()];
    const int index = static_cast<int>(out_.calls.size());
    EstimatedCall call;
    AxisMask axes = 0;
    for (const std::string& axis : planned.axes) {
      axes |= AxisMask{1} << input_.mesh.axis_index(axis);
    }
    call.group = cached_group(axes);
    const CallTime time =
        hardware_.is_virtual
            ? virtual_collective_time(hardware_, bytes(step.inputs) + bytes(step.outputs))
            : library_time(call_of(step, planned, call.group), call.group);
    call.seconds = time.seconds;
    call.algorithm = time.algorithm;
    out_.calls.push_back(std::move(call));
    if (hardware_.is_virtual) {  // the same cores
      wait_for(step.inputs);
      compute_free_ += time.seconds;
      network_free_ = compute_free_;
      out_.calls.back().exposed = time.seconds;
    } else {
      place_on_network(step, planned.kind == MoveKind::kAllGather, time.seconds, index);
    }
    for (const int b : step.outputs) {
      ready_[static_cast<size_t>(b)] = network_free_;
      maker_[static_cast<size_t>(b)] = index;
    }
  }

  // One after the other, as soon as the operands are there. A gather of weights could begin with
  // the step; it waits until the result of the gather before it is in use, so that memory holds one
  // that is read and one that is fetched.
  void place_on_network(const ProgramStep& step, bool is_gather, double seconds, int index) {
    double start = network_free_;
    for (const int b : step.inputs) {
      start = std::max(start, ready_[static_cast<size_t>(b)]);
    }
    if (is_gather) {
      start = std::max(start, next_gather_);
      last_gather_ = index;
    }
    network_free_ = start + seconds;
  }

  GroupShape cached_group(AxisMask axes) {
    for (const auto& [known, shape] : groups_) {
      if (known == axes) {
        return shape;
      }
    }
    return groups_.emplace_back(axes, group(axes)).second;
  }

  void finish() {
    out_.kernels = std::lround(static_cast<double>(kernel_steps_) * input_.launch_share);
    for (const EstimatedCall& call : out_.calls) {
      out_.communication += call.seconds;
      out_.exposed += call.exposed;
    }
    const double steady = out_.compute + out_.memory + out_.launch + out_.exposed;
    out_.jitter = hardware_.is_virtual ? 0 : steady * (jitter_factor(hardware_, out_.devices) - 1);
    out_.step = steady + out_.jitter;
    out_.samples_per_second = static_cast<double>(input_.batch) / out_.step;
    out_.products = static_cast<MatmulType>(
        std::max_element(product_flops_.begin(), product_flops_.end()) - product_flops_.begin());
    const double machines = hardware_.is_virtual ? 1 : static_cast<double>(out_.devices);
    const double peak = hardware_.peak[static_cast<size_t>(out_.products)] * machines;
    out_.flops = input_.flops;
    out_.mfu = peak > 0 ? input_.model_flops / out_.step / peak : 0;
    find_bound();
    add_notes();
  }

  void find_bound() {
    const std::pair<double, const char*> parts[] = {{out_.compute, "compute"},
                                                    {out_.memory, "memory"},
                                                    {out_.launch, "launch latency"},
                                                    {out_.exposed, "network"}};
    out_.bound = std::max_element(std::begin(parts), std::end(parts), [](auto& a, auto& b) {
                   return a.first < b.first;
                 })->second;
  }

  void add_notes() {
    if (!out_.fits) {
      out_.notes.push_back(fmt::format("a device needs {} and has {}{}{}",
                                       format_bytes(input_.memory), format_bytes(hardware_.memory),
                                       input_.advice.empty() ? "" : ": ", input_.advice));
    }
    note_slow_axis();
    if (std::min(fixed_costs_, out_.exposed) > out_.step / 20) {
      out_.notes.push_back(fmt::format(
          "fixed sums take {} longer than NCCL's own: with `reductions: fast` the weights' last "
          "bits depend on the number of processes",
          seconds_text(fixed_costs_)));
    }
    for (size_t i = 0; i < out_.calls.size(); ++i) {
      const EstimatedCall& call = out_.calls[i];
      if (starts_with(call.algorithm, "ring") && call.group.devices > 64 && call.group.hosts > 1 &&
          call.exposed > out_.step / 20) {
        out_.notes.push_back(fmt::format(
            "an {} over {} devices in {} hosts goes round a ring of as many hops: split over 64 "
            "devices at most and replicate beyond (`zero_axes`)",
            move_name(input_.collectives[i].kind), call.group.devices, call.group.hosts));
        break;
      }
    }
  }

  // The axis with the most traffic should use the fast links: the last axis.
  void note_slow_axis() {
    if (out_.hosts == 1 || out_.axes.size() < 2) {
      return;
    }
    std::vector<int64_t> sent(out_.axes.size(), 0);
    for (const PlannedCollective& c : input_.collectives) {
      if (c.axes.size() == 1) {
        sent[static_cast<size_t>(input_.mesh.axis_index(c.axes[0]))] += c.bytes_sent;
      }
    }
    const size_t last = out_.axes.size() - 1;
    const size_t most =
        static_cast<size_t>(std::max_element(sent.begin(), sent.end()) - sent.begin());
    const GroupShape& place = out_.axes[most].group;
    if (most != last && sent[most] > sent[last] && place.hosts > 1 &&
        place.devices <= hardware_.per_host) {
      out_.notes.push_back(fmt::format(
          "axis `{}` moves {} a step and lies across hosts, `{}` moves {}: put `{}` last in the "
          "mesh",
          out_.axes[most].name, format_bytes(sent[most]), out_.axes[last].name,
          format_bytes(sent[last]), out_.axes[most].name));
    }
  }

  const EstimateInput& input_;
  const Hardware& hardware_;
  Estimate out_;
  std::vector<double> ready_;  // when each buffer is there
  std::vector<int> maker_;     // the collective that makes it; kNone: a kernel, or given
  double compute_free_ = 0, network_free_ = 0;
  int64_t kernel_steps_ = 0;
  double fixed_costs_ = 0;   // of all calls, beside fast reductions
  int last_gather_ = kNone;  // not read yet
  double next_gather_ = 0;
  std::array<double, kNumMatmulTypes> product_flops_{};
  std::vector<std::pair<AxisMask, GroupShape>> groups_;
};

}  // namespace

StepWork step_work(const Program& program, const ProgramStep& step, bool all_shards) {
  const auto buffer = [&](int b) -> const Buffer& {
    return program.buffers[static_cast<size_t>(b)];
  };
  const auto bytes = [&](const std::vector<int>& buffers) {
    double total = 0;
    for (const int b : buffers) {
      const int64_t shards = all_shards ? buffer(b).num_shards : 1;
      total += static_cast<double>(buffer(b).shard_bytes * shards);
    }
    return total;
  };
  StepWork work;
  work.bytes = bytes(step.inputs) + bytes(step.outputs);
  if (step.op->is_lookup) {
    work.bytes += bytes(step.outputs) - bytes({step.inputs[0]});
  }
  if (step.fused != kNone || !step.op->flops || step.inputs.empty()) {
    return work;  // an operation or a few for each element: bytes decide
  }
  Node node;
  node.op = step.op;
  node.attrs = step.attrs;
  std::vector<Shape> operands, results;
  for (const int b : step.inputs) {
    operands.push_back(buffer(b).shape);
  }
  for (const int b : step.outputs) {
    results.push_back(buffer(b).shape);
  }
  const int64_t shards = all_shards ? program.part.num_shards(step.axes) : 1;
  work.flops = step.op->flops(node, operands, results) * static_cast<double>(shards);
  return work;
}

Estimate estimate_step(const EstimateInput& input, const Hardware& hardware) {
  return Estimator(input, hardware).run();
}

void compare_with_one_device(Estimate& estimate, double one_device_step) {
  estimate.one_device = one_device_step;
  if (one_device_step < estimate.step) {
    estimate.notes.push_back(fmt::format(
        "one device takes {} for this batch: {} devices are {:.1f} times slower",
        seconds_text(one_device_step), estimate.devices, estimate.step / one_device_step));
  }
}

}  // namespace meshtrain
