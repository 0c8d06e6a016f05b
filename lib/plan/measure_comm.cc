#include "plan/measure_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/host.h"
#include "exec/join_devices.h"
#include "ir/op.h"

namespace meshtrain {
namespace {

constexpr int64_t kMostMemory = int64_t{1} << 30;  // of operand and result together
constexpr int kChunks = 5;

// The number that the first process has.
int64_t agreed(const Processes& processes, int64_t mine) {
  return processes.size() == 1 ? mine
                               : std::stoll(processes.group->all_gather(std::to_string(mine))[0]);
}

// The median of some chunks of calls, which together take about `budget` seconds. `finish` waits
// for what calls have begun.
double median_seconds(const std::function<void()>& call, const std::function<void()>& finish,
                      double budget, const Processes& processes) {
  const auto timed = [&](int64_t calls) {
    const double begin = steady_seconds();
    for (int64_t i = 0; i < calls; ++i) {
      call();
    }
    finish();
    return (steady_seconds() - begin) / static_cast<double>(calls);
  };
  timed(1);  // memory is touched, connections are made
  const double one = std::max(timed(2), 1e-9);
  const int64_t calls = agreed(
      processes, std::clamp<int64_t>(static_cast<int64_t>(budget / one / kChunks), 1, 100000));
  std::vector<double> times;
  for (int i = 0; i < kChunks; ++i) {
    times.push_back(timed(calls));
  }
  std::nth_element(times.begin(), times.begin() + kChunks / 2, times.end());
  return times[kChunks / 2];
}

// A collective as a program of one step.
struct Case {
  MoveKind kind;
  Shape shape;
  Sharding from, to;
};

Case make_case(MoveKind kind, int axis, int64_t n, int64_t bytes) {
  const int64_t elements = std::max<int64_t>(bytes / 4 / (n * n), 1) * n * n;
  const Sharding whole = Sharding::replicated(1);
  const Sharding partial{{{}}, AxisMask{1} << axis, Combine::kSum};
  const Sharding split{{{axis}}, 0, Combine::kSum};
  if (kind == MoveKind::kAllReduce) {
    return {kind, {elements}, partial, whole};
  }
  if (kind == MoveKind::kAllGather) {
    return {kind, {elements}, split, whole};
  }
  if (kind == MoveKind::kReduceScatter) {
    return {kind, {elements}, partial, split};
  }
  // The size of an all_to_all is that of one device's shard.
  return {kind, {n, elements}, {{{axis}, {}}, 0, Combine::kSum}, {{{}, {axis}}, 0, Combine::kSum}};
}

// After the buffers that are there.
int add_buffer(Program& program, const Shape& shape, const Sharding& sharding) {
  constexpr int64_t kAlignment = 4096;
  Buffer buffer;
  buffer.global_shape = shape;
  buffer.shape = local_shape(shape, sharding, program.part.mesh());
  buffer.sharding = sharding;
  buffer.axes = sharding.used_axes();
  buffer.num_shards = program.part.num_shards(buffer.axes);
  buffer.shard_bytes = num_elements(buffer.shape) * static_cast<int64_t>(dtype_size(buffer.dtype));
  buffer.offset = program.arena_bytes;
  const int64_t bytes = buffer.num_shards * buffer.shard_bytes;
  program.arena_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  program.buffers.push_back(std::move(buffer));
  return static_cast<int>(program.buffers.size()) - 1;
}

ProgramStep make_step(const Program& program, const OpDef& op, std::vector<int> inputs,
                      std::vector<int> outputs, Attrs attrs) {
  ProgramStep step;
  step.op = &op;
  step.inputs = std::move(inputs);
  step.outputs = std::move(outputs);
  step.attrs = std::move(attrs);
  step.path = "bench";
  for (const int b : step.outputs) {
    step.axes |= program.buffers[static_cast<size_t>(b)].axes;
  }
  for (const int b : step.inputs) {
    step.axes |= program.buffers[static_cast<size_t>(b)].axes;
  }
  return step;
}

Program make_program(const Case& c, const MeshPart& part, bool fixed) {
  Program program;
  program.part = part;
  program.fixed_reductions = fixed;
  const int from = add_buffer(program, c.shape, c.from), to = add_buffer(program, c.shape, c.to);
  program.prologue.push_back(make_step(program, find_op("constant"), {}, {from}, {{"value", 1.0}}));
  program.steps.push_back(make_step(program, collective_op(c.kind), {from}, {to}, {}));
  return program;
}

int64_t moved_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const Buffer& buffer : program.buffers) {
    bytes += buffer.num_shards * buffer.shard_bytes;
  }
  return bytes;
}

// Returns the group of an axis when devices fill hosts in order.
GroupShape group_of(const CommOptions& options, int axis) {
  const ProcessGroup* group = options.processes.group.get();
  const int64_t devices = options.mesh.num_devices();
  return group_along(options.mesh, AxisMask{1} << axis,
                     group == nullptr ? devices : devices / group->size() * group->local_size());
}

void fit(CommSeries& series) {
  std::vector<double> bytes, seconds;
  for (const CommPoint& point : series.points) {
    bytes.push_back(static_cast<double>(point.bytes));
    seconds.push_back(point.seconds);
  }
  series.fit = seconds.empty() ? LineFit() : fit_line(bytes, seconds);
}

// Sizes below what splits over all devices are one.
bool is_known(const CommSeries& series, const CommPoint& point) {
  return !series.points.empty() && series.points.back().bytes == point.bytes;
}

CommSeries measure_series(MoveKind kind, const char* reductions, int axis,
                          const CommOptions& options, const MeshPart& part) {
  CommSeries series;
  series.kind = kind;
  series.reductions = reductions;
  series.axis = options.mesh.axis_name(axis);
  series.group = group_of(options, axis);
  series.between_processes = (part.crossing() >> axis & 1) != 0;
  const int64_t n = series.group.devices;
  DeviceGroups groups;
  for (int64_t bytes = options.smallest; bytes <= options.largest; bytes *= 4) {
    const Case c = make_case(kind, axis, n, bytes);
    CommPoint point;
    point.bytes = num_elements(c.shape) * 4 / (kind == MoveKind::kAllToAll ? n : 1);
    if (point.bytes > options.largest) {
      break;
    }
    if (is_known(series, point)) {
      continue;
    }
    Program program = make_program(c, part, series.reductions == "fixed");
    point.moved = moved_bytes(program);
    if (agreed(options.processes, point.moved) > kMostMemory) {
      series.shortened = true;
      break;
    }
    join_groups(options.device.get(), options.processes, {program}, groups);
    VariableStore store(part, {}, options.device, options.processes);
    Executor executor(std::move(program), options.workers, store);
    const auto finish = [&] {
      if (options.device != nullptr) {
        options.device->synchronize();
      }
    };
    point.seconds =
        median_seconds([&] { executor.run(); }, finish, options.seconds, options.processes);
    point.bus_rate = bus_factor(kind, n) * static_cast<double>(point.bytes) / point.seconds;
    series.points.push_back(point);
  }
  fit(series);
  return series;
}

// All processes with all: each sends everyone an equal part of `bytes`.
CommSeries measure_exchange(const CommOptions& options) {
  const Processes& processes = options.processes;
  const int64_t n = processes.size();
  const int64_t hosts = (n + processes.group->local_size() - 1) / processes.group->local_size();
  CommSeries series;
  series.is_exchange = true;
  series.group = {n, hosts};
  series.between_processes = true;
  for (int64_t bytes = options.smallest; bytes <= options.largest; bytes *= 4) {
    const int64_t part = std::max<int64_t>(bytes / n, 1);
    CommPoint point{part * n, 0, 2 * part * n, 0};
    if (point.bytes > options.largest) {
      break;
    }
    if (is_known(series, point)) {
      continue;
    }
    std::vector<std::byte> out(static_cast<size_t>(part * n)), in(out.size());
    std::vector<Message> sends, receives;
    for (int peer = 0; peer < n; ++peer) {
      if (peer != processes.rank()) {
        sends.push_back({peer, out.data() + part * peer, part});
        receives.push_back({peer, in.data() + part * peer, part});
      }
    }
    const std::unique_ptr<Transfer> transfer =
        processes.group->make_exchange(std::move(sends), std::move(receives));
    point.seconds = median_seconds([&] { transfer->run(); }, [] {}, options.seconds, processes);
    point.bus_rate = bus_factor(series.kind, n) * static_cast<double>(point.bytes) / point.seconds;
    series.points.push_back(point);
  }
  fit(series);
  return series;
}

}  // namespace

LineFit fit_line(const std::vector<double>& x, const std::vector<double>& seconds) {
  double s1 = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double w = 1 / (seconds[i] * seconds[i]);
    s1 += w;
    sx += w * x[i];
    sxx += w * x[i] * x[i];
    sy += w * seconds[i];
    sxy += w * x[i] * seconds[i];
  }
  const double determinant = s1 * sxx - sx * sx;
  double slope = determinant > 1e-12 * s1 * sxx ? (s1 * sxy - sx * sy) / determinant : 0;
  double start = (sy - slope * sx) / s1;
  if (start < 0) {  // through the origin
    start = 0;
    slope = sxy / sxx;
  } else if (slope < 0) {
    slope = 0;
    start = sy / s1;
  }
  return {start, slope > 0 ? 1 / slope : 0};
}

std::vector<CommSeries> measure_collectives(const CommOptions& options) {
  const MeshPart part(options.mesh, options.processes.size(), options.processes.rank());
  std::vector<CommSeries> out;
  for (int axis = 0; axis < options.mesh.num_axes(); ++axis) {
    if (options.mesh.axis_size(axis) == 1) {
      continue;
    }
    const bool crosses = (part.crossing() >> axis & 1) != 0;
    for (const MoveKind kind : {MoveKind::kAllReduce, MoveKind::kAllGather,
                                MoveKind::kReduceScatter, MoveKind::kAllToAll}) {
      if (!crosses || call_name(kind, true) == call_name(kind, false)) {
        out.push_back(measure_series(kind, "", axis, options, part));
        continue;
      }
      for (const char* reductions : {"fixed", "fast"}) {
        out.push_back(measure_series(kind, reductions, axis, options, part));
      }
    }
  }
  if (options.processes.size() > 1 && options.device == nullptr) {  // GPUs have NCCL alone
    out.push_back(measure_exchange(options));
  }
  return out;
}

}  // namespace meshtrain
